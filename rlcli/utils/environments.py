"""Environments: Gymnasium's, looked into, played for an episode, or for a step."""

from __future__ import annotations

import io
import itertools
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gymnasium
import jax
import numpy as np
from PIL import Image

from rlcli.errors import RlcliError
from rlcli.runs.files import replace_file
from rlcli.types import Transition
from rlcli.utils.elements import safe_sample

Acting = Callable[[Any], Any]  # a = policy(s)
_MISSING = "__ERROR__"  # coax's own sign for "no default"
_MAX_STEPS = 10_000


def get_env_attr(
    env: Any, attr: str, default: Any = _MISSING, max_depth: int = 100
) -> Any:
    """An attribute of an environment, or of what it wraps: of the outermost with it.

    At most `max_depth` wrappers are taken off. Without a default, an `AttributeError`
    where none has it.
    """
    for layer in _layers(env, max_depth):
        if hasattr(layer, attr):
            return getattr(layer, attr)
    if isinstance(default, str) and default == _MISSING:
        raise AttributeError(f"{env} has no attribute `{attr}`, nor what it wraps")
    return default


def has_env_attr(env: Any, attr: str, max_depth: int = 100) -> bool:
    """Whether an environment, or one that it wraps, has an attribute."""
    return any(hasattr(layer, attr) for layer in _layers(env, max_depth))


def _layers(env: Any, max_depth: int) -> Iterator[Any]:
    """The environment, then what it wraps, from the outside in."""
    yield env
    for _ in range(max_depth):
        if not hasattr(env, "env"):
            return
        env = env.env
        yield env


def render_episode(
    env: gymnasium.Env, policy: Acting | None = None, step_delay_ms: float = 0
) -> None:
    """Plays an episode, with `env.render()` at its beginning and after every step.

    `policy` maps an observation to an action; left out, actions are random.
    `step_delay_ms` is how long to wait after each picture.
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
    """Plays an episode and writes its pictures as an animated GIF.

    Args:
        env: one that draws arrays: `gymnasium.make(…, render_mode="rgb_array")`.
        filepath: where to; folders that are missing are made.
        policy: maps an observation to an action; random if left out.
        resize_to: (width, height) in pixels.
        duration: milliseconds between two pictures; a GIF counts in tens of them.
        max_episode_steps: when to end at the latest; left out, the environment's own
            limit, or 10,000 if it has none.
    """
    limit = getattr(getattr(env, "spec", None), "max_episode_steps", None)
    steps = range(max_episode_steps or limit or _MAX_STEPS)
    pictures = (
        _render_image(env, resize_to) for _ in _episode_steps(env, policy, steps)
    )
    data = io.BytesIO()
    next(pictures).save(
        data,
        format="GIF",
        save_all=True,
        append_images=pictures,
        duration=duration,
        loop=0,
    )
    target = Path(filepath)
    target.parent.mkdir(parents=True, exist_ok=True)
    replace_file(target, data.getvalue())


def _episode_steps(
    env: gymnasium.Env, policy: Acting | None, steps: Any
) -> Iterator[None]:
    """Plays an episode, and stops at its beginning and after each step."""
    obs, _ = env.reset()
    yield
    for _ in steps:
        action = env.action_space.sample() if policy is None else policy(obs)
        obs, _, terminated, truncated, _ = env.step(action)
        yield
        if terminated or truncated:
            return


def _render_image(env: gymnasium.Env, size: tuple[int, int] | None) -> Image.Image:
    image_array = env.render()
    if not isinstance(image_array, np.ndarray):
        raise RlcliError(
            f"{env} draws no pictures: `render` gives {type(image_array).__name__}",
            "make it with `render_mode='rgb_array'`",
        )
    image = Image.fromarray(image_array)
    return image if size is None else image.resize(size, Image.Resampling.LANCZOS)


def get_transition_batch(
    env: gymnasium.Env,
    batch_size: int = 1,
    gamma: float = 0.9,
    random_seed: int | None = None,
) -> Transition:
    """Transitions of an environment, `[1, batch_size, ...]`, as a one-step tracer's.

    Each is the first step of an episode of its own, with a random action; `discount` is
    `gamma`, or 0 where that step terminated. Then the environment is closed. The seed
    is that of the episodes and of the actions.
    """
    if batch_size < 1 or not 0 <= gamma <= 1:
        raise ValueError(
            "expected a batch_size of at least 1 and a gamma in [0, 1], "
            f"got {batch_size} and {gamma}"
        )
    seeds = np.random.SeedSequence(random_seed).generate_state(batch_size)
    try:
        steps = [_first_step(env, int(seed)) for seed in seeds]
    finally:
        env.close()
    batch = jax.tree.map(lambda *leaves: np.concatenate(leaves, axis=1), *steps)
    return batch._replace(discount=np.float32(gamma) * batch.discount)


def _first_step(env: gymnasium.Env, seed: int) -> Transition:
    from rlcli.utils.custom_loop import (
        transition,  # here, since it takes Haiku half a second
    )

    obs, _ = env.reset(seed=seed)
    action = safe_sample(env.action_space, seed)
    return transition(obs, action, env.step(action), first=True)
