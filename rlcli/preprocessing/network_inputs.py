"""Reading: what networks make of an observation before anything else."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import gymnasium
import jax

from rlcli.networks.inputs import Pair
from rlcli.networks.torsos import Torso
from rlcli.preprocessing import Function, Preprocess, composed
from rlcli.types import ArrayTree


def prepared(torso: Torso, steps: Sequence[Preprocess]) -> Torso:
    """A torso that reads what the functions make of observations."""

    def reads(space: gymnasium.Space) -> Callable[[ArrayTree], ArrayTree]:
        seen, make = _batched(steps, space)
        read = torso.reads(seen)
        return lambda obs: read(make(obs))

    return torso._replace(reads=reads)


def forwarded(
    forward: Callable, steps: Sequence[Preprocess], space: gymnasium.Space
) -> Callable:
    """A user's own forward pass, given what the functions make of observations."""
    _, make = _batched(steps, space)
    if isinstance(space, Pair):
        return lambda *pair: forward(*make(pair))
    return lambda obs: forward(make(obs))


def _batched(
    steps: Sequence[Preprocess], space: gymnasium.Space
) -> tuple[gymnasium.Space, Function]:
    """The functions for a batch `[N, ...]` of observations, or of pairs."""
    if isinstance(space, Pair):
        shown, action = space.spaces
        seen, function = composed(steps, shown)
        many = jax.vmap(function)
        return Pair(seen, action), lambda pair: (many(pair[0]), pair[1])
    seen, function = composed(steps, space)
    return seen, jax.vmap(function)
