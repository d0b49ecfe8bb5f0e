"""Time steps of native environments."""

import jax.numpy as jnp
import numpy as np

from rlcli.environments.native.core import make_timestep


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
