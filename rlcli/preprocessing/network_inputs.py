"""Network inputs: networks preprocess observations before their first layer."""

from collections.abc import Callable, Sequence

import gymnasium
import jax

from rlcli.networks.inputs import Pair
from rlcli.networks.torsos import Torso
from rlcli.preprocessing import ObservationFunction, Preprocess, compose
from rlcli.types import ArrayTree


def prepare_torso(torso: Torso, steps: Sequence[Preprocess]) -> Torso:
    """Returns the torso with preprocessing in front of its input reader."""

    def input_reader(space: gymnasium.Space) -> Callable[[ArrayTree], ArrayTree]:
        new_space, preprocess = _batch_preprocessing(steps, space)
        read = torso.input_reader(new_space)
        return lambda obs: read(preprocess(obs))

    return torso._replace(input_reader=input_reader)


def prepare_forward_pass(
    forward: Callable, steps: Sequence[Preprocess], space: gymnasium.Space
) -> Callable:
    """Returns a user's forward pass with preprocessing in front of it."""
    _, preprocess = _batch_preprocessing(steps, space)
    if isinstance(space, Pair):
        return lambda *pair: forward(*preprocess(pair))
    return lambda obs: forward(preprocess(obs))


def preprocess_space(
    steps: Sequence[Preprocess], space: gymnasium.Space
) -> gymnasium.Space:
    """The space of preprocessed observations, or of pairs with them."""
    return _batch_preprocessing(steps, space)[0]


def _batch_preprocessing(
    steps: Sequence[Preprocess], space: gymnasium.Space
) -> tuple[gymnasium.Space, ObservationFunction]:
    """Composes the functions for a batch `[N, ...]` of observations or pairs."""
    if isinstance(space, Pair):
        visible, action = space.spaces
        new_space, function = compose(steps, visible)
        batched_function = jax.vmap(function)
        return Pair(new_space, action), lambda pair: (
            batched_function(pair[0]),
            pair[1],
        )
    new_space, function = compose(steps, space)
    return new_space, jax.vmap(function)
