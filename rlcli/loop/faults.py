"""Faults: invalid timesteps of environments, recorded by the training loop.

A fault is an observation or a reward that is not finite, or an observation beyond the
bounds of its space. The loop records the first fault of every environment, so that an
error can name the environment that made training fail.
"""

import functools
import operator
from typing import Any, NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np

from rlcli.spaces import bounds, dtype, members
from rlcli.types import Array, ArrayTree, Environment, TimeStep

NONE = -1  # no fault so far


class Faults(NamedTuple):
    """The first fault of each environment, int32 `[B]`; `NONE` before it.

    `not_finite` is n for the reward of step n and −2 − n for the observation of step n,
    where step 0 is the first reset. `outside` is n for an observation of step n beyond
    the bounds of its space; it is recorded for host environments only.
    """

    not_finite: Array
    outside: Array


class Fault(NamedTuple):
    """One fault, decoded."""

    environment: int  # index among the environments of the seed
    step: int  # of each environment; 0 for the first reset
    what: str  # "an observation" or "a reward"


def begin_faults(environment: Environment, obs: ArrayTree) -> Faults:
    """The faults of the first observations `[B, ...]`."""
    batch = environment.num_envs
    not_finite = jnp.where(is_finite(obs, batch), NONE, -2).astype(jnp.int32)
    outside = jnp.where(_is_outside(environment, obs), 0, NONE).astype(jnp.int32)
    return Faults(not_finite, outside)


def update_faults(
    faults: Faults,
    environment: Environment,
    action: ArrayTree,
    timestep: TimeStep,
    step: Array,
) -> Faults:
    """The faults after step number `step`, counted from 1.

    The result of an action that is not finite is not a fault of the environment.
    """
    batch = timestep.reward.shape[0]
    observations = (timestep.obs, timestep.next_obs)
    code = jnp.where(jnp.isfinite(timestep.reward), NONE, step)
    code = jnp.where(is_finite(observations, batch), code, -2 - step)
    is_open = faults.not_finite == NONE
    is_open &= is_finite(action, batch)
    not_finite = jnp.where(is_open, code, faults.not_finite)
    if environment.pure:
        return Faults(not_finite, faults.outside)
    is_outside = functools.reduce(
        operator.or_, [_is_outside(environment, obs) for obs in observations]
    )
    is_first = is_outside & (faults.outside == NONE)
    return Faults(not_finite, jnp.where(is_first, step, faults.outside))


def first_not_finite(codes: np.ndarray) -> Fault | None:
    """The earliest fault among the codes `[B]` of `Faults.not_finite`."""
    steps = np.where(codes < NONE, -2 - codes, codes)
    index = _earliest(codes, steps)
    if index is None:
        return None
    what = "an observation" if codes[index] < NONE else "a reward"
    return Fault(index, int(steps[index]), what)


def first_outside(codes: np.ndarray) -> Fault | None:
    """The earliest fault among the codes `[B]` of `Faults.outside`."""
    index = _earliest(codes, codes)
    return None if index is None else Fault(index, int(codes[index]), "an observation")


def _earliest(codes: np.ndarray, steps: np.ndarray) -> int | None:
    indices = np.flatnonzero(codes != NONE)
    return int(indices[np.argmin(steps[indices])]) if len(indices) else None


def is_finite(tree: ArrayTree, batch: int) -> Array:
    """Whether all floats of a tree `[B, ...]` are finite: `[B]`."""
    finite = [
        jnp.all(jnp.isfinite(leaf), axis=tuple(range(1, jnp.ndim(leaf))))
        for leaf in jax.tree.leaves(tree)
        if jnp.issubdtype(jnp.result_type(leaf), jnp.inexact)
    ]
    return functools.reduce(operator.and_, finite, jnp.ones(batch, bool))


def _has_bounds(space: gymnasium.Space) -> bool:
    """Whether an array of the space's dtype can lie beyond the space's bounds."""
    element_dtype = dtype(space)
    if element_dtype.kind == "b":
        return False
    minimum, maximum = (-np.inf, np.inf)
    if element_dtype.kind != "f":
        minimum, maximum = np.iinfo(element_dtype).min, np.iinfo(element_dtype).max
    low, high = bounds(space)
    return bool(np.any(low > minimum) or np.any(high < maximum))


def _is_outside(environment: Environment, obs: ArrayTree) -> Array:
    """Which observations `[B, ...]` lie beyond the bounds: `[B]`. A NaN does not.

    Always false for a pure environment: in the compiled loop the comparison would cost
    time, whereas on the host it hides behind the dispatch.
    """
    if environment.pure:
        return jnp.zeros(environment.num_envs, bool)
    return _is_beyond(environment.observation, obs, environment.num_envs)


def _is_beyond(space: gymnasium.Space, obs: Any, batch: int) -> Array:
    if inner := members(space):
        flags = [_is_beyond(member, obs[name], batch) for name, member in inner.items()]
        return functools.reduce(operator.or_, flags)
    if not _has_bounds(space):
        return jnp.zeros(batch, bool)
    low, high = bounds(space)
    return jnp.any((obs < low) | (obs > high), axis=tuple(range(1, obs.ndim)))
