"""First steps: compares what a replay rebuilds with what the environment returns.

A replay that stores each frame once assumes that observations are stacks of frames, and
one that replaces goals that rewards follow from them. A few steps at random show
whether they are, before any memory is filled with others.
"""

import contextlib
import itertools
import time
from collections.abc import Iterator

import jax
import numpy as np

from rlcli import registry
from rlcli.distributions import action_masks
from rlcli.errors import quote
from rlcli.evaluation.make_evaluator import make_evaluator
from rlcli.loop.progress import Setup
from rlcli.policies.sampled import random
from rlcli.recipe import Recipe
from rlcli.types import Array, FrameStack, Transition

_MAX_STEPS = 100  # fewer if an episode ends before
_MAX_SECONDS = 10.0  # of a slow environment
_MAX_DATA = 1_000  # steps of a data set
_PADDINGS = ("repeat", "zero")


def check_first_steps(recipe: Recipe, setup: Setup) -> None:
    """Refuses an environment whose steps are not what the replay rebuilds.

    Steps the environment only if the replay rebuilds anything.
    """
    stack, part = setup.agent.traits.frame_stack, recipe.replay
    if part is None:
        return
    has_goals = registry.find("replay", part.name).takes("goal_reward")
    if stack is None and not has_goals:
        return
    steps = _play(recipe, setup, 0 if stack is None else stack.frames)
    owner = f"environment {quote(recipe.environment.name)}"
    if stack is not None:
        _check_stack(recipe, steps, stack, owner)
        data = setup.data()
        shares = setup.unroll, setup.environment.num_envs
        for start, rows in _first_data(data, *shares) if data else ():
            place = (
                f"the data set from step {start + 1:,} on" if start else "the data set"
            )
            _check_stack(recipe, rows, stack, place)
    if has_goals:
        _check_goals(recipe, setup, steps, owner)


def _play(recipe: Recipe, setup: Setup, frames: int) -> Transition:
    """Steps `[T, ...]` of one environment, at random.

    They include the end of an episode and two stacks after it, if it comes in time.
    """
    environment = setup.environment
    evaluator = make_evaluator(
        recipe,
        setup._replace(seeds=setup.seeds[:1], devices=1),
        1,
        num_envs=1,
        policy=random(environment.action, environment.observation),
    )
    rows, wanted, start = [], _MAX_STEPS, time.monotonic()
    with contextlib.closing(evaluator.transitions((), 0)) as transitions:  # pyright: ignore[reportArgumentType] # a generator
        for row in transitions:
            rows.append(jax.tree.map(lambda leaf: np.asarray(leaf)[0, 0], row))
            is_last = bool(rows[-1].last)
            if is_last:
                wanted = min(wanted, len(rows) + 2 * frames + 1)
            # The agent of a game that has ended before the others observes nothing.
            is_gone = rows[-1].discount == 0 and not is_last
            is_late = time.monotonic() - start > _MAX_SECONDS
            if is_gone or is_late or len(rows) >= wanted:
                break
    return jax.tree.map(lambda *leaves: np.stack(leaves), *rows)


def _first_data(
    data: Transition, unroll: int, num_envs: int
) -> Iterator[tuple[int, Transition]]:
    """The first steps of a data set that each environment gets, and where they start.

    A share may begin within an episode, whose frames before it are then missing.
    """
    share = len(data.reward) // (unroll * num_envs) * unroll
    length = max(1, min(share, _MAX_DATA // num_envs))
    for start in range(0, share * num_envs, share):
        rows = slice(start, start + length)
        yield start, jax.tree.map(lambda leaf, rows=rows: leaf[rows], data)


def _check_stack(
    recipe: Recipe, steps: Transition, stack: FrameStack, owner: str
) -> None:
    """Refuses observations that are other stacks, or no stacks."""
    difference = _first_difference(steps, stack)
    if difference is None:
        return
    step, shape = difference
    assert recipe.replay is not None  # it rebuilds the stacks
    fitting = [
        each for each in _stacks(steps, stack) if _first_difference(steps, each) is None
    ]
    hint = "use `replay: uniform`, which stores whole observations"
    if fitting:
        best = min(fitting, key=lambda each: len(_changes(stack, each)))
        changes = ", ".join(_changes(stack, best))
        hint = f"`{changes}` would fit: {_describe(shape, best)}"
    raise recipe.error(
        ("replay",),
        f"replay `{recipe.replay.name}` takes observations {[*shape]} for "
        f"{_describe(shape, stack)}, but in step {step + 1} of {owner} they are not",
        hint,
    )


def _changes(before: FrameStack, after: FrameStack) -> list[str]:
    """The options of a replay in which two stacks differ."""
    options = ("stack", "axis", "padding")
    return [
        f"{option}: {new}"
        for option, old, new in zip(options, before, after, strict=True)
        if new != old
    ]


def _describe(shape: tuple[int, ...], stack: FrameStack) -> str:
    frame = [*shape]
    frame[stack.axis] //= stack.frames
    start = "the first one repeated" if stack.padding == "repeat" else "zeros"
    return (
        f"{stack.frames} frames {frame} along axis {stack.axis}, {start} at the start"
    )


def _first_difference(
    steps: Transition, stack: FrameStack
) -> tuple[int, tuple[int, ...]] | None:
    """The first step with an array that is no such stack, and the shape of the array.

    None if there is none.
    """
    pairs = zip(
        jax.tree.leaves(action_masks.remove_mask(steps.obs)),
        jax.tree.leaves(action_masks.remove_mask(steps.next_obs)),
        strict=True,
    )
    for obs, next_obs in pairs:
        for step, given, rebuilt in _rebuilt(obs, next_obs, steps.first, stack):
            if not np.array_equal(given, rebuilt, equal_nan=obs.dtype.kind == "f"):
                return step, obs.shape[1:]
    return None


def _rebuilt(
    observations: Array, next_observations: Array, first: Array, stack: FrameStack
) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
    """The observations of each step and what their newest frames are rebuilt to."""
    frames: list[np.ndarray] = []

    def newest(obs: np.ndarray) -> np.ndarray:
        return np.split(obs, stack.frames, axis=stack.axis)[-1]

    for step, (obs, next_obs) in enumerate(
        zip(np.asarray(observations), np.asarray(next_observations), strict=True)
    ):
        frame = newest(obs)
        if first[step] or not frames:
            padding = frame if stack.padding == "repeat" else np.zeros_like(frame)
            frames = [padding] * stack.frames
        frames = [*frames[1:], frame]
        yield step, obs, np.concatenate(frames, axis=stack.axis)
        following = [*frames[1:], newest(next_obs)]
        yield step, next_obs, np.concatenate(following, axis=stack.axis)


def _stacks(steps: Transition, like: FrameStack) -> Iterator[FrameStack]:
    """All stacks that the observations may be, with the axis of `like` as it is."""
    shapes = [
        leaf.shape[1:] for leaf in jax.tree.leaves(action_masks.remove_mask(steps.obs))
    ]
    for axis in range(-1, min(map(len, shapes)) - 1):
        if all(axis % len(shape) == like.axis % len(shape) for shape in shapes):
            axis = like.axis
        sizes = [shape[axis] for shape in shapes]
        for frames, padding in itertools.product(range(min(sizes), 1, -1), _PADDINGS):
            if all(size % frames == 0 for size in sizes):
                yield FrameStack(frames, axis, padding)


def _check_goals(recipe: Recipe, setup: Setup, steps: Transition, owner: str) -> None:
    """Refuses rewards and ends that do not follow from the goals."""
    goal_reward = setup.environment.goal_reward
    assert recipe.replay is not None and goal_reward is not None  # `check_goals`
    desired, achieved = steps.obs["desired_goal"], steps.next_obs["achieved_goal"]
    pairs = zip(
        jax.tree.leaves(desired),
        jax.tree.leaves(steps.next_obs["desired_goal"]),
        strict=True,
    )
    if not all(np.array_equal(*pair) for pair in pairs):
        raise recipe.error(
            ("replay",),
            f"replay `{recipe.replay.name}` requires one goal in each episode, but "
            f"the `desired_goal` of {owner} changes within an episode",
            "use `replay: uniform`",
        )
    reward, discount = map(np.asarray, jax.vmap(goal_reward)(achieved, desired))
    is_equal = np.isclose(reward, steps.reward, 1e-4, 1e-5)
    wrong = np.flatnonzero(~(is_equal & (discount == steps.discount)))
    if not len(wrong):
        return
    step = wrong[0]
    raise recipe.error(
        ("replay",),
        f"replay `{recipe.replay.name}` takes rewards from `goal_reward`, which gives "
        f"reward {reward[step]:g} and discount {discount[step]:g} for step {step + 1} "
        f"of {owner}, but the step has {steps.reward[step]:g} and "
        f"{steps.discount[step]:g}",
        "`goal_reward(achieved, desired)` has to return what `step` returns",
    )
