"""Showing: environments whose observations are stacks of the last few."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces as kinds

from rlcli import action_masks, spaces
from rlcli.errors import RlcliError
from rlcli.preprocessing import Function, Preprocess, each_member
from rlcli.types import ArrayTree, Environment, TimeStep

_SAVED = "stack"  # begins the names of what a host environment saves beside its own


class Showing(NamedTuple):
    """What an environment remembers, and what it has shown last at each step."""

    environment: ArrayTree
    stacks: tuple[ArrayTree, ...]


class _Stage(NamedTuple):
    """Some functions of an observation, and the stack of what they make."""

    functions: tuple[Function, ...]
    frames: int
    axis: int
    space: gymnasium.Space  # of the stack


def showing(environment: Environment, steps: Sequence[Preprocess]) -> Environment:
    """A core, or a vector, pure or on the host, that shows what `steps` make.

    What the last of them makes of its stack is left to who reads it: shown is the stack
    itself, so that replays can keep each frame once. An action mask is shown as it is.
    """
    if not steps:
        return environment
    numpy = jnp if environment.pure else np
    # Axes of what it shows: those of a core alone, of environments, of seeds as well.
    leading = (1 if environment.num_envs else 0) if environment.pure else 2
    seen, mask = action_masks.apart(environment.observation)
    stages = _stages(steps, seen)
    begun, gone = _stacks(stages, numpy, leading)

    def show(stacks: tuple[ArrayTree, ...], obs: ArrayTree) -> ArrayTree:
        return action_masks.beside(stacks[-1], action_masks.carried(obs))

    def reset(key: Any) -> tuple[Showing, ArrayTree]:
        state, obs = environment.reset(key)
        stacks = begun(obs)
        return Showing(state, stacks), show(stacks, obs)

    def step(
        state: Showing, action: ArrayTree, noise: ArrayTree = (), *cut: Any
    ) -> tuple[Showing, TimeStep]:
        inner, answer = environment.step(state.environment, action, noise, *cut)
        stacks = going = gone(state.stacks, answer.next_obs)

        def chosen(new: Any, old: Any) -> Any:
            last = answer.last.reshape(answer.last.shape + (1,) * (old.ndim - leading))
            return numpy.where(last, new, old)

        if leading:  # a core begins no episode
            stacks = jax.tree.map(chosen, begun(answer.obs), going)
        return Showing(inner, stacks), answer._replace(
            obs=show(stacks, answer.obs), next_obs=show(going, answer.next_obs)
        )

    return environment._replace(
        reset=reset,
        step=step,
        observation=action_masks.beside(stages[-1].space, mask),
        render=lambda state, *index: environment.render(state.environment, *index),
        render_final=lambda state, *index: environment.render_final(
            state.environment, *index
        ),
        close=lambda state: environment.close(state.environment),
        **({} if environment.pure else _files(environment, stages)),
    )


def _files(environment: Environment, stages: tuple[_Stage, ...]) -> dict[str, Any]:
    """`save` and `restore` of a host environment whose stacks are saved beside it."""
    spaces_ = tuple(stage.space for stage in stages)
    tree = jax.tree.structure(jax.eval_shape(lambda: [*map(spaces.zeros, spaces_)]))

    def save(state: Showing) -> dict[str, Any]:
        leaves = jax.tree.leaves(state.stacks)
        mine = {f"{_SAVED}{index}": leaf for index, leaf in enumerate(leaves)}
        return {**environment.save(state.environment), **mine}

    def restore(saved: Mapping[str, Any]) -> tuple[Showing, str]:
        names = [f"{_SAVED}{index}" for index in range(tree.num_leaves)]
        rest = {name: each for name, each in saved.items() if name not in names}
        state, sentence = environment.restore(rest)
        leaves = [np.array(saved[name]) for name in names]
        return Showing(state, tuple(jax.tree.unflatten(tree, leaves))), sentence

    return {"save": save, "restore": restore}


def _stacks(
    stages: tuple[_Stage, ...], numpy: Any, leading: int
) -> tuple[Callable[..., tuple[ArrayTree, ...]], ...]:
    """`begun(obs)`: all stacks as an episode begins; `gone(stacks, obs)`: one later."""

    def place(stage: _Stage) -> int:
        return stage.axis if stage.axis < 0 else stage.axis + leading

    def framed(stage: _Stage, obs: ArrayTree) -> ArrayTree:
        for function in stage.functions:
            for _ in range(leading):
                function = jax.vmap(function)
            obs = jax.tree.map(numpy.asarray, function(obs))
        # A number is a vector of one, an image `[H, W]` has one channel.
        return jax.tree.map(
            lambda leaf: leaf[..., None] if leaf.ndim - leading in (0, 2) else leaf, obs
        )

    def begun(obs: ArrayTree) -> tuple[ArrayTree, ...]:
        stacks, seen = [], action_masks.without(obs)
        for stage in stages:
            frame = framed(stage, seen)
            seen = jax.tree.map(
                lambda leaf, stage=stage: numpy.concatenate(
                    [leaf] * stage.frames, axis=place(stage)
                ),
                frame,
            )
            stacks.append(seen)
        return tuple(stacks)

    def pushed(stack: Any, frame: Any, axis: int) -> Any:
        rest = numpy.split(stack, [frame.shape[axis]], axis=axis)[1]
        return numpy.concatenate([rest, frame], axis=axis)

    def gone(stacks: tuple[ArrayTree, ...], obs: ArrayTree) -> tuple[ArrayTree, ...]:
        after, seen = [], action_masks.without(obs)
        for stage, stack in zip(stages, stacks, strict=True):
            push = functools.partial(pushed, axis=place(stage))
            seen = jax.tree.map(push, stack, framed(stage, seen))
            after.append(seen)
        return tuple(after)

    return begun, gone


def _stages(steps: Sequence[Preprocess], space: gymnasium.Space) -> tuple[_Stage, ...]:
    """The steps, with a stage for each that has a memory."""
    stages, functions = [], []
    for step in steps:
        if step.frames > 1:
            space, _ = each_member(_framed)(space)
            repeated = functools.partial(_repeated, frames=step.frames, axis=step.axis)
            space, _ = each_member(repeated)(space)
            stages.append(_Stage(tuple(functions), step.frames, step.axis, space))
            functions = []
        space, function = step.of(space)
        functions.append(function)
    return tuple(stages)


def _framed(space: gymnasium.Space) -> tuple[gymnasium.Space, Function]:
    """What a stack is made of: at least one axis, and of an image three."""
    if isinstance(space, kinds.Discrete):
        to = spaces.dtype(space).type
        choices = kinds.MultiDiscrete([space.n], to, start=[space.start])
        return choices, _same
    if isinstance(space, kinds.Box) and len(space.shape) in (0, 2):
        low, high = space.low[..., None], space.high[..., None]
        return kinds.Box(low, high, low.shape, space.dtype.type), _same
    return space, _same


def _repeated(
    space: gymnasium.Space, frames: int, axis: int
) -> tuple[gymnasium.Space, Function]:
    """The space of so many of a space's elements, joined along an axis."""
    rank = len(space.shape or ())
    if not -rank <= axis < rank:
        raise RlcliError(
            f"frames cannot be joined along axis {axis} of {spaces.describe(space)}",
            f"its axes are {', '.join(map(str, range(rank)))}, and the last is −1 too",
        )

    def several(array: Any) -> np.ndarray:
        return np.concatenate([array] * frames, axis=axis)

    match space:
        case kinds.Box():
            low, high = several(space.low), several(space.high)
            return kinds.Box(low, high, low.shape, space.dtype.type), _same
        case kinds.MultiDiscrete():
            counts, start = several(space.nvec), several(space.start)
            return kinds.MultiDiscrete(counts, space.dtype.type, start=start), _same
        case kinds.MultiBinary():
            return kinds.MultiBinary(several(np.zeros(space.shape)).shape), _same
    raise RlcliError(f"frames cannot be joined that are {spaces.describe(space)}")


def _same(obs: ArrayTree) -> ArrayTree:
    return obs
