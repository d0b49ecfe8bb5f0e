"""Inputs: how a torso reads the elements of a space, a batch `[N, ...]` at a time."""

from __future__ import annotations

from collections.abc import Callable

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces as kinds

from rlcli.errors import RlcliError
from rlcli.spaces import flatten, members, zeros
from rlcli.types import Array, ArrayTree


class Pair(kinds.Tuple):
    """The space of (observation, action): what a function of both takes."""

    def __init__(self, observation: gymnasium.Space, action: gymnasium.Space) -> None:
        """Of one environment, both."""
        super().__init__((observation, action))


def flat_reader(space: gymnasium.Space) -> Callable[[ArrayTree], Array]:
    """Observations `[N, ...]` as vectors `[N, size]` of float32.

    Choices are one-hot, and of a pair of them it is the pair: `[N, states · actions]`.
    What has several members stands in a row.
    """
    match space:
        case Pair(spaces=(kinds.Discrete() as state, kinds.Discrete() as action)):
            states, actions = flat_reader(state), flat_reader(action)
            return lambda pair: (
                states(pair[0])[:, :, None] * actions(pair[1])[:, None, :]
            ).reshape((-1, int(state.n * action.n)))
    try:
        jax.eval_shape(lambda: flatten(space, zeros(space)))
    except TypeError as error:
        raise RlcliError(
            f"a network cannot read observations of {space}",
            "it reads Discrete, MultiDiscrete, MultiBinary and Box spaces, and Tuple "
            "and Dict of such",
        ) from error
    return jax.vmap(lambda element: flatten(space, element))


def image_reader(space: gymnasium.Space) -> Callable[[ArrayTree], list[Array]]:
    """Observations as images `[N, H, W, C]`, and what is none of them `flat_reader`.

    An image is a Box of that many axes. Bytes become numbers from 0 to 1; other numbers
    stay as they are, float32.
    """
    if members(space):
        readers = {
            name: image_reader(member) for name, member in members(space).items()
        }
        return lambda obs: [
            part for name, read in readers.items() for part in read(obs[name])
        ]
    if not image_shapes(space):
        read = flat_reader(space)
        return lambda obs: [read(obs)]
    scale = 255 if space.dtype == np.uint8 else 1
    return lambda obs: [obs.astype(jnp.float32) / scale]


def image_shapes(space: gymnasium.Space) -> list[tuple[int, ...]]:
    """Of the images in a space, `[H, W, C]` each."""
    if isinstance(space, kinds.Box) and len(space.shape) == 3:
        return [space.shape]
    member_spaces = members(space).values()
    return [shape for member in member_spaces for shape in image_shapes(member)]
