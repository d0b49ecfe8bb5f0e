"""What the tests beside Gymnasium's tables share."""

from collections import defaultdict

import jax
import numpy as np
import pytest


@pytest.fixture(scope="session")
def gymnasium_table():
    """A function of one of Gymnasium's: its table, outcomes that are one merged.

    `{(state, action): {(state after, reward, terminated): probability}}`
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
    """A function that makes the same table of our steps with all the noise there is.

    `noises` are pairs of a noise and its probability, `state_of` puts a number into the
    core's state.
    """

    def table(core, state_of, noises):
        states, actions = int(core.observation.n), int(core.action.n)
        state, action = (
            each.ravel().astype(np.int32) for each in np.mgrid[:states, :actions]
        )
        keys = list(zip(state.tolist(), action.tolist(), strict=True))
        found = {key: defaultdict(float) for key in keys}
        step = jax.jit(
            jax.vmap(lambda s, a, noise: core.step(state_of(s), a, noise), (0, 0, None))
        )
        for noise, probability in noises:
            _, timestep = step(state, action, noise)
            np.testing.assert_array_equal(timestep.discount, 1.0 - timestep.last)
            np.testing.assert_array_equal(timestep.next_obs, timestep.obs)
            seen = (timestep.obs, timestep.reward, timestep.last)
            outcomes = zip(*(np.asarray(each).tolist() for each in seen), strict=True)
            for key, outcome in zip(keys, outcomes, strict=True):
                found[key][outcome] += probability
        return found

    return table


@pytest.fixture(scope="session")
def tables_equal():
    """A function: whether two such tables are one."""

    def check(a, b):
        assert a.keys() == b.keys()
        for key, expected in b.items():
            assert a[key] == pytest.approx(expected)

    return check
