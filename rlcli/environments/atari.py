"""Atari: the Arcade Learning Environment's games, with the standard preprocessing.

Gymnasium's wrappers do it (`AtariPreprocessing`, `FrameStackObservation`); here is what
they are told. https://ale.farama.org
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec, WrapperSpec

from rlcli.errors import RlcliError, nearest
from rlcli.libraries import library

INSTALL = "rlcli[atari]"
NAMESPACE = "ALE"
STANDARD: Mapping[str, Any] = {
    "noop_max": 30,  # an episode begins after 1 to so many steps of no action
    "frame_skip": 4,  # an action is held for so long; the last two pictures' maximum
    "screen_size": 84,
    "terminal_on_life_loss": False,
    "grayscale_obs": True,
    "scale_obs": False,
    "stack": 4,  # pictures of an observation
}


def registered() -> None:
    """Makes Gymnasium know the games."""
    gymnasium.register_envs(library("ale_py", INSTALL))


def preprocessed(
    spec: EnvSpec,
    changes: Mapping[str, Any] | str,
    options: dict[str, Any],
    steps: int | None,
) -> EnvSpec:
    """The game's spec with the standard wrappers, and `options` that go with them.

    Observations are uint8 `[84, 84, 4]`, the newest picture last. The game itself skips
    no frames, for the wrapper does. `steps` is the time limit, in the agent's steps.
    """
    name = f"environment `gymnasium/{spec.id}`"
    given = {} if isinstance(changes, str) else dict(changes)
    for key in given.keys() - STANDARD.keys():
        raise RlcliError(f"{name}: `atari` has no `{key}`", nearest(key, STANDARD))
    wrappers = [] if changes == "raw" else _standard({**STANDARD, **given})
    if wrappers:
        options.setdefault("frameskip", 1)
        library("cv2", INSTALL)  # which the wrapper shrinks pictures with
    if steps is not None:
        # Outside: the limit of `gymnasium.make` counts the frames of the game.
        wrappers += [_wrapper("TimeLimit", max_episode_steps=steps)]
    wrappers = [*spec.additional_wrappers, *wrappers]
    return dataclasses.replace(spec, additional_wrappers=tuple(wrappers))


def _standard(numbers: dict[str, Any]) -> list[WrapperSpec]:
    """The wrappers; all of them functions that can be sent to another process."""
    stack = numbers.pop("stack")
    wrappers = [_wrapper("AtariPreprocessing", **numbers)]
    if stack == 1:
        return wrappers
    side = (numbers["screen_size"],) * 2
    shape = (*side, stack) if numbers["grayscale_obs"] else (*side, stack, 3)
    scaled = numbers["scale_obs"]
    high, dtype = (1.0, np.float32) if scaled else (255, np.uint8)
    wrappers += [
        _wrapper("FrameStackObservation", stack_size=stack),
        _wrapper(
            "TransformObservation",
            func=functools.partial(np.moveaxis, source=0, destination=2),
            observation_space=gymnasium.spaces.Box(0, high, shape, dtype),
        ),
    ]
    if len(shape) == 4:
        wrappers += [_wrapper("ReshapeObservation", shape=(*side, 3 * stack))]
    return wrappers


def _wrapper(name: str, **keywords: Any) -> WrapperSpec:
    return WrapperSpec(name, f"gymnasium.wrappers:{name}", keywords)
