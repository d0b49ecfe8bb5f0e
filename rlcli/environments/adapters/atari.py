"""Atari: games of the Arcade Learning Environment (ALE), with standard preprocessing.

This module configures Gymnasium's wrappers (`AtariPreprocessing`,
`FrameStackObservation`) or ALE's own vector, which returns the same frames.
https://ale.farama.org
"""

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

from rlcli.environments.adapters.pools import NO_TIME_LIMIT
from rlcli.errors import RlcliError, suggest
from rlcli.registry.libraries import import_library

EXTRA = "atari"
NAMESPACE = "ALE"
STANDARD_PREPROCESSING: Mapping[str, Any] = {
    "noop_max": 30,  # an episode starts with 1 to `noop_max` no-op actions
    "frame_skip": 4,  # an action is repeated; maximum over the last two frames
    "screen_size": 84,
    "terminal_on_life_loss": False,
    "grayscale_obs": True,
    "scale_obs": False,
    "stack": 4,  # frames of an observation
}


def register_games() -> None:
    """Registers the games with Gymnasium."""
    gymnasium.register_envs(import_library("ale_py", EXTRA))


def preprocess_spec(
    spec: EnvSpec, changes: Mapping[str, Any] | str, limit: int | None, use_native: bool
) -> EnvSpec:
    """Returns the game's spec with the standard preprocessing.

    Wrappers do the preprocessing, or ALE's own vector if `use_native`. Observations are
    uint8 `[84, 84, 4]`, the newest frame last. `limit` is the time limit in steps of
    the agent; it replaces the game's limit, which is in frames.
    """
    name = f"environment `gymnasium/{spec.id}`"
    options = {} if isinstance(changes, str) else dict(changes)
    for key in options.keys() - STANDARD_PREPROCESSING.keys():
        raise RlcliError(
            f"{name}: `atari` has no `{key}`", suggest(key, STANDARD_PREPROCESSING)
        )
    numbers = {**STANDARD_PREPROCESSING, **options}
    if use_native and spec.vector_entry_point is not None:
        if changes == "raw" or numbers["scale_obs"]:
            value = "raw" if changes == "raw" else "{scale_obs: true}"
            raise RlcliError(
                f"{name}: `atari: {value}` does not work with `vectorization: own`, "
                "since ALE's vector only returns preprocessed uint8 frames",
                "use `vectorization: sync` or `async`",
            )
        return _vectorize_spec(spec, numbers, limit)
    kwargs, wrappers = dict(spec.kwargs), [*spec.additional_wrappers]
    if changes != "raw":
        import_library("cv2", EXTRA)  # the wrapper resizes frames with it
        kwargs["frameskip"] = 1  # the wrapper skips frames
        wrappers += _standard_wrappers(numbers)
    if limit is not None:
        kwargs["max_num_frames_per_episode"] = 0  # no limit
        # The outermost wrapper: the limit of `gymnasium.make` counts frames.
        wrappers += [_wrapper_spec("TimeLimit", max_episode_steps=limit)]
    return dataclasses.replace(spec, kwargs=kwargs, additional_wrappers=tuple(wrappers))


def _vectorize_spec(
    spec: EnvSpec, numbers: dict[str, Any], limit: int | None
) -> EnvSpec:
    """Returns the spec with ALE's vector, configured to match the wrappers."""
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
    if limit is not None:  # in frames, excluding the initial no-op steps
        kwargs["max_num_frames_per_episode"] = min(limit * skip, NO_TIME_LIMIT)
    entry = functools.partial(_make_newest_last, spec.vector_entry_point)
    return dataclasses.replace(spec, kwargs=kwargs, vector_entry_point=entry)


def _make_newest_last(entry: Any, **keywords: Any) -> VectorEnv:
    """Creates the vector of an entry point, with axes in the order of the wrappers."""
    make: Any = load_env_creator(entry) if isinstance(entry, str) else entry
    return _NewestFrameLast(make(**keywords))


class _NewestFrameLast(VectorWrapper):
    """Moves the stack axis of a vector from first, `[4, 84, 84]`, to last."""

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
        obs, infos = self.env.reset(seed=seed, options=options)
        return self._move_frames_last(obs), infos

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        obs, reward, terminated, truncated, infos = self.env.step(actions)
        if "final_obs" in infos:
            infos = infos | {"final_obs": self._move_frames_last(infos["final_obs"])}
        return self._move_frames_last(obs), reward, terminated, truncated, infos

    def _move_frames_last(self, obs: np.ndarray) -> np.ndarray:
        return np.moveaxis(obs, 1, 3).reshape(self.observation_space.shape)


def _standard_wrappers(numbers: dict[str, Any]) -> list[WrapperSpec]:
    """Returns the specs of the wrappers, all of them picklable."""
    stack = numbers.pop("stack")
    wrappers = [_wrapper_spec("AtariPreprocessing", **numbers)]
    if stack == 1:
        return wrappers
    side = (numbers["screen_size"],) * 2
    shape = (*side, stack) if numbers["grayscale_obs"] else (*side, stack, 3)
    is_scaled = numbers["scale_obs"]
    high, dtype = (1.0, np.float32) if is_scaled else (255, np.uint8)
    wrappers += [
        _wrapper_spec("FrameStackObservation", stack_size=stack),
        _wrapper_spec(
            "TransformObservation",
            func=functools.partial(np.moveaxis, source=0, destination=2),
            observation_space=gymnasium.spaces.Box(0, high, shape, dtype),
        ),
    ]
    if len(shape) == 4:
        wrappers += [_wrapper_spec("ReshapeObservation", shape=(*side, 3 * stack))]
    return wrappers


def _wrapper_spec(name: str, **keywords: Any) -> WrapperSpec:
    return WrapperSpec(name, f"gymnasium.wrappers:{name}", keywords)
