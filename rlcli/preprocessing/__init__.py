"""Preprocessing: what becomes of an observation before a network reads it.

Belongs here: functions of observations, frame stacks, normalization.
May import: networks, and the ground.

A factory gives a `Preprocess`, a function of one observation. The only memory there is
are the last few observations, in a stack: what looks at more than one says how many.
They are stacked where observations are made, in the environment (`frame_stack`), so
that unrolls, replays, checkpoints and whoever watches have them; the rest is computed
where networks read (`network_inputs`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import gymnasium
from gymnasium import spaces as kinds

from rlcli import action_masks
from rlcli.spaces import members
from rlcli.types import ArrayTree

Function = Callable[[ArrayTree], ArrayTree]  # of one observation


class Preprocess(NamedTuple):
    """`of(space) -> space, function`: what is seen then, and how it is made.

    With `frames` it is given as many of the last observations, stacked along `axis`.
    """

    of: Callable[[gymnasium.Space], tuple[gymnasium.Space, Function]]
    frames: int = 1
    axis: int = -1


def each_member(
    of: Callable[[gymnasium.Space], tuple[gymnasium.Space, Function]],
) -> Callable[[gymnasium.Space], tuple[gymnasium.Space, Function]]:
    """`of` for every member of a Tuple or a Dict, however deep."""

    def whole(space: gymnasium.Space) -> tuple[gymnasium.Space, Function]:
        made = {name: whole(member) for name, member in members(space).items()}
        if not made:
            return of(space)
        seen = {name: each for name, (each, _) in made.items()}
        if isinstance(space, kinds.Dict):
            return kinds.Dict(seen), lambda obs: {
                name: function(obs[name]) for name, (_, function) in made.items()
            }
        return kinds.Tuple(tuple(seen.values())), lambda obs: tuple(
            function(obs[name]) for name, (_, function) in made.items()
        )

    return whole


def composed(
    steps: Sequence[Preprocess], space: gymnasium.Space
) -> tuple[gymnasium.Space, Function]:
    """One function after the other, of what is to be seen of an observation."""
    space, _ = action_masks.apart(space)
    functions = []
    for step in steps:
        space, function = step.of(space)
        functions.append(function)

    def whole(obs: ArrayTree) -> ArrayTree:
        obs = action_masks.without(obs)
        for function in functions:
            obs = function(obs)
        return obs

    return space, whole
