"""Fixtures to compare transitions with Gymnasium's tables."""

from collections import defaultdict

import jax
import numpy as np
import pytest


@pytest.fixture(scope="session")
def gymnasium_table():
    """A function that returns Gymnasium's transition table, with equal outcomes merged.

    `{(state, action): {(next state, reward, terminated): probability}}`
    """

    def table(env):
        merged = {}
        for state, actions in env.unwrapped.P.items():
            for action, outcomes in actions.items():
                merged[state, action] = defaultdict(float)
                for probability, after, reward, terminated in outcomes:
                    outcome = (int(after), float(reward), bool(terminated))
                    merged[state, action][outcome] += probability
        return merged

    return table


@pytest.fixture(scope="session")
def native_table():
    """A function that computes the same table for a native environment.

    `noises` are all pairs of a noise and its probability. `state_of` converts a cell to
    a state.
    """

    def table(core, state_of, noises):
        states, actions = int(core.observation.n), int(core.action.n)
        state, action = (
            index.ravel().astype(np.int32) for index in np.mgrid[:states, :actions]
        )
        keys = list(zip(state.tolist(), action.tolist(), strict=True))
        outcomes_of = {key: defaultdict(float) for key in keys}
        step = jax.jit(
            jax.vmap(lambda s, a, noise: core.step(state_of(s), a, noise), (0, 0, None))
        )
        for noise, probability in noises:
            _, timestep = step(state, action, noise)
            np.testing.assert_array_equal(timestep.discount, 1.0 - timestep.last)
            np.testing.assert_array_equal(timestep.next_obs, timestep.obs)
            results = (timestep.obs, timestep.reward, timestep.last)
            outcomes = zip(
                *(np.asarray(leaf).tolist() for leaf in results), strict=True
            )
            for key, outcome in zip(keys, outcomes, strict=True):
                outcomes_of[key][outcome] += probability
        return outcomes_of

    return table


@pytest.fixture(scope="session")
def tables_equal():
    """A function that asserts that two such tables are equal."""

    def check(a, b):
        assert a.keys() == b.keys()
        for key, expected in b.items():
            assert a[key] == pytest.approx(expected)

    return check
