"""Time steps: the `TimeStep` that a native environment returns."""

from collections.abc import Mapping

import jax.numpy as jnp

from rlcli.types import Array, ArrayTree, TimeStep

NO_INFO: Mapping[str, Array] = {}


def make_timestep(
    obs: ArrayTree,
    reward: Array,
    terminated: Array,
    info: Mapping[str, Array] = NO_INFO,
) -> TimeStep:
    """Builds a `TimeStep`: `last` is `terminated`, and `discount` is 0 there.

    A native environment has no time limit and does not reset itself, so `obs` equals
    `next_obs`.
    """
    return TimeStep(
        obs=obs,
        next_obs=obs,
        reward=jnp.asarray(reward, jnp.float32),
        discount=1.0 - terminated.astype(jnp.float32),
        last=terminated,
        info=dict(info),
    )
