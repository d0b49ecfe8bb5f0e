"""To Gymnasium: rlcli environments behind Gymnasium's interface."""

import operator
import reprlib
from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium
import jax
import numpy as np
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from rlcli.environments.observation_image import with_render
from rlcli.environments.rgb_image import to_rgb
from rlcli.spaces import map_leaves
from rlcli.types import ArrayTree, Core, Environment

_FPS = 50
_STEP_AFTER_END = (  # the warning of Gymnasium itself
    "You are calling 'step()' even though this environment has already returned "
    "terminated = True. You should always call 'reset()' once you receive "
    "'terminated = True' -- any further steps are undefined behavior."
)


def to_gymnasium(
    env: Core, *, time_limit: int | None = None, render_mode: str | None = None
) -> gymnasium.Env:
    """Converts a core of `rlcli.make(name)` into a `gymnasium.Env`.

        model = stable_baselines3.PPO("MlpPolicy", to_gymnasium(rlcli.make("…")))

    Args:
        time_limit: steps after which an episode is truncated; a core has none itself.
        render_mode: `rgb_array`, or None.

    An action outside the space raises `gymnasium.error.InvalidAction`, except that
    values outside the bounds of a Box are clipped. A step before `reset` raises
    `ResetNeeded`; a step after termination warns.
    """
    if not isinstance(env, Core) or env.agents:
        message = "expected a core of one agent, as `rlcli.make(name)` returns it"
        raise ValueError(message)
    if render_mode not in (None, "rgb_array"):
        raise ValueError(f"expected `rgb_array` or None, got {render_mode!r}")
    return CoreEnv(env, time_limit, render_mode)


def to_gymnasium_vector(env: Environment) -> VectorEnv:
    """Converts `rlcli.make(name, num_envs=…)` into a `gymnasium.vector.VectorEnv`.

    Environments reset in the step that ends an episode (`AutoresetMode.SAME_STEP`).
    `infos["final_obs"]` is an array of objects, as in Gymnasium's vectors: the last
    observation of each environment that `_final_obs` marks, and None elsewhere.
    """
    if not isinstance(env, Environment) or not env.pure:
        message = "expected a vector, as `rlcli.make(name, num_envs=8)` returns it"
        raise ValueError(message)
    return _GymnasiumVectorEnv(env)


class CoreEnv(gymnasium.Env):
    """A core as a Gymnasium environment; `step` of the core takes a key."""

    def __init__(
        self, env: Core, time_limit: int | None, render_mode: str | None
    ) -> None:
        """The arguments are those of `to_gymnasium`."""
        self.metadata = {"render_modes": ["rgb_array"], "render_fps": _FPS}
        self.render_mode = render_mode
        self.observation_space = _finite_space(env.observation)
        # Stays unbounded: then Gymnasium samples normal actions, not enormous ones.
        self.action_space = env.action
        # Lets libraries recreate the environment with another render mode.
        self.spec = EnvSpec(
            "rlcli/Exported-v0",
            entry_point=lambda **kwargs: to_gymnasium(
                env, time_limit=time_limit, **kwargs
            ),
            disable_env_checker=True,
            kwargs={"render_mode": render_mode},
        )
        self._env = with_render(env) if render_mode else env
        self._limit = time_limit
        self._reset = jax.jit(self._env.reset)
        self._step = jax.jit(self._env.step)
        self._state: ArrayTree = None
        self._elapsed = 0
        self._terminated = self._warned = False

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Starts an episode; the same seed yields the same episodes."""
        super().reset(seed=seed, options=options)
        self._terminated = self._warned = False
        self._state, obs = self._reset(self.draw_reset_key(seed))
        self._elapsed = 0
        return map_leaves(_to_element, self.observation_space, _to_host(obs)), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Takes one step; call `reset` after the end of an episode."""
        _require_reset(self._state, "step")
        action = _check_action(self.action_space, action)
        if self._terminated and not self._warned:
            self._warned = True
            gymnasium.logger.warn(_STEP_AFTER_END)
        self._state, timestep = self._step(self._state, action, self.draw_step_key())
        self._elapsed += 1
        timestep = _to_host(timestep)
        last = bool(timestep.last)
        terminated = last and float(timestep.discount) == 0
        self._terminated |= terminated
        overdue = self._limit is not None and self._elapsed >= self._limit
        truncated = not terminated and (last or overdue)
        obs = map_leaves(_to_element, self.observation_space, timestep.next_obs)
        return obs, float(timestep.reward), terminated, truncated, dict(timestep.info)

    def draw_reset_key(self, seed: int | None) -> Any:
        """The key of an episode; `seed` is that of `reset`, which has been applied."""
        return _next_key(self.np_random)

    def draw_step_key(self) -> Any:
        """The key of the next step."""
        return _next_key(self.np_random)

    def render(self) -> Any:
        """Returns an image `[H, W, 3]` uint8, or None without a render mode."""
        if self.render_mode is None:
            return None
        _require_reset(self._state, "render")
        return to_rgb(self._env.render(jax.device_get(self._state)), "environment")


class _GymnasiumVectorEnv(VectorEnv):
    """A vector as a Gymnasium vector environment with auto-reset."""

    def __init__(self, env: Environment) -> None:
        self.metadata = {"autoreset_mode": AutoresetMode.SAME_STEP}
        self.num_envs = env.num_envs
        self.single_observation_space = _finite_space(env.observation)
        self.single_action_space = env.action
        self.observation_space = batch_space(
            self.single_observation_space, env.num_envs
        )
        self.action_space = batch_space(env.action, env.num_envs)
        self._reset, self._step = jax.jit(env.reset), jax.jit(env.step)
        self._state: ArrayTree = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Starts an episode in every environment, all from one seed."""
        super().reset(seed=seed, options=options)
        self._state, obs = self._reset(_next_key(self.np_random))
        return _to_host(obs), {}

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Takes one step in every environment."""
        _require_reset(self._state, "step")
        actions = _check_action(self.action_space, actions)
        key = _next_key(self.np_random)
        self._state, timestep = self._step(self._state, actions, key)
        timestep = _to_host(timestep)
        terminated = timestep.last & (timestep.discount == 0)
        infos = dict(timestep.info)
        if np.any(timestep.last):
            final = np.full(self.num_envs, None, object)
            for index in np.flatnonzero(timestep.last):
                own = operator.itemgetter(index)
                final[index] = jax.tree.map(own, timestep.next_obs)
            infos |= {"final_obs": final, "_final_obs": timestep.last}
        truncated = timestep.last & ~terminated
        return timestep.obs, timestep.reward, terminated, truncated, infos


def _next_key(random: np.random.Generator) -> Any:
    """Draws a key from Gymnasium's generator, which `reset(seed=…)` seeds."""
    return jax.random.key(int(random.integers(2**32)))


def _require_reset(state: ArrayTree, method: str) -> None:
    """Raises `ResetNeeded` before the first `reset`."""
    if state is None:
        raise gymnasium.error.ResetNeeded(f"call `reset` before `{method}`")


def _check_action(space: gymnasium.Space, action: Any) -> Any:
    """Returns the action as arrays; raises if it is not in the space."""
    if isinstance(space, spaces.Tuple):
        if isinstance(action, Sequence) and len(action) == len(space.spaces):
            pairs = zip(space.spaces, action, strict=True)
            return tuple(_check_action(member, part) for member, part in pairs)
    elif isinstance(space, spaces.Dict):
        if isinstance(action, Mapping) and action.keys() == space.spaces.keys():
            items = space.items()
            return {name: _check_action(each, action[name]) for name, each in items}
    else:
        array = np.array(action)  # copied: a state may contain it
        if _is_valid(space, array):
            return array
    raise gymnasium.error.InvalidAction(
        f"action {reprlib.repr(action)} ({type(action).__name__}) is not in {space}"
    )


def _is_valid(space: gymnasium.Space, action: np.ndarray) -> bool:
    if isinstance(space, spaces.Box):  # values outside the bounds are clipped later
        is_number = action.dtype.kind in "biuf" and action.shape == space.shape
        return is_number and not np.any(np.isnan(action))
    return action.dtype.kind in "biu" and space.contains(action.astype(space.dtype))


def _finite_space(space: gymnasium.Space) -> gymnasium.Space:
    """Replaces infinite bounds by the largest float, since Gymnasium warns otherwise.

    For the same reason the bounds of a constant entry are widened.
    """
    if isinstance(space, spaces.Tuple):
        return spaces.Tuple([_finite_space(member) for member in space.spaces])
    if isinstance(space, spaces.Dict):
        return spaces.Dict({name: _finite_space(each) for name, each in space.items()})
    if not isinstance(space, spaces.Box) or space.dtype.kind != "f":
        return space
    max_value = np.finfo(space.dtype).max
    low, high = np.maximum(space.low, -max_value), np.minimum(space.high, max_value)
    high = np.where(low == high, low + 1, high).astype(space.dtype)
    return spaces.Box(low, high, space.shape, space.dtype.type)


def _to_host(tree: ArrayTree) -> Any:
    """Copies into writable NumPy arrays; JAX's buffers are read-only."""
    return jax.tree.map(np.array, jax.device_get(tree))


def _to_element(space: gymnasium.Space, obs: ArrayTree) -> Any:
    """Converts an array for Gymnasium: discrete values become int."""
    return int(obs) if isinstance(space, spaces.Discrete) else obs
