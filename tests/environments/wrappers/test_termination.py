"""Termination wrappers."""

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlcli import registry
from rlcli.errors import RlcliError
from rlcli.types import Core, TimeStep


def environment_with_lives(lives=(3, 3, 2, 2, 2, 1, 0)) -> Core:
    """An environment with the given lives after each step; it terminates at 0."""
    remaining = jnp.asarray(lives)

    def step(state, action, noise):
        current, over = remaining[state], remaining[state] == 0
        obs = jnp.float32(0)
        discount = 1.0 - over.astype(jnp.float32)
        return state + 1, TimeStep(obs, obs, 1.0, discount, over, {"lives": current})

    return Core(
        reset=lambda key: (jnp.int32(0), jnp.float32(0)),
        step=step,
        observation=gymnasium.spaces.Box(0, 1, ()),
        action=gymnasium.spaces.Discrete(2),
        render=lambda state: np.full((2, 2, 3), int(state), np.uint8),
        draw=lambda key: (),
    )


def wrap(core, **options):
    return registry.find("wrapper", "terminal_on_life_loss").factory(core, **options)


def test_an_episode_terminates_exactly_where_a_life_is_lost():
    env = wrap(environment_with_lives())
    state, _ = env.reset(jax.random.key(0))
    ends, discounts = [], []
    for _ in range(7):
        state, timestep = env.step(state, jnp.int32(0), ())
        ends.append(bool(timestep.last))
        discounts.append(float(timestep.discount))
    assert ends == [False, False, True, False, False, True, True]
    assert discounts == [1, 1, 0, 1, 1, 0, 0]
    assert env.render(state).max() == 7


def test_an_environment_that_logs_no_lives_is_refused():
    env = wrap(environment_with_lives(), lives="hearts")
    state, _ = env.reset(jax.random.key(0))
    with pytest.raises(RlcliError, match="logs `hearts`") as error:
        env.step(state, jnp.int32(0), ())
    assert "logs `lives`" in error.value.hint
