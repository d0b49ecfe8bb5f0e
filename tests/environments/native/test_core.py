"""The core of a native environment, and its time steps."""

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np

from rlcli.environments.native.bsuite.bandits import simple_bandit
from rlcli.environments.native.core import make_timestep, native_core

SPACES = gymnasium.spaces.Discrete(9), gymnasium.spaces.Discrete(2)


def test_a_timestep_is_last_exactly_where_it_terminated():
    terminated = jnp.array([False, True])
    obs = {"seen": jnp.array([3, 4])}
    timestep = make_timestep(
        obs, jnp.array([1, 2]), terminated, {"lives": jnp.array([5, 6])}
    )
    assert timestep.obs is timestep.next_obs is obs
    np.testing.assert_array_equal(timestep.last, [False, True])
    np.testing.assert_array_equal(timestep.discount, [1.0, 0.0])
    np.testing.assert_array_equal(timestep.reward, [1.0, 2.0])
    assert timestep.reward.dtype == timestep.discount.dtype == jnp.float32
    assert list(timestep.info) == ["lives"]
    assert make_timestep(obs, jnp.array([1, 2]), terminated).info == {}


def test_a_core_observes_the_states_of_its_task():
    def step(state, action):
        return state + action, 2.0, state + action >= 5, {"moved": action}

    core = native_core(lambda key: jnp.int32(3), step, lambda x: 10 * x, *SPACES)
    state, obs = core.reset(jax.random.key(0))
    assert (int(state), int(obs), core.draw(jax.random.key(0))) == (3, 30, ())
    state, timestep = core.step(state, jnp.int32(2), ())
    assert (int(state), int(timestep.next_obs), bool(timestep.last)) == (5, 50, True)
    assert (float(timestep.reward), int(timestep.info["moved"])) == (2.0, 2)


def test_a_task_may_observe_more_than_its_state_and_draw_noise():
    def begin(key):
        return jnp.int32(3), jnp.int32(7)

    def step(state, action, noise):
        return state + noise, state + action, 0.0, jnp.array(False)

    fields = {"draw": lambda key: jnp.int32(1), "render": lambda state: "drawn"}
    core = native_core(begin, step, None, *SPACES, **fields)
    state, obs = core.reset(jax.random.key(0))
    assert (int(state), int(obs), core.render(state)) == (3, 7, "drawn")
    state, timestep = core.step(state, jnp.int32(2), core.draw(jax.random.key(0)))
    assert (int(state), int(timestep.obs), bool(timestep.last)) == (4, 5, False)
    assert (timestep.info, float(timestep.discount)) == ({}, 1.0)


def test_the_number_of_actions_may_be_one_of_numpy():
    for number in (3, np.int64(3), np.uint8(3)):
        assert simple_bandit(num_actions=number).action == gymnasium.spaces.Discrete(3)
