"""Reading: what networks make of an observation before anything else."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import gymnasium
import jax

from rlcli.networks.inputs import Pair
from rlcli.networks.torsos import Torso
from rlcli.preprocessing import ObservationFunction, Preprocess, compose
from rlcli.types import ArrayTree


def prepare_torso(torso: Torso, steps: Sequence[Preprocess]) -> Torso:
    """A torso that reads what the functions make of observations."""

    def reads(space: gymnasium.Space) -> Callable[[ArrayTree], ArrayTree]:
        new_space, make = _batch_preprocessing(steps, space)
        read = torso.input_reader(new_space)
        return lambda obs: read(make(obs))

    return torso._replace(input_reader=reads)


def prepare_forward_pass(
    forward: Callable, steps: Sequence[Preprocess], space: gymnasium.Space
) -> Callable:
    """A user's own forward pass, given what the functions make of observations."""
    _, make = _batch_preprocessing(steps, space)
    if isinstance(space, Pair):
        return lambda *pair: forward(*make(pair))
    return lambda obs: forward(make(obs))


def _batch_preprocessing(
    steps: Sequence[Preprocess], space: gymnasium.Space
) -> tuple[gymnasium.Space, ObservationFunction]:
    """The functions for a batch `[N, ...]` of observations, or of pairs."""
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
