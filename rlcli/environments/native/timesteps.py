"""Answers: how a core of ours replies to an action."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import jax.numpy as jnp

from rlcli.types import Array, ArrayTree, TimeStep

NO_INFO: Mapping[str, Array] = MappingProxyType({})


def make_timestep(
    obs: ArrayTree,
    reward: Array,
    terminated: Array,
    info: Mapping[str, Array] = NO_INFO,
) -> TimeStep:
    """A core's time step: `last` where it terminated, and there the discount is 0.

    A core knows no time limit and begins no episode, so `obs` is `next_obs`.
    """
    return TimeStep(
        obs=obs,
        next_obs=obs,
        reward=jnp.asarray(reward, jnp.float32),
        discount=1.0 - terminated.astype(jnp.float32),
        last=terminated,
        info=dict(info),
    )
