"""DeepMind Control: its suite of tasks as Gymnasium environments."""

from collections.abc import Iterable
from typing import Any

import gymnasium
import numpy as np
from gymnasium.wrappers import TimeLimit

from rlcli.errors import RlcliError
from rlcli.registry.libraries import import_library


def make_dmc(
    domain: str,
    task: str,
    seed: int = 0,
    max_episode_steps: int = 1000,
    height: int = 84,
    width: int = 84,
    camera_id: int = 0,
) -> gymnasium.Env:
    """A task of the DeepMind Control suite (Tassa et al., 2018), for Gymnasium.

    https://arxiv.org/abs/1801.00690. All observations of the task are concatenated in
    one float32 Box. The time limit of the task and `max_episode_steps` truncate an
    episode; other ends of the task terminate it.

    Args:
        domain: such as `cartpole`.
        task: such as `swingup`.
        seed: seed of the task, until `reset` is called with another.
        max_episode_steps: maximum length of an episode.
        height: height of the images that `render` returns, in pixels.
        width: width of these images.
        camera_id: camera of these images.
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
        """Starts an episode; a seed creates the task again."""
        super().reset(seed=seed)
        if seed is not None:
            self._control = _load_task(*self._name, seed)
        return _flatten_observation(self._control.reset().observation), {}

    def step(
        self, action: np.ndarray
    ) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """One step. An end with a discount above 0 is a truncation."""
        timestep = self._control.step(np.asarray(action, np.float64))
        is_last = timestep.last()
        terminated = is_last and timestep.discount == 0
        reward = float(timestep.reward)
        obs = _flatten_observation(timestep.observation)
        return obs, reward, terminated, is_last and not terminated, {}

    def render(self) -> np.ndarray:
        """An image, `[height, width, 3]` uint8."""
        height, width = self._size
        return self._control.physics.render(height, width, self._camera)

    def close(self) -> None:
        """Releases the simulation."""
        self._control.close()


def _load_task(domain: str, task: str, seed: int) -> Any:
    suite: Any = import_library("dm_control.suite", "dm_control")
    try:
        return suite.load(domain, task, task_kwargs={"random": seed})
    except ValueError as error:
        raise RlcliError(
            f"DeepMind Control has no task `{task}` in domain `{domain}`",
            "`dm_control.suite.ALL_TASKS` lists all tasks",
        ) from error


def _concatenate_specs(specs: Iterable[Any]) -> gymnasium.spaces.Box:
    """Concatenates specifications; without bounds where a specification has none."""
    low, high = [], []
    for spec in specs:
        for bounds, name, limit in (low, "minimum", -np.inf), (high, "maximum", np.inf):
            bound = np.broadcast_to(getattr(spec, name, limit), spec.shape)
            bounds.append(bound.ravel().astype(np.float32))
    return gymnasium.spaces.Box(np.concatenate(low), np.concatenate(high))


def _flatten_observation(observation: dict[str, Any]) -> np.ndarray:
    parts = [np.ravel(part) for part in observation.values()]
    return np.concatenate(parts).astype(np.float32)
