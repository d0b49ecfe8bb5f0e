"""Atari: the Arcade Learning Environment's games, with the standard preprocessing.

Gymnasium's wrappers do it (`AtariPreprocessing`, `FrameStackObservation`), or ALE's own
vector, whose pictures are the same; here is what they are told. https://ale.farama.org
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec, WrapperSpec, load_env_creator
from gymnasium.vector import AutoresetMode, VectorEnv, VectorWrapper
from gymnasium.vector.utils import batch_space

from rlcli.environments.adapters.pools import ENDLESS
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
    spec: EnvSpec, changes: Mapping[str, Any] | str, limit: int | None, own: bool
) -> EnvSpec:
    """The game's spec with the standard preprocessing: wrappers, or its `own` vector's.

    Observations are uint8 `[84, 84, 4]`, the newest picture last. `limit` is the time
    limit, in the agent's steps, instead of the game's own, in frames.
    """
    name = f"environment `gymnasium/{spec.id}`"
    given = {} if isinstance(changes, str) else dict(changes)
    for key in given.keys() - STANDARD.keys():
        raise RlcliError(f"{name}: `atari` has no `{key}`", nearest(key, STANDARD))
    numbers = {**STANDARD, **given}
    if own and spec.vector_entry_point is not None:
        if changes == "raw" or numbers["scale_obs"]:
            what = "raw" if changes == "raw" else "{scale_obs: true}"
            raise RlcliError(
                f"{name}: `atari: {what}` does not go with `vectorization: own`, for "
                "ALE's vector shows nothing but small uint8 pictures",
                "`vectorization: sync` or `async` goes with it",
            )
        return _vectored(spec, numbers, limit)
    kwargs, wrappers = dict(spec.kwargs), [*spec.additional_wrappers]
    if changes != "raw":
        library("cv2", INSTALL)  # which the wrapper shrinks pictures with
        kwargs["frameskip"] = 1  # of the game itself: the wrapper skips them
        wrappers += _standard(numbers)
    if limit is not None:
        kwargs["max_num_frames_per_episode"] = 0  # none
        # Outside: the limit of `gymnasium.make` counts the frames of the game.
        wrappers += [_wrapper("TimeLimit", max_episode_steps=limit)]
    return dataclasses.replace(spec, kwargs=kwargs, additional_wrappers=tuple(wrappers))


def _vectored(spec: EnvSpec, numbers: dict[str, Any], limit: int | None) -> EnvSpec:
    """The spec with the vector of ALE's, told to do what the wrappers would."""
    skip = numbers["frame_skip"]
    kwargs = spec.kwargs | {
        "noop_max": numbers["noop_max"],
        "frameskip": skip,
        "maxpool": skip > 1,
        "img_height": numbers["screen_size"],
        "img_width": numbers["screen_size"],
        "episodic_life": numbers["terminal_on_life_loss"],
        "grayscale": numbers["grayscale_obs"],
        "stack_num": numbers["stack"],
        "reward_clipping": False,
        "use_fire_reset": False,
        "autoreset_mode": AutoresetMode.SAME_STEP,
    }
    if limit is not None:  # in frames, without those of the beginning
        kwargs["max_num_frames_per_episode"] = min(limit * skip, ENDLESS)
    entry = functools.partial(_newest_last, spec.vector_entry_point)
    return dataclasses.replace(spec, kwargs=kwargs, vector_entry_point=entry)


def _newest_last(entry: Any, **keywords: Any) -> VectorEnv:
    """The vector that an entry point makes, with axes in the order of the wrappers."""
    make: Any = load_env_creator(entry) if isinstance(entry, str) else entry
    return _NewestLast(make(**keywords))


class _NewestLast(VectorWrapper):
    """A vector that stacks pictures in front, `[4, 84, 84]`, with them behind."""

    def __init__(self, env: VectorEnv) -> None:
        super().__init__(env)
        assert env.single_observation_space.shape is not None  # a Box of pictures
        stack, height, width, *colours = env.single_observation_space.shape
        channels = math.prod([stack, *colours])
        shape = (height, width) if channels == 1 else (height, width, channels)
        self.single_observation_space = gymnasium.spaces.Box(0, 255, shape, np.uint8)
        self.observation_space = batch_space(
            self.single_observation_space, env.num_envs
        )

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """As the vector's."""
        obs, infos = self.env.reset(seed=seed, options=options)
        return self._moved(obs), infos

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """As the vector's."""
        obs, reward, terminated, truncated, infos = self.env.step(actions)
        if "final_obs" in infos:
            infos = infos | {"final_obs": self._moved(infos["final_obs"])}
        return self._moved(obs), reward, terminated, truncated, infos

    def _moved(self, obs: np.ndarray) -> np.ndarray:
        return np.moveaxis(obs, 1, 3).reshape(self.observation_space.shape)


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
