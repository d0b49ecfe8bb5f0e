"""Faults: the first invalid timestep of every environment, as the loop records it."""

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

from rlcli.loop.faults import (
    NONE,
    Fault,
    begin_faults,
    first_not_finite,
    first_outside,
    update_faults,
)
from rlcli.spaces import zeros
from rlcli.types import Environment, Host, TimeStep

HIGH = np.array([1.0, np.inf], np.float32)
BOX = spaces.Box(-HIGH, HIGH, (2,), np.float32)
SPACE = spaces.Dict({"at": BOX, "choice": spaces.Discrete(3)})


def environment(
    num_envs: int, space: gymnasium.Space = SPACE, *, pure: bool = False
) -> Environment:
    nothing = spaces.Discrete(2)
    host = None if pure else Host(None, None, None)
    return Environment(None, None, space, nothing, num_envs, host=host)


def reference(events, steps: int, num_envs: int):
    """Brute force: the first event of each environment, (step, what)."""
    actual = [None] * num_envs
    for step in range(steps + 1):
        for (at, index), what in events.items():
            if at == step and actual[index] is None:
                actual[index] = (step, what)
    return actual


@pytest.mark.parametrize("pure", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_faults_equal_those_of_a_loop_over_the_timesteps(seed, pure):
    draws = np.random.default_rng(seed)
    steps, batch = 12, 3
    env = environment(batch, pure=pure)
    invalid, outside = {}, {}
    update = jax.jit(lambda faults, *given: update_faults(faults, env, *given))
    faults = None
    for step in range(steps + 1):
        at = draws.uniform(-1, 1, (2, batch, 2)).astype(np.float32)
        choice = draws.integers(3, size=(2, batch))
        reward = draws.uniform(-1, 1, batch).astype(np.float32)
        action = np.zeros(batch, np.float32)
        for index in np.flatnonzero(draws.random(batch) < 0.2):
            kind = draws.integers(5)
            which = draws.integers(2) if step else 0  # `obs` or `next_obs`
            if kind == 0:
                at[which, index, draws.integers(2)] = draws.choice([np.nan, np.inf])
                invalid[step, index] = "an observation"
                beyond = np.isposinf(at[which, index, 0])
                outside |= {(step, index): ""} if beyond else {}
            elif kind == 1 and step:
                reward[index] = draws.choice([np.nan, -np.inf])
                invalid[step, index] = "a reward"
            elif kind == 2:
                at[which, index, 0] = draws.choice([1.5, -1.01])
                outside[step, index] = ""
            elif kind == 3:
                choice[which, index] = draws.choice([-1, 3])
                outside[step, index] = ""
            elif step:  # the result of a NaN action is not a fault
                action[index], reward[index] = np.nan, np.nan
        obs, next_obs = ({"at": at[i], "choice": choice[i]} for i in range(2))
        if step == 0:
            faults = begin_faults(env, obs)
            continue
        ones = np.ones(batch, np.float32)
        answer = TimeStep(obs, next_obs, reward, ones, ones > 0, {})
        faults = update(faults, action, answer, jnp.int32(step))
    expected = reference(invalid, steps, batch)
    for index, code in enumerate(np.asarray(faults.not_finite)):
        actual = first_not_finite(np.array([code]))
        assert (actual and (actual.step, actual.what)) == expected[index]
    if pure:
        outside = {}
    beyond = [actual and actual[0] for actual in reference(outside, steps, batch)]
    assert [None if c == NONE else int(c) for c in faults.outside] == beyond


def test_the_reported_fault_is_the_earliest_of_all_environments():
    assert first_not_finite(np.array([NONE, 7, -2 - 5, NONE])) == Fault(
        2, 5, "an observation"
    )
    assert first_not_finite(np.array([NONE, 4, -2 - 5])) == Fault(1, 4, "a reward")
    assert first_not_finite(np.array([-2])) == Fault(0, 0, "an observation")
    assert first_outside(np.array([9, 0, NONE])) == Fault(1, 0, "an observation")
    assert first_not_finite(np.array([NONE])) is first_outside(np.array([NONE])) is None


@pytest.mark.parametrize(
    "space",
    [
        spaces.Box(-np.inf, np.inf, (2,), np.float32),
        spaces.Box(0, 255, (4, 4), np.uint8),
        spaces.Dict({"image": spaces.Box(0, 255, (4, 4, 1), np.uint8)}),
        spaces.MultiBinary(3),
    ],
)
def test_arrays_that_cannot_exceed_their_bounds_are_not_compared(space):
    obs = jax.tree.map(lambda leaf: leaf[None], zeros(space))
    program = jax.make_jaxpr(lambda obs: begin_faults(environment(1, space), obs))(obs)
    compares = any(name in str(program) for name in (" lt ", " gt ", " le ", " ge "))
    assert compares == isinstance(space, spaces.MultiBinary)
