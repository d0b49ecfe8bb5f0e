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


class _Stage(NamedTuple):
    """Functions of an observation, followed by a stack of their results."""

    functions: tuple[ObservationFunction, ...]
    frames: int
    axis: int
    space: gymnasium.Space  # of the stack


class FrameStacker(NamedTuple):
    """Stacks the frames of a sequence of observations.

    Each step that stacks frames is a stage, and each stage has a stack; the stacks are
    a tuple. Without stages, `observation` returns its argument unchanged. An action
    mask passes unchanged.
    """

    stages: tuple[_Stage, ...]
    leading: int  # axes of observations before those of their space
    numpy: Any  # the module that computes the stacks

    @property
    def spaces(self) -> tuple[gymnasium.Space, ...]:
        """The spaces of the stacks."""
        return tuple(stage.space for stage in self.stages)

    def init(self, obs: ArrayTree) -> tuple[ArrayTree, ...]:
        """The stacks of the first observation of an episode."""
        stacks, value = [], action_masks.remove_mask(obs)
        for stage in self.stages:
            repeat = functools.partial(self._repeat, stage)
            value = jax.tree.map(repeat, self._make_frame(stage, value))
            stacks.append(value)
        return tuple(stacks)

    def push(
        self, stacks: tuple[ArrayTree, ...], obs: ArrayTree
    ) -> tuple[ArrayTree, ...]:
        """The stacks after the next observation."""
        new_stacks, value = [], action_masks.remove_mask(obs)
        for stage, stack in zip(self.stages, stacks, strict=True):
            push = functools.partial(self._push_frame, stage)
            value = jax.tree.map(push, stack, self._make_frame(stage, value))
            new_stacks.append(value)
        return tuple(new_stacks)

    def observation(self, stacks: tuple[ArrayTree, ...], obs: ArrayTree) -> ArrayTree:
        """The stack of the last stage, with the mask of `obs`."""
        if not stacks:
            return obs
        return action_masks.add_mask(stacks[-1], action_masks.get_mask(obs))

    def _make_frame(self, stage: _Stage, obs: ArrayTree) -> ArrayTree:
        for function in stage.functions:
            for _ in range(self.leading):
                function = jax.vmap(function)
            obs = jax.tree.map(self.numpy.asarray, function(obs))
        # A scalar becomes a vector, an image `[H, W]` gets a channel axis.
        return jax.tree.map(
            lambda leaf: (
                leaf[..., None] if leaf.ndim - self.leading in (0, 2) else leaf
            ),
            obs,
        )

    def _repeat(self, stage: _Stage, frame: Any) -> Any:
        return self.numpy.concatenate([frame] * stage.frames, axis=self._axis(stage))

    def _push_frame(self, stage: _Stage, stack: Any, frame: Any) -> Any:
        axis = self._axis(stage)
        rest = self.numpy.split(stack, [frame.shape[axis]], axis=axis)[1]
        return self.numpy.concatenate([rest, frame], axis=axis)

    def _axis(self, stage: _Stage) -> int:
        return stage.axis if stage.axis < 0 else stage.axis + self.leading


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

    hosts = {}
    if host is not None:
        memory = jax.eval_shape(lambda: tuple(map(spaces.zeros, stacker.spaces)))
        structure = jax.tree.structure(memory)
        hosts = {"host": extend_host(host, "stack", structure, FrameStackState)}
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
        **hosts,
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
    """The functions that stack the frames of observations for `steps`."""
    space, _ = action_masks.split_mask(observation)
    return FrameStacker(_build_stages(steps, space), leading, numpy)


def _build_stages(
    steps: Sequence[Preprocess], space: gymnasium.Space
) -> tuple[_Stage, ...]:
    """Groups the steps into stages, one for each step that stacks frames."""
    stages, functions = [], []
    for step in steps:
        if step.frames > 1:
            stack = functools.partial(_stack_space, frames=step.frames, axis=step.axis)
            space, _ = map_members(stack)(space)
            stages.append(_Stage(tuple(functions), step.frames, step.axis, space))
            functions = []
        space, function = step.build(space)
        functions.append(function)
    return tuple(stages)


def _stack_space(
    space: gymnasium.Space, frames: int, axis: int
) -> tuple[gymnasium.Space, ObservationFunction]:
    """The space of `frames` frames, concatenated along `axis`.

    A frame has at least one axis, and three if it is an image.
    """
    if isinstance(space, kinds.Discrete):
        dtype = spaces.dtype(space).type
        space = kinds.MultiDiscrete([space.n], dtype, start=[space.start])
    elif space.shape is not None and len(space.shape) in (0, 2):
        frame = _map_bounds(space, lambda bound: bound[..., None])
        space = space if frame is None else frame
    rank = len(space.shape or ())
    if not -rank <= axis < rank:
        raise RlcliError(
            f"frames cannot be stacked along axis {axis} of {spaces.describe(space)}",
            f"its axes are {', '.join(map(str, range(rank)))}; −1 is the last",
        )
    stack = _map_bounds(space, lambda x: np.concatenate([x] * frames, axis=axis))
    if stack is None:
        raise RlcliError(f"frames of {spaces.describe(space)} cannot be stacked")
    return stack, lambda obs: obs


def _map_bounds(
    space: gymnasium.Space, change: Callable[[np.ndarray], np.ndarray]
) -> gymnasium.Space | None:
    """The space whose bounds, and so elements, are changed; None if it has none."""
    match space:
        case kinds.Box():
            low, high = change(space.low), change(space.high)
            return kinds.Box(low, high, low.shape, space.dtype.type)
        case kinds.MultiDiscrete():
            counts, start = change(space.nvec), change(space.start)
            return kinds.MultiDiscrete(counts, space.dtype.type, start=start)
        case kinds.MultiBinary():
            return kinds.MultiBinary(change(np.zeros(space.shape)).shape)
    return None
