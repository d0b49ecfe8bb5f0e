"""Inputs: how a torso reads the elements of a space, a batch `[N, ...]` at a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces as kinds

from rlcli.errors import RlcliError
from rlcli.types import Array, ArrayTree


class Pair(kinds.Tuple):
    """The space of (observation, action): what a function of both takes."""

    def __init__(self, observation: gymnasium.Space, action: gymnasium.Space) -> None:
        """Of one environment, both."""
        super().__init__((observation, action))


def flat(space: gymnasium.Space) -> Callable[[ArrayTree], Array]:
    """Observations `[N, ...]` as vectors `[N, size]` of float32.

    Choices are one-hot, and of a pair of them it is the pair: `[N, states · actions]`.
    What has several members stands in a row.
    """
    match space:
        case kinds.Discrete():
            return lambda obs: jax.nn.one_hot(obs - int(space.start), int(space.n))
        case kinds.Box() | kinds.MultiBinary():
            size = int(np.prod(space.shape, dtype=int))
            return lambda obs: obs.reshape((-1, size)).astype(jnp.float32)
        case kinds.MultiDiscrete():
            return _one_hots(space)
        case Pair(spaces=(kinds.Discrete() as state, kinds.Discrete() as action)):
            states, actions = flat(state), flat(action)
            return lambda pair: (
                states(pair[0])[:, :, None] * actions(pair[1])[:, None, :]
            ).reshape((-1, int(state.n * action.n)))
    each = {name: flat(member) for name, member in members(space).items()}
    if not each:
        raise RlcliError(
            f"a network cannot read observations of {space}",
            "it reads Discrete, MultiDiscrete, MultiBinary and Box spaces, and Tuple "
            "and Dict of such",
        )

    def prepare(obs: ArrayTree) -> Array:
        rows = [read(obs[name]) for name, read in each.items()]
        return jnp.concatenate(rows, axis=-1)

    return prepare


def pictures(space: gymnasium.Space) -> Callable[[ArrayTree], list[Array]]:
    """Observations as images `[N, H, W, C]`, and what is none of them `flat`.

    An image is a Box of that many axes. Bytes become numbers from 0 to 1; other numbers
    stay as they are, float32.
    """
    if members(space):
        each = {name: pictures(member) for name, member in members(space).items()}
        return lambda obs: [
            part for name, read in each.items() for part in read(obs[name])
        ]
    if not image_shapes(space):
        read = flat(space)
        return lambda obs: [read(obs)]
    scale = 255 if space.dtype == np.uint8 else 1
    return lambda obs: [obs.astype(jnp.float32) / scale]


def image_shapes(space: gymnasium.Space) -> list[tuple[int, ...]]:
    """Of the images in a space, `[H, W, C]` each."""
    if isinstance(space, kinds.Box) and len(space.shape) == 3:
        return [space.shape]
    each = members(space).values()
    return [shape for member in each for shape in image_shapes(member)]


def members(space: gymnasium.Space) -> Mapping[Any, gymnasium.Space]:
    """The spaces that a Tuple or a Dict is made of, by index or name."""
    match space:
        case kinds.Tuple():
            return dict(enumerate(space.spaces))
        case kinds.Dict():
            return space.spaces
    return {}


def _one_hots(space: kinds.MultiDiscrete) -> Callable[[Array], Array]:
    counts, start = space.nvec.ravel(), space.start.ravel()
    size = len(counts)

    def prepare(obs: Array) -> Array:
        rows = obs.reshape((-1, size)) - start
        each = [jax.nn.one_hot(rows[:, i], int(n)) for i, n in enumerate(counts)]
        return jnp.concatenate(each, axis=-1)

    return prepare
