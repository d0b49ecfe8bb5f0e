"""Progress: the parts of a run, and its complete state.

Every random number comes from a key derived from (seed, stream, step), so Progress
contains no key.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float32, Int32, UInt32

from rlcli.loop.episode_statistics import EpisodeStatistics
from rlcli.loop.faults import Faults
from rlcli.loop.log import Log
from rlcli.schedules import Success
from rlcli.types import (
    Agent,
    Array,
    ArrayTree,
    Environment,
    Inputs,
    Key,
    Network,
    Transition,
)
from rlcli.xla.data_axis import draw_share, fold_in_device
from rlcli.xla.random_bits import unroll_key

# The random streams of a seed. EVALUATION is for evaluation and rendering, which
# therefore never change training.
INIT, RESET, STEP, POLICY, LEARN, EVALUATION = range(6)

# One call draws the noise of a block of steps, of at most `_BLOCK` steps and
# `_BLOCK_ROWS` transitions.
_BLOCK = 128
_BLOCK_ROWS = 16_384


class Setup(NamedTuple):
    """The parts of a run, as `assembly` builds them from a recipe.

    `environment` and `agent` are the parts at the start of the run. Use them only for
    values that do not depend on schedules: spaces, `num_envs`, `draw`, `init`,
    `acting`, `count_updates`. Code that steps the environment, selects actions or
    learns must call `at(inputs)`, which evaluates the schedules. With `data_parallel`,
    both fields are the parts of one device, with its share of the environments.

    Step t of the environments and the action of that step see time t. The updates of an
    iteration see the time at which its unroll began.
    """

    environment: Environment
    agent: Agent
    # inputs -> environment and agent, with the schedules' values at their time
    at: Callable[[Inputs], tuple[Environment, Agent]]
    unroll: int  # steps of each environment per iteration
    seeds: tuple[int, ...]
    devices: int = 1
    resets_unroll: bool = False  # whether every unroll starts with a reset
    # The numbers that are arguments of the compiled program, by their places in the
    # recipe; `Progress.numbers` is the array of their values. Runs that are trained
    # together have one value for each of `seeds`.
    numbers: Mapping[str, float | tuple[float, ...]] = {}
    # The steps of the data set of a replay, `[N, ...]` on the host; () without one. A
    # function, because only training reads the file: evaluation does not need it.
    data: Callable[[], ArrayTree] = lambda: ()
    # inputs -> the values of options that follow a schedule, by their places in the
    # recipe, apart from those of the policy: they are metrics of the updates.
    scheduled: Callable[[Inputs], Mapping[str, Float32[Array, ""]]] = lambda inputs: {}
    networks: Mapping[str, Network] = {}  # by function, for what their groups contain
    # (agent state, seed) -> the agent state with which a seed begins, of the same shape
    start: Callable[[ArrayTree, UInt32[Array, ""]], ArrayTree] = lambda state, _: state
    # Devices that share the environments of each seed. The seeds are divided among
    # `devices` such groups.
    data_parallel: int = 1
    # What the schedules that follow success wait for, by key.
    conditions: Mapping[str, Success] = {}

    @property
    def all_devices(self) -> int:
        """The number of devices of the run."""
        return self.devices * self.data_parallel

    @property
    def padded_seeds(self) -> tuple[int, ...]:
        """The seeds, with the last one repeated up to a multiple of `devices`."""
        return self.seeds + self.seeds[-1:] * (-len(self.seeds) % self.devices)

    @property
    def has_own_numbers(self) -> bool:
        """Whether each seed has numbers of its own."""
        return any(isinstance(value, tuple) for value in self.numbers.values())

    @property
    def axes(self) -> Progress:
        """The axis of the seeds in each field of `Progress`; None if it has none."""
        return AXES._replace(numbers=0) if self.has_own_numbers else AXES

    @property
    def steps_per_iteration(self) -> int:
        """Environment steps of one seed, over all its environments."""
        return self.unroll * self.environment.num_envs * self.data_parallel

    @property
    def seed_array(self) -> UInt32[Array, "P"]:
        """The padded seeds."""
        return jnp.asarray(np.array(self.padded_seeds, np.uint32))

    @property
    def numbers_array(self) -> Float32[Array, "... N"]:
        """The values of `Setup.numbers`, for each padded seed if it has its own."""
        values = [*self.numbers.values()]
        if not self.has_own_numbers:
            return jnp.asarray(values, jnp.float32)
        rows = np.stack([np.broadcast_to(x, len(self.seeds)) for x in values], axis=1)
        padding = len(self.padded_seeds) - len(self.seeds)
        padded = np.pad(rows, ((0, padding), (0, 0)), "edge")
        return jnp.asarray(padded, jnp.float32)

    def numbers_by_place(
        self, numbers: Float32[Array, "N"]
    ) -> dict[str, Float32[Array, ""]]:
        """The numbers of `Inputs`, from the array of their values."""
        return dict(zip(self.numbers, numbers, strict=True))

    def current_step(self, progress: Progress) -> Int32[Array, ""]:
        """Steps of each environment so far."""
        return progress.iteration * self.unroll + progress.position

    def is_cut(self, progress: Progress) -> Bool[Array, ""]:
        """Whether the next step ends all episodes, because the next unroll resets."""
        return self.resets_unroll & (progress.position + 1 == self.unroll)

    def draw_step_noise(self, seed: Array, time: Array) -> tuple[ArrayTree, ...]:
        """Draws the noise of one step, for the environment, the policy and the update.

        It depends only on the seed and on `time`, the number of the step.
        """
        environment, agent = self.environment, self.agent
        step_key, action_key, learn_key = (
            jax.random.fold_in(stream_key(seed, index), time)
            for index in (STEP, POLICY, LEARN)
        )
        # In a longer unroll only the last step learns. The noise of an update is then
        # its key, from which `advance` draws.
        learn_key = fold_in_device(learn_key)
        learn_noise = agent.draw(learn_key) if self.unroll == 1 else learn_key
        action_noise = draw_share(agent.policy.draw, action_key, environment.num_envs)
        return environment.draw(step_key), action_noise, learn_noise

    @property
    def noise_block(self) -> int:
        """The number of steps whose noise one call draws."""
        return noise_block_size(self.environment.num_envs)

    def draw_noise_block(self, seed: Array, start: Array) -> tuple[ArrayTree, ...]:
        """The noise of a block of steps, `[block, ...]`.

        The host loop draws it in blocks, too: if XLA fused a draw with the operations
        that use it, the noise could be rounded differently than in the compiled loop.
        """
        times = start + jnp.arange(self.noise_block)
        return jax.vmap(lambda time: self.draw_step_noise(seed, time))(times)


def noise_block_size(num_envs: int) -> int:
    """The number of steps of `num_envs` environments whose noise one call draws."""
    return max(1, min(_BLOCK, _BLOCK_ROWS // num_envs))


class Pending(NamedTuple):
    """An action that the environment has not executed yet, `[B, ...]`."""

    obs: ArrayTree
    action: ArrayTree
    first: Bool[Array, "*B"]
    extras: ArrayTree


class Progress(NamedTuple):
    """The complete state of a run. The first two fields have no axis for the seeds."""

    iteration: Int32[Array, ""]  # iterations finished
    position: Int32[Array, ""]  # steps of the unroll that are filled
    seed: UInt32[Array, "*S"]
    environment: ArrayTree
    pending: Pending
    policy: ArrayTree
    unroll: Transition  # [T, B, ...]; zeros if T is 1: a single step is not stored
    agent: ArrayTree
    statistics: EpisodeStatistics
    faults: Faults
    # The inputs of the program, which its steps only read. They are not saved.
    numbers: Float32[Array, "... N"]  # see `Setup.numbers`
    data: ArrayTree = ()  # see `Setup.data`


class Loop(NamedTuple):
    """A training loop, for all seeds of a run simultaneously."""

    begin: Callable[[], Progress]
    # (progress, counts) -> progress, log: `counts` are increasing numbers of
    # iterations. Runs `counts[-1]` iterations, and logs a row after each count. The
    # arrays of the given progress are donated: they can no longer be used.
    advance: Callable[[Progress, int | Sequence[int]], tuple[Progress, Log]]
    # progress -> the arrays of a checkpoint
    save: Callable[[Progress], ArrayTree]
    # arrays -> progress, and a message about state that could not be restored, or ""
    restore: Callable[[ArrayTree], tuple[Progress, str]]
    # () -> the shapes of the arrays of `save`, without the state of a host environment
    shapes: Callable[[], Progress]
    close: Callable[[Progress], None]
    # () -> a lower bound on the bytes of temporary arrays, over all devices. Traces the
    # program, so that inconsistent parts and arrays that do not fit in memory raise an
    # error.
    temporary_bytes: Callable[[], int]
    # () -> the compiled program of `advance`, as text: a profile takes the names of
    # operations from it
    hlo: Callable[[], str]


# The axis of the seeds in each field; None for a field without this axis.
AXES = Progress._make([None, None, 0, 0, 0, 0, 0, 0, 0, 0, None, None])


def stream_key(seed: Array | int, index: int) -> Key:
    """The key of one random stream of a seed; `index` is a stream such as `RESET`."""
    return jax.random.fold_in(unroll_key(jax.random.key(seed)), index)
