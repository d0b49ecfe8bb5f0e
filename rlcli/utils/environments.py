"""Environments: attributes, episodes and transitions of Gymnasium environments."""

import copy
import itertools
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gymnasium
import jax
import numpy as np
from PIL import Image

from rlcli.distributions import action_masks
from rlcli.environments.adapters.host_errors import close_or_warn
from rlcli.environments.adapters.host_vector import environment_seeds
from rlcli.environments.rgb_image import to_rgb
from rlcli.errors import RlcliError
from rlcli.evaluation.films import Reel, join_gif
from rlcli.runs.files import write_output
from rlcli.types import Transition
from rlcli.utils.elements import safe_sample

Acting = Callable[[Any], Any]  # a = policy(s)
_MISSING = "__ERROR__"  # the marker of coax for "no default"
_MAX_STEPS = 10_000


def get_env_attr(
    env: Any, attr: str, default: Any = _MISSING, max_depth: int = 100
) -> Any:
    """Returns an attribute of an environment or of the outermost wrapped one with it.

    Looks through at most `max_depth` wrappers. Without a default, raises
    `AttributeError` if no environment has the attribute.
    """
    for layer in _layers(env, max_depth):
        if hasattr(layer, attr):
            return getattr(layer, attr)
    if isinstance(default, str) and default == _MISSING:
        raise AttributeError(
            f"{env} has no attribute `{attr}`, nor do the environments it wraps"
        )
    return default


def has_env_attr(env: Any, attr: str, max_depth: int = 100) -> bool:
    """Whether an environment, or one of the environments it wraps, has an attribute."""
    return any(hasattr(layer, attr) for layer in _layers(env, max_depth))


def _layers(env: Any, max_depth: int) -> Iterator[Any]:
    """The environment, then the environments it wraps, outermost first."""
    yield env
    for _ in range(max_depth):
        if not hasattr(env, "env"):
            return
        env = env.env
        yield env


def render_episode(
    env: gymnasium.Env, policy: Acting | None = None, step_delay_ms: float = 0
) -> None:
    """Runs an episode, with `env.render()` after the reset and after every step.

    `policy` maps an observation to an action; by default, actions are random.
    `step_delay_ms` is the delay after each image, in milliseconds.
    """
    for _ in _episode_steps(env, policy, itertools.count()):
        env.render()
        time.sleep(step_delay_ms / 1_000)


def generate_gif(
    env: gymnasium.Env,
    filepath: str | Path,
    policy: Acting | None = None,
    resize_to: tuple[int, int] | None = None,
    duration: float = 50,
    max_episode_steps: int | None = None,
) -> None:
    """Runs an episode and writes its images as an animated GIF.

    Args:
        env: an environment that renders arrays: `gymnasium.make(…,
            render_mode="rgb_array")`.
        filepath: path of the GIF; missing folders are created.
        policy: maps an observation to an action; by default random.
        resize_to: (width, height) in pixels.
        duration: milliseconds per image; a GIF stores units of 10 ms.
        max_episode_steps: maximum number of steps; by default the limit of the
            environment, or 10,000 if it has none.
    """
    limit = getattr(getattr(env, "spec", None), "max_episode_steps", None)
    steps = range(max_episode_steps or limit or _MAX_STEPS)
    images = (_render_image(env, resize_to) for _ in _episode_steps(env, policy, steps))
    images = iter(Reel(images, len(steps) + 1))
    write_output(Path(filepath), join_gif(images, duration))


def _episode_steps(
    env: gymnasium.Env, policy: Acting | None, steps: Any
) -> Iterator[None]:
    """Runs an episode; yields after the reset and after each step."""
    obs, _ = env.reset()
    yield
    for _ in steps:
        action = policy(obs) if policy else _sample_legal(env.action_space, obs)
        obs, _, terminated, truncated, _ = env.step(action)
        yield
        if terminated or truncated:
            return


def _sample_legal(space: gymnasium.Space, obs: Any) -> Any:
    """A random action; a legal one if the observation has an action mask."""
    mask = action_masks.get_mask(obs)
    return space.sample() if mask is None else space.sample(np.asarray(mask, np.int8))


def _render_image(env: gymnasium.Env, size: tuple[int, int] | None) -> np.ndarray:
    frame = env.render()
    if frame is None:
        raise RlcliError(
            f"{env} renders no images: `render` returns None",
            "create it with `render_mode='rgb_array'`",
        )
    image = to_rgb(frame, str(env))
    if size is None:
        return image
    resized = Image.fromarray(image).resize(size, Image.Resampling.LANCZOS)
    return np.asarray(resized)


def get_transition_batch(
    env: gymnasium.Env,
    batch_size: int = 1,
    gamma: float = 0.9,
    random_seed: int | None = None,
) -> Transition:
    """One-step transitions of an environment, `[1, batch_size, ...]`.

    Each is the first step of a separate episode, with a random action. `discount` is
    `gamma`, or 0 where the step terminated. Closes the environment. The seed determines
    both episodes and actions.
    """
    if batch_size < 1 or not 0 <= gamma <= 1:
        raise ValueError(
            "expected a batch_size of at least 1 and a gamma in [0, 1], "
            f"got {batch_size} and {gamma}"
        )
    seeds = environment_seeds(random_seed, batch_size)
    try:
        steps = [_first_step(env, seed) for seed in seeds]
    finally:
        close_or_warn(str(env), env)
    batch = jax.tree.map(lambda *leaves: np.concatenate(leaves, axis=1), *steps)
    return batch._replace(discount=np.float32(gamma) * batch.discount)


def _first_step(env: gymnasium.Env, seed: int) -> Transition:
    # Imported here, because Haiku takes half a second.
    from rlcli.utils.custom_loop import transition

    # Copied, because `step` may change both in place.
    obs = jax.tree.map(np.array, env.reset(seed=seed)[0])
    action = safe_sample(env.action_space, seed)
    result = env.step(copy.deepcopy(action))
    return transition(obs, action, result, first=True)
