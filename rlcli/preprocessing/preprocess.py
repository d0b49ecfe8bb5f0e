"""The preprocessing functions: parts for `preprocess:` in a recipe."""

from typing import Annotated

import gymnasium
import jax.numpy as jnp
import numpy as np
from annotated_types import Ge
from gymnasium import spaces as kinds

from rlcli.errors import RlcliError
from rlcli.preprocessing import ObservationFunction, Preprocess, map_members
from rlcli.registry import register
from rlcli.spaces import bounds, describe
from rlcli.spaces import flatten as flattened
from rlcli.types import Array, Count


@register("preprocess")
def one_hot() -> Preprocess:
    """One-hot encoding of discrete observations; several are concatenated.

    Other observations are unchanged.
    """

    def build(space: gymnasium.Space) -> tuple[gymnasium.Space, ObservationFunction]:
        if isinstance(space, kinds.Discrete | kinds.MultiDiscrete):
            return _flat_vector(space)
        return space, lambda obs: obs

    return Preprocess(map_members(build))


@register("preprocess")
def flatten() -> Preprocess:
    """Flattens an observation into one float32 vector; discrete values are one-hot."""
    return Preprocess(_flat_vector)


@register("preprocess")
def scale() -> Preprocess:
    """Min-max scaling to [0, 1]: (x − low) / (high − low)."""

    def build(space: gymnasium.Space) -> tuple[gymnasium.Space, ObservationFunction]:
        if not isinstance(space, kinds.Box):
            return space, lambda obs: obs
        low, high = (bound.astype(np.float32) for bound in bounds(space))
        with np.errstate(over="ignore"):  # from the lowest to the largest float
            has_width = np.isfinite(high - low) & (high > low)
        if not np.all(has_width):
            raise _refusal("scale", space, "a Box with finite bounds, low < high")
        unit_box = kinds.Box(0.0, 1.0, space.shape, np.float32)
        return unit_box, lambda obs: (obs.astype(jnp.float32) - low) / (high - low)

    return Preprocess(map_members(build))


@register("preprocess")
def member(*, of: str | list[str]) -> Preprocess:
    """Selects a member of a Dict by name, or a Dict of several; drops the others."""
    names = [of] if isinstance(of, str) else of
    if not names:
        raise RlcliError("`member` selects nothing", "name a member: `of: position`")

    def build(space: gymnasium.Space) -> tuple[gymnasium.Space, ObservationFunction]:
        known = space.spaces if isinstance(space, kinds.Dict) else {}
        if missing := [name for name in names if name not in known]:
            raise _refusal("member", space, f"a Dict with a member `{missing[0]}`")
        if isinstance(of, str):
            return known[of], lambda obs: obs[of]
        selected = kinds.Dict({name: known[name] for name in names})
        return selected, lambda obs: {name: obs[name] for name in names}

    return Preprocess(build)


@register("preprocess")
def entries(*, of: list[Annotated[int, Ge(0)]]) -> Preprocess:
    """Selects entries of an array by their indices along its last axis.

    With `of: [0, 2]`, CartPole shows positions without velocities.
    """
    if not of:
        raise RlcliError("`entries` selects nothing", "list indices: `of: [0, 2]`")

    def build(space: gymnasium.Space) -> tuple[gymnasium.Space, ObservationFunction]:
        if not isinstance(space, kinds.Box) or space.shape[-1:] <= (max(of),):
            requirement = f"a Box with over {max(of)} entries along its last axis"
            raise _refusal("entries", space, requirement)
        index = np.array(of)
        low, high = (bound[..., index] for bound in (space.low, space.high))
        selected = kinds.Box(low, high, low.shape, space.dtype.type)
        return selected, lambda obs: obs[..., index]

    return Preprocess(map_members(build))


@register("preprocess")
def channels_last() -> Preprocess:
    """Transposes images `[C, H, W]` to `[H, W, C]`, the layout that `cnn` expects."""

    def build(space: gymnasium.Space) -> tuple[gymnasium.Space, ObservationFunction]:
        if not isinstance(space, kinds.Box) or len(space.shape) != 3:
            return space, lambda obs: obs
        low, high = (np.moveaxis(bound, 0, -1) for bound in (space.low, space.high))
        moved_space = kinds.Box(low, high, low.shape, space.dtype.type)
        return moved_space, lambda obs: jnp.moveaxis(obs, 0, -1)

    return Preprocess(map_members(build))


@register("preprocess")
def frame_stack(*, frames: Count = 4, axis: int = -1) -> Preprocess:
    """Frame stacking: the last few observations, the newest last (Mnih et al., 2015).

    Frames are concatenated along `axis`. An image `[H, W]` gets a channel axis, a
    scalar becomes a vector, and a Discrete a MultiDiscrete. The first observation of an
    episode fills the whole stack. The replay `frames` stores each frame once.
    """
    return Preprocess(lambda space: (space, lambda obs: obs), frames, axis)


@register("preprocess")
def diff_transform(*, frames: Count = 3) -> Preprocess:
    """Finite differences of the last few observations.

        xₜ₋ₖ for k < n  ↦  …, xₜ − 2 xₜ₋₁ + xₜ₋₂, xₜ − xₜ₋₁, xₜ

    Concatenated along the last axis, the newest observation last: acceleration,
    velocity and position if observations are positions (`rlcli.utils.diff_transform`).
    """

    def build(space: gymnasium.Space) -> tuple[gymnasium.Space, ObservationFunction]:
        if not isinstance(space, kinds.Box):
            raise _refusal(
                "diff_transform", space, "a Box; `one_hot` converts discrete values"
            )
        depth = space.shape[-1] // frames
        unbounded = kinds.Box(-np.inf, np.inf, space.shape, np.float32)

        def function(obs: Array) -> Array:
            rows = obs.astype(jnp.float32).reshape((*obs.shape[:-1], frames, depth))
            differences = []
            for _ in range(frames):
                differences.insert(0, rows[..., -1, :])
                rows = jnp.diff(rows, axis=-2)
            return jnp.concatenate(differences, axis=-1)

        return unbounded, function

    return Preprocess(map_members(build), frames)


def _flat_vector(space: gymnasium.Space) -> tuple[gymnasium.Space, ObservationFunction]:
    """Flattens an observation, the default input of networks."""
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
        f"`preprocess` cannot apply `{name}` to {describe(space)}",
        f"`{name}` takes {requirement}",
    )
