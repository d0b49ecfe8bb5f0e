"""DeepMind Control: its suite of tasks behind Gymnasium's face. Imported when used."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import gymnasium
import numpy as np
from gymnasium.wrappers import TimeLimit

from rlcli.errors import RlcliError


def make_dmc(
    domain: str,
    task: str,
    seed: int = 0,
    max_episode_steps: int = 1000,
    height: int = 84,
    width: int = 84,
    camera_id: int = 0,
) -> gymnasium.Env:
    """A task of the DeepMind Control suite (Tassa et al., 2018) as Gymnasium has it.

    https://arxiv.org/abs/1801.00690. Observations are all of the task's, one after the
    other, in one Box of float32. An episode that the task's clock or
    `max_episode_steps` ends is truncated; one that the task itself ends, terminated.

    Args:
        domain: such as `cartpole`.
        task: such as `swingup`.
        seed: of the task, until `reset` is given another.
        max_episode_steps: when an episode ends at the latest.
        height: of the pictures that `render` draws, in pixels.
        width: of these pictures.
        camera_id: the camera they are taken with.
    """
    env = _ControlEnv(domain, task, seed, (height, width), camera_id)
    return TimeLimit(env, max_episode_steps)


class _ControlEnv(gymnasium.Env):
    """One task of the suite."""

    metadata = {"render_modes": ["rgb_array"]}  # noqa: RUF012 - Gymnasium's own

    def __init__(
        self, domain: str, task: str, seed: int, size: tuple[int, int], camera: int
    ) -> None:
        self.render_mode = "rgb_array"
        self._name = domain, task
        self._size, self._camera = size, camera
        self._control = _load_task(domain, task, seed)
        self.metadata = self.metadata | {
            "render_fps": round(1 / self._control.control_timestep())
        }
        self.observation_space = _concatenate_specs(
            self._control.observation_spec().values()
        )
        self.action_space = _concatenate_specs([self._control.action_spec()])

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Begins an episode; a seed makes the task anew."""
        super().reset(seed=seed)
        if seed is not None:
            self._control = _load_task(*self._name, seed)
        return _flatten_observation(self._control.reset().observation), {}

    def step(
        self, action: np.ndarray
    ) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """One step; at a discount above 0 an episode would have gone on."""
        timestep = self._control.step(np.asarray(action, np.float64))
        is_last = timestep.last()
        terminated = is_last and timestep.discount == 0
        reward = float(timestep.reward)
        obs = _flatten_observation(timestep.observation)
        return obs, reward, terminated, is_last and not terminated, {}

    def render(self) -> np.ndarray:
        """A picture, `[height, width, 3]` of bytes."""
        height, width = self._size
        return self._control.physics.render(height, width, self._camera)

    def close(self) -> None:
        """Gives back what the simulation holds."""
        self._control.close()


def _load_task(domain: str, task: str, seed: int) -> Any:
    try:
        from dm_control import suite  # pyright: ignore[reportMissingImports] - not ours
    except ImportError as error:
        raise RlcliError(
            f"DeepMind Control cannot be imported: {error}", "`pip install dm-control`"
        ) from error
    try:
        return suite.load(domain, task, task_kwargs={"random": seed})
    except ValueError as error:
        raise RlcliError(
            f"DeepMind Control has no task `{task}` of a domain `{domain}`",
            "`dm_control.suite.ALL_TASKS` lists what there is",
        ) from error


def _concatenate_specs(specs: Iterable[Any]) -> gymnasium.spaces.Box:
    """Arrays one after the other; without bounds where a specification has none."""
    low, high = [], []
    for spec in specs:
        for bounds, name, default in [
            (low, "minimum", -np.inf),
            (high, "maximum", np.inf),
        ]:
            bound = np.broadcast_to(getattr(spec, name, default), spec.shape)
            bounds.append(bound.ravel().astype(np.float32))
    return gymnasium.spaces.Box(np.concatenate(low), np.concatenate(high))


def _flatten_observation(observation: dict[str, Any]) -> np.ndarray:
    parts = [np.ravel(part) for part in observation.values()]
    return np.concatenate(parts).astype(np.float32)
