"""Preprocessing: transforms observations before a network reads them.

Belongs here: functions of observations, frame stacks, normalization.
May import: networks, `distributions.action_masks`, and the ground.

A factory returns a `Preprocess`, a function of one observation. The only state is a
stack of recent observations, whose length `Preprocess.frames` declares. The environment
builds the stacks (`frame_stack`), so that unrolls, replays, checkpoints and evaluation
contain them. Networks compute everything else when they read observations
(`network_inputs`).

So resume, replays, tracers' `next_obs`, evaluation and images need no special case. A
stack inside the network would be correct for on-policy updaters only. Stateless
functions are computed where a torso reads its input (`Torso.input_reader`).
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import gymnasium

from rlcli.distributions import action_masks
from rlcli.spaces import join_members, members
from rlcli.types import ArrayTree

ObservationFunction = Callable[[ArrayTree], ArrayTree]  # of one observation


class Preprocess(NamedTuple):
    """A transform of observations: `build(space) -> new space, function`.

    If `frames` > 1, its input is a stack of that many observations along `axis`.
    """

    build: Callable[[gymnasium.Space], tuple[gymnasium.Space, ObservationFunction]]
    frames: int = 1
    axis: int = -1


def map_members(
    build: Callable[[gymnasium.Space], tuple[gymnasium.Space, ObservationFunction]],
) -> Callable[[gymnasium.Space], tuple[gymnasium.Space, ObservationFunction]]:
    """Applies `build` to every member of a Tuple or a Dict, recursively."""

    def build_members(
        space: gymnasium.Space,
    ) -> tuple[gymnasium.Space, ObservationFunction]:
        builds = {
            name: build_members(member) for name, member in members(space).items()
        }
        if not builds:
            return build(space)
        member_spaces = {name: member for name, (member, _) in builds.items()}
        kinds = gymnasium.spaces
        joined: Any = kinds.Dict if isinstance(space, kinds.Dict) else kinds.Tuple
        return joined(join_members(space, member_spaces)), lambda obs: join_members(
            space,
            {name: function(obs[name]) for name, (_, function) in builds.items()},
        )

    return build_members


def compose(
    steps: Sequence[Preprocess], space: gymnasium.Space
) -> tuple[gymnasium.Space, ObservationFunction]:
    """Composes the functions; the action mask is removed first."""
    space, _ = action_masks.split_mask(space)
    functions = []
    for step in steps:
        space, function = step.build(space)
        functions.append(function)

    def apply_all(obs: ArrayTree) -> ArrayTree:
        obs = action_masks.remove_mask(obs)
        for function in functions:
            obs = function(obs)
        return obs

    return space, apply_all
