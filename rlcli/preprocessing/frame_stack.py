"""Frame stacking: environments whose observations are stacks of recent frames."""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces as kinds

from rlcli import spaces
from rlcli.distributions import action_masks
from rlcli.errors import RlcliError
from rlcli.preprocessing import ObservationFunction, Preprocess, map_members
from rlcli.types import (
    ArrayTree,
    Core,
    Environment,
    External,
    FrameStack,
    Host,
    TimeStep,
    wrap,
)

_E = TypeVar("_E", Core, Environment)


class FrameStackState(NamedTuple):
    """The state of the environment and the current stack of each stage."""

    environment: ArrayTree
    stacks: tuple[ArrayTree, ...]


class FrameStacker(NamedTuple):
    """Stacks the frames of a sequence of observations.

    Each step that stacks frames is a stage, and each stage has a stack; the stacks are
    a tuple. Without stages, `observation` returns its argument unchanged. An action
    mask passes unchanged.
    """

    init: Callable[[ArrayTree], tuple[ArrayTree, ...]]  # first obs -> stacks
    # (stacks, next obs) -> stacks
    push: Callable[[tuple[ArrayTree, ...], ArrayTree], tuple[ArrayTree, ...]]
    # (stacks, obs) -> the stack of the last stage, with the mask of obs
    observation: Callable[[tuple[ArrayTree, ...], ArrayTree], ArrayTree]
    spaces: tuple[gymnasium.Space, ...]  # of the stacks


class _Stage(NamedTuple):
    """Functions of an observation, followed by a stack of their results."""

    functions: tuple[ObservationFunction, ...]
    frames: int
    axis: int
    space: gymnasium.Space  # of the stack


def stack_frames(environment: _E, steps: Sequence[Preprocess]) -> _E:
    """Wraps a core or a vector, pure or on the host, to stack frames for `steps`.

    The new observation is the stack of the last stage, without the functions that
    follow: networks apply these, so that replays can store each frame once. An action
    mask passes unchanged.
    """
    if not steps:
        return environment
    host = environment.host if isinstance(environment, Environment) else None
    numpy = np if host else jnp
    # Leading axes of observations: none (a core), environments, or seeds as well.
    leading = 2 if host else int(isinstance(environment, Environment))
    _, mask = action_masks.split_mask(environment.observation)
    stacker = frame_stacker(environment.observation, steps, leading, numpy)

    def reset(key: Any) -> tuple[FrameStackState, ArrayTree]:
        state, obs = environment.reset(key)
        stacks = stacker.init(obs)
        return FrameStackState(state, stacks), stacker.observation(stacks, obs)

    def step(
        state: FrameStackState, action: ArrayTree, noise: ArrayTree = (), *cut: Any
    ) -> tuple[FrameStackState, TimeStep]:
        inner, timestep = environment.step(state.environment, action, noise, *cut)
        stacks = next_stacks = stacker.push(state.stacks, timestep.next_obs)
        has_ended = timestep.last | cut[0] if cut else timestep.last

        def choose(new: Any, old: Any) -> Any:
            mask = has_ended.reshape(has_ended.shape + (1,) * (old.ndim - leading))
            return numpy.where(mask, new, old)

        if leading:  # a core does not auto-reset
            stacks = jax.tree.map(choose, stacker.init(timestep.obs), next_stacks)
        return FrameStackState(inner, stacks), timestep._replace(
            obs=stacker.observation(stacks, timestep.obs),
            next_obs=stacker.observation(next_stacks, timestep.next_obs),
        )

    return wrap(
        environment,
        # No `goal_reward`: it takes single goals, and these are stacked.
        keeps=["render", "render_final", "parameters", "costly_reset"],
        inner_state=lambda state: state.environment,
        reset=reset,
        step=step,
        observation=action_masks.add_mask(stacker.spaces[-1], mask),
        frame_stack=FrameStack(steps[-1].frames, steps[-1].axis, "repeat"),
        external=_stack_external(environment.external, steps),
        **({"host": _stack_host(host, stacker)} if host else {}),
    )


def _stack_external(
    external: External | None, steps: Sequence[Preprocess]
) -> External | None:
    """The external spaces, with the stack as the observation."""
    if external is None:
        return None
    _, mask = action_masks.split_mask(external.observation)
    stack = frame_stacker(external.observation, steps, 0).spaces[-1]
    return external._replace(
        observation=action_masks.add_mask(stack, mask), frame=external.observation
    )


def _stack_host(host: Host, stacker: FrameStacker) -> Host:
    """The functions of a host environment, including the stacks."""
    stacks = jax.eval_shape(lambda: tuple(map(spaces.zeros, stacker.spaces)))
    return extend_host(host, "stack", jax.tree.structure(stacks), FrameStackState)


def extend_host(
    host: Host, prefix: str, memory: Any, state_of: Callable[[ArrayTree, Any], Any]
) -> Host:
    """The functions of a host environment whose state is a pair with a `memory`.

    Args:
        prefix: of the names of its arrays in a checkpoint.
        memory: the tree structure of the second of the pair.
        state_of: makes the pair.
    """

    def save(state: Any) -> dict[str, Any]:
        leaves = enumerate(jax.tree.leaves(state[1]))
        own = {f"{prefix}{index}": np.asarray(leaf) for index, leaf in leaves}
        return {**host.save(state[0]), **own}

    def restore(arrays: Mapping[str, Any]) -> tuple[Any, str]:
        names = [f"{prefix}{index}" for index in range(memory.num_leaves)]
        rest = {name: array for name, array in arrays.items() if name not in names}
        state, warning = host.restore(rest)
        leaves = [np.array(arrays[name]) for name in names]
        return state_of(state, jax.tree.unflatten(memory, leaves)), warning

    set_number = host.set_number

    def set_inner(state: Any, name: str, value: float) -> None:
        assert set_number is not None  # else it is not called
        set_number(state and state[0], name, value)

    return Host(
        save,
        restore,
        close=lambda state: host.close(state[0]),
        restarts=lambda state: host.restarts(state[0]),
        set_number=set_number and set_inner,
        info=lambda state: host.info(state[0]),
    )


def frame_stacker(
    observation: gymnasium.Space,
    steps: Sequence[Preprocess],
    leading: int,
    numpy: Any = jnp,
) -> FrameStacker:
    """Builds the functions that stack frames for `steps`.

    Observations have `leading` axes before those of their space. `numpy` is the module
    that computes the stacks.
    """
    stages = _build_stages(steps, action_masks.split_mask(observation)[0])

    def place(stage: _Stage) -> int:
        return stage.axis if stage.axis < 0 else stage.axis + leading

    def make_frame(stage: _Stage, obs: ArrayTree) -> ArrayTree:
        for function in stage.functions:
            for _ in range(leading):
                function = jax.vmap(function)
            obs = jax.tree.map(numpy.asarray, function(obs))
        # A scalar becomes a vector, an image `[H, W]` gets a channel axis.
        return jax.tree.map(
            lambda leaf: leaf[..., None] if leaf.ndim - leading in (0, 2) else leaf, obs
        )

    def init_stacks(obs: ArrayTree) -> tuple[ArrayTree, ...]:
        stacks, value = [], action_masks.remove_mask(obs)
        for stage in stages:
            frame = make_frame(stage, value)
            value = jax.tree.map(
                lambda leaf, stage=stage: numpy.concatenate(
                    [leaf] * stage.frames, axis=place(stage)
                ),
                frame,
            )
            stacks.append(value)
        return tuple(stacks)

    def push_frame(stack: Any, frame: Any, axis: int) -> Any:
        rest = numpy.split(stack, [frame.shape[axis]], axis=axis)[1]
        return numpy.concatenate([rest, frame], axis=axis)

    def push_stacks(
        stacks: tuple[ArrayTree, ...], obs: ArrayTree
    ) -> tuple[ArrayTree, ...]:
        new_stacks, value = [], action_masks.remove_mask(obs)
        for stage, stack in zip(stages, stacks, strict=True):
            push = functools.partial(push_frame, axis=place(stage))
            value = jax.tree.map(push, stack, make_frame(stage, value))
            new_stacks.append(value)
        return tuple(new_stacks)

    def observe_stacks(stacks: tuple[ArrayTree, ...], obs: ArrayTree) -> ArrayTree:
        if not stacks:
            return obs
        return action_masks.add_mask(stacks[-1], action_masks.get_mask(obs))

    return FrameStacker(
        init_stacks, push_stacks, observe_stacks, tuple(stage.space for stage in stages)
    )


def _build_stages(
    steps: Sequence[Preprocess], space: gymnasium.Space
) -> tuple[_Stage, ...]:
    """Groups the steps into stages, one for each step that stacks frames."""
    stages, functions = [], []
    for step in steps:
        if step.frames > 1:
            space, _ = map_members(_frame_space)(space)
            repeat_member = functools.partial(
                _repeat_space, frames=step.frames, axis=step.axis
            )
            space, _ = map_members(repeat_member)(space)
            stages.append(_Stage(tuple(functions), step.frames, step.axis, space))
            functions = []
        space, function = step.build(space)
        functions.append(function)
    return tuple(stages)


def _frame_space(space: gymnasium.Space) -> tuple[gymnasium.Space, ObservationFunction]:
    """The space of one frame: at least one axis, and three for an image."""
    if isinstance(space, kinds.Discrete):
        dtype = spaces.dtype(space).type
        frame_space = kinds.MultiDiscrete([space.n], dtype, start=[space.start])
        return frame_space, _identity
    if space.shape is None or len(space.shape) not in (0, 2):
        return space, _identity
    match space:
        case kinds.Box():
            low, high = space.low[..., None], space.high[..., None]
            return kinds.Box(low, high, low.shape, space.dtype.type), _identity
        case kinds.MultiDiscrete():
            counts, start = space.nvec[..., None], space.start[..., None]
            return kinds.MultiDiscrete(counts, space.dtype.type, start=start), _identity
        case kinds.MultiBinary():
            return kinds.MultiBinary((*space.shape, 1)), _identity
    return space, _identity


def _repeat_space(
    space: gymnasium.Space, frames: int, axis: int
) -> tuple[gymnasium.Space, ObservationFunction]:
    """The space of `frames` elements, concatenated along `axis`."""
    rank = len(space.shape or ())
    if not -rank <= axis < rank:
        raise RlcliError(
            f"frames cannot be stacked along axis {axis} of {spaces.describe(space)}",
            f"its axes are {', '.join(map(str, range(rank)))}; −1 is the last",
        )

    def repeat(array: Any) -> np.ndarray:
        return np.concatenate([array] * frames, axis=axis)

    match space:
        case kinds.Box():
            low, high = repeat(space.low), repeat(space.high)
            return kinds.Box(low, high, low.shape, space.dtype.type), _identity
        case kinds.MultiDiscrete():
            counts, start = repeat(space.nvec), repeat(space.start)
            return kinds.MultiDiscrete(counts, space.dtype.type, start=start), _identity
        case kinds.MultiBinary():
            return kinds.MultiBinary(repeat(np.zeros(space.shape)).shape), _identity
    raise RlcliError(f"frames of {spaces.describe(space)} cannot be stacked")


def _identity(obs: ArrayTree) -> ArrayTree:
    return obs
