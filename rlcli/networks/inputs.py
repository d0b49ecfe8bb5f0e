"""Inputs: from observations of a space, in batches `[N, ...]`, to inputs of a torso."""

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
    """The space of (observation, action), the input of a function of both."""

    def __init__(self, observation: gymnasium.Space, action: gymnasium.Space) -> None:
        """`observation` and `action` are the spaces of one environment."""
        super().__init__((observation, action))


def flat_reader(space: gymnasium.Space) -> Callable[[ArrayTree], Array]:
    """Returns a function from observations `[N, ...]` to float32 vectors `[N, size]`.

    Discrete values are one-hot. A pair of Discrete values is one-hot over all pairs:
    `[N, states · actions]`. Several members are concatenated. An observation without
    numbers, such as that of a Box of shape (0,), is read as a 0: layers need an input.
    """
    match space:
        case Pair(spaces=(kinds.Discrete() as state, kinds.Discrete() as action)):
            states, actions = flat_reader(state), flat_reader(action)
            return lambda pair: (
                states(pair[0])[:, :, None] * actions(pair[1])[:, None, :]
            ).reshape((-1, int(state.n * action.n)))
    try:
        shape = jax.eval_shape(lambda: flatten(space, zeros(space))).shape
    except TypeError as error:
        raise RlcliError(
            f"a network cannot read observations of {space}",
            "it reads Discrete, MultiDiscrete, MultiBinary and Box spaces, and Tuple "
            "and Dict spaces of these",
        ) from error
    if shape == (0,):
        return lambda obs: jnp.zeros((len(jax.tree.leaves(obs)[0]), 1))
    return jax.vmap(lambda element: flatten(space, element))


def image_reader(space: gymnasium.Space) -> Callable[[ArrayTree], list[Array]]:
    """Returns a function from observations to images `[N, H, W, C]` and flat vectors.

    An image is a Box with three axes. uint8 values are scaled to numbers from 0 to 1;
    other values are only converted to float32. `flat_reader` reads all other members.
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

    def read_image(obs: Array) -> list[Array]:
        scale = 255 if obs.dtype == np.uint8 else 1  # normalized images are floats
        return [obs.astype(jnp.float32) / scale]

    return read_image


def image_shapes(space: gymnasium.Space) -> list[tuple[int, ...]]:
    """The shapes `[H, W, C]` of the images in a space."""
    if isinstance(space, kinds.Box) and len(space.shape) == 3 and 0 not in space.shape:
        return [space.shape]
    member_spaces = members(space).values()
    return [shape for member in member_spaces for shape in image_shapes(member)]
