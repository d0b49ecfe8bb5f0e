"""The functions that recipes name under `preprocess:`."""

from __future__ import annotations

import gymnasium
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces as kinds

from rlcli.errors import RlcliError
from rlcli.preprocessing import ObservationFunction, Preprocess, map_members
from rlcli.registry import register
from rlcli.spaces import bounds, describe
from rlcli.spaces import flatten as flattened
from rlcli.types import Array, Count


@register("preprocess")
def one_hot() -> Preprocess:
    """Choices as vectors of zeros with a one; several choices side by side.

    What is no choice stays as it is.
    """

    def build(space: gymnasium.Space) -> tuple[gymnasium.Space, ObservationFunction]:
        if isinstance(space, kinds.Discrete | kinds.MultiDiscrete):
            return _flat_vector(space)
        return space, lambda obs: obs

    return Preprocess(map_members(build))


@register("preprocess")
def flatten() -> Preprocess:
    """Everything as one vector of float32, choices one-hot, members side by side."""
    return Preprocess(_flat_vector)


@register("preprocess")
def scale() -> Preprocess:
    """Numbers between two bounds as shares of the way: (x − low) / (high − low)."""

    def build(space: gymnasium.Space) -> tuple[gymnasium.Space, ObservationFunction]:
        if not isinstance(space, kinds.Box):
            return space, lambda obs: obs
        low, high = (bound.astype(np.float32) for bound in bounds(space))
        if not np.all(np.isfinite(high - low) & (high > low)):
            raise _refusal("scale", space, "a Box with bounds, one above the other")
        shares = kinds.Box(0.0, 1.0, space.shape, np.float32)
        return shares, lambda obs: (obs.astype(jnp.float32) - low) / (high - low)

    return Preprocess(map_members(build))


@register("preprocess")
def member(*, of: str) -> Preprocess:
    """One member of a Dict, by its name; the others are not seen."""

    def build(space: gymnasium.Space) -> tuple[gymnasium.Space, ObservationFunction]:
        if not isinstance(space, kinds.Dict) or of not in space.spaces:
            raise _refusal("member", space, f"a Dict with a member `{of}`")
        return space.spaces[of], lambda obs: obs[of]

    return Preprocess(build)


@register("preprocess")
def channels_last() -> Preprocess:
    """Images `[C, H, W]` as `[H, W, C]`, which is how `cnn` takes them."""

    def build(space: gymnasium.Space) -> tuple[gymnasium.Space, ObservationFunction]:
        if not isinstance(space, kinds.Box) or len(space.shape) != 3:
            return space, lambda obs: obs
        low, high = (np.moveaxis(bound, 0, -1) for bound in (space.low, space.high))
        moved_space = kinds.Box(low, high, low.shape, space.dtype.type)
        return moved_space, lambda obs: jnp.moveaxis(obs, 0, -1)

    return Preprocess(map_members(build))


@register("preprocess")
def frame_stack(*, frames: Count = 4, axis: int = -1) -> Preprocess:
    """The last few observations, the newest last (Mnih et al., 2015).

    They are joined along `axis` of theirs; an image `[H, W]` is one of one channel, a
    number a vector of one, and of a choice there are several. What an episode begins
    with stands there several times. The replay `frames` keeps each of them once.
    """
    return Preprocess(lambda space: (space, lambda obs: obs), frames, axis)


@register("preprocess")
def diff_transform(*, frames: Count = 3) -> Preprocess:
    """Of the last few observations the newest, how it changes, how that changes …

        xₜ₋ₖ for k < n  ↦  …, xₜ − 2 xₜ₋₁ + xₜ₋₂, xₜ − xₜ₋₁, xₜ

    joined along the last axis, the newest last: position, velocity and acceleration
    where positions are seen alone (`rlcli.utils.diff_transform`).
    """

    def build(space: gymnasium.Space) -> tuple[gymnasium.Space, ObservationFunction]:
        if not isinstance(space, kinds.Box):
            raise _refusal("diff_transform", space, "numbers; `one_hot` makes some")
        depth = space.shape[-1] // frames
        free = kinds.Box(-np.inf, np.inf, space.shape, np.float32)

        def function(obs: Array) -> Array:
            rows = obs.astype(jnp.float32).reshape((*obs.shape[:-1], frames, depth))
            differences = []
            for _ in range(frames):
                differences.insert(0, rows[..., -1, :])
                rows = jnp.diff(rows, axis=-2)
            return jnp.concatenate(differences, axis=-1)

        return free, function

    return Preprocess(map_members(build), frames)


def _flat_vector(space: gymnasium.Space) -> tuple[gymnasium.Space, ObservationFunction]:
    """As networks read what they are given nothing else for."""
    low, high = _flat_bounds(space)
    vector = kinds.Box(low, high, low.shape, np.float32)
    return vector, lambda obs: flattened(space, obs)


def _flat_bounds(space: gymnasium.Space) -> tuple[np.ndarray, np.ndarray]:
    flat_space = gymnasium.spaces.flatten_space(space)
    if not isinstance(flat_space, kinds.Box):
        raise _refusal("flatten", space, "a space of fixed size")
    with np.errstate(over="ignore"):  # beyond float32 is infinite
        return flat_space.low.astype(np.float32), flat_space.high.astype(np.float32)


def _refusal(name: str, space: gymnasium.Space, requirement: str) -> RlcliError:
    return RlcliError(
        f"`preprocess` cannot `{name}` what is {describe(space)}",
        f"it takes {requirement}",
    )
