"""Compiled evaluation: whole episodes of a pure environment in one program.

It runs the same episodes as the loop on the host in `rlcli.loop.evaluator`, at
microseconds per step instead of a dispatch. For videos it also records the steps.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from rlcli.loop.episode_records import EpisodeFunctions, EpisodeRecords
from rlcli.loop.progress import info_names, noise_block_size, zero_actions
from rlcli.loop.seeds import (
    pad_seeds,
    resize_seeds,
    shapes_on_devices,
    shard_seeds,
    vmap_seeds,
)
from rlcli.types import Array, ArrayTree, Environment, Inputs, Policy
from rlcli.xla.fusion_barrier import round_to_dtype
from rlcli.xla.numeric_limits import INT32_MAX
from rlcli.xla.temporaries import temporary_bytes

_FIRST_STEPS = 1024  # steps of each environment in the first call of the program
_GROWTH = 4  # how much longer the next call may be …
_TARGET = 0.25  # … while one takes less than this, in seconds: it cannot be interrupted
_RECORDED_STEPS = 512  # steps of each environment that one call records, at most …
_RECORDED_BYTES = 1 << 24  # … and their size for each seed


class CompiledEpisodes(NamedTuple):
    """The compiled functions of an evaluation, for all seeds."""

    begin: jax.stages.Wrapped  # (inputs[S], reset_seeds[S]) -> state
    # (acting, inputs, state, seeds, evaluation_index, limit) -> state, is_done[S]
    advance: jax.stages.Wrapped
    padded_seeds: int  # a multiple of `devices`
    devices: int

    def run(
        self,
        agents: tuple[ArrayTree, Inputs],
        seeds: Array,
        reset_seeds: Array,
        evaluation_index: int,
    ) -> Iterator[CompiledEpisodesState]:
        """Runs all episodes, in calls of the program short enough to interrupt.

        `agents` are the acting state and the inputs of each seed. Yields the state
        after each call, `[padded_seeds, ...]`. The next call overwrites it.
        """
        acting, inputs, padded_seeds, reset_seeds = pad_seeds(
            self.padded_seeds, (*agents, seeds, reset_seeds)
        )
        state, index = self.begin(inputs, reset_seeds), np.int32(evaluation_index)
        recorded = jax.tree.leaves(state.recording)
        count = limit = recorded[0].shape[1] if recorded else _FIRST_STEPS
        while True:
            start = time.perf_counter()
            state, is_done = self.advance(
                acting, inputs, state, padded_seeds, index, np.int32(limit)
            )
            has_ended = bool(np.all(is_done))
            if not recorded and time.perf_counter() - start < _TARGET:
                count *= _GROWTH
            yield state
            if has_ended:
                return
            limit += count

    def shapes(
        self, agents: tuple[ArrayTree, Inputs], seeds: Array | jax.ShapeDtypeStruct
    ) -> tuple[ArrayTree, int]:
        """The shapes of the state, and the bytes of temporaries; may take shapes."""
        acting, inputs, seeds = resize_seeds(self.padded_seeds, (*agents, seeds))
        state = jax.eval_shape(self.begin, inputs, seeds)
        state = shapes_on_devices(self.devices, state, 0)
        sizes = [size for leaf in jax.tree.leaves(state) for size in leaf.shape]
        if max(sizes) > INT32_MAX:  # XLA cannot index it, and no memory can hold it
            return state, 0
        number = jax.ShapeDtypeStruct((), np.int32)
        program = self.advance.trace(acting, inputs, state, seeds, number, number)
        return state, self.devices * temporary_bytes(program.jaxpr)


class RecordedStep(NamedTuple):
    """A step of the environments of one seed, `[B, ...]`."""

    state: ArrayTree  # of the environments, before the step
    action: ArrayTree
    running_return: Array  # before the step
    length: Array  # before the step
    reward: Array
    last: Array
    info: Mapping[str, Array]  # what the episode has logged, after the step


class CompiledEpisodesState(NamedTuple):
    """The state of an evaluation between two calls of the program."""

    time: Array  # int32 [S]: steps of each environment so far, the same on a device
    environment: ArrayTree
    # The `RecordedStep`s of the last call, `[S, T, ...]`; () if it records nothing.
    recording: ArrayTree
    records: EpisodeRecords


def compiled_episodes(
    at: Callable[[Inputs], tuple[Environment, Policy]],
    functions: EpisodeFunctions,
    seeds: int,
    *,
    num_envs: int,
    devices: int = 1,
    recording: bool = False,
) -> CompiledEpisodes:
    """Compiles an evaluation of `seeds` policies, sharded over devices.

    `at(inputs)` are the environment and the policy of a time. Every environment is
    stepped until all those on its device have finished their episodes. With `recording`
    every call of the program returns its steps.
    """
    share = -(-seeds // devices)
    block = noise_block_size(num_envs * share)

    def begin_one(
        inputs: Inputs, reset_seed: Array
    ) -> tuple[ArrayTree, ArrayTree, EpisodeRecords]:
        environment, _ = at(inputs)
        state, obs = environment.reset(jax.random.key(reset_seed))
        names = info_names(environment, state), [*environment.parameters(state)]
        records = functions.begin(obs, *names)
        steps = _empty_recording(environment, state, records) if recording else ()
        return state, steps, records

    def draw_block(seed: Array, index: Array, start: Array) -> tuple:
        times = start + jnp.arange(block)
        return jax.vmap(lambda time: functions.draw(seed, index, time))(times)

    def step_one(
        acting: ArrayTree,
        inputs: Inputs,
        state: ArrayTree,
        steps: ArrayTree,
        records: EpisodeRecords,
        noise: tuple[ArrayTree, ArrayTree],
        time: Array,
    ) -> tuple[ArrayTree, ArrayTree, EpisodeRecords]:
        environment, policy = at(inputs)
        policy_noise, environment_noise = noise
        cut = functions.cut(records)
        action, policy_state = functions.select(policy, acting, records, policy_noise)
        outcome = environment.step(state, action, environment_noise, cut)
        # Rounded as on the host, so that both loops compute the same numbers.
        new_state, timestep = round_to_dtype(outcome, time)
        new_records = functions.record(
            records, policy_state, timestep, cut, environment.parameters(state)
        )
        if recording:
            step = RecordedStep(
                state,
                action,
                records.running_return,
                records.length,
                timestep.reward,
                last=new_records.first,
                info=_latest_info(new_records, records.num_finished),
            )
            steps = _write_step(steps, step, time)
        return new_state, steps, new_records

    begin_all = vmap_seeds(begin_one, share, (0, 0), 0)
    draw_all = vmap_seeds(draw_block, share, (0, None, None), 0)
    step_all = vmap_seeds(step_one, share, (0, 0, 0, 0, 0, 0, None), 0)

    def begin(inputs: Inputs, reset_seeds: Array) -> CompiledEpisodesState:
        return CompiledEpisodesState(
            jnp.zeros(share, jnp.int32), *begin_all(inputs, reset_seeds)
        )

    advance = functools.partial(_advance, functions, draw_all, step_all, block)
    return CompiledEpisodes(
        jax.jit(shard_seeds(begin, devices, (0, 0), 0)),
        jax.jit(
            shard_seeds(advance, devices, (0, 0, 0, 0, None, None), 0), donate_argnums=2
        ),
        share * devices,
        devices,
    )


def _empty_recording(
    environment: Environment, state: ArrayTree, records: EpisodeRecords
) -> RecordedStep:
    """The arrays for the steps of one call, for one seed, `[T, B, ...]`."""
    step = RecordedStep(
        state,
        zero_actions(environment),
        records.running_return,
        records.length,
        reward=records.running_return,
        last=records.first,
        info=records.running_info,
    )
    size = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(step))
    length = max(1, min(_RECORDED_STEPS, _RECORDED_BYTES // size))
    return jax.tree.map(
        lambda leaf: jnp.broadcast_to(leaf, (length, *leaf.shape)), step
    )


def _latest_info(records: EpisodeRecords, episodes: Array) -> dict[str, Array]:
    """What each environment's episode of this number has logged so far, `[B]` each."""
    rows = jnp.arange(len(episodes)), episodes
    return {name: table.at[rows].get() for name, table in records.info.items()}


def _write_step(steps: RecordedStep, step: RecordedStep, time: Array) -> RecordedStep:
    """Writes the step at `time`; a call starts at a multiple of their number."""
    row = time % len(steps.last)
    return jax.tree.map(lambda leaf, new: leaf.at[row].set(new), steps, step)


def _advance(
    functions: EpisodeFunctions,
    draw: Callable,
    step: Callable,
    block: int,
    acting: ArrayTree,
    inputs: Inputs,
    state: CompiledEpisodesState,
    seeds: Array,
    evaluation_index: Array,
    limit: Array,
) -> tuple[CompiledEpisodesState, Array]:
    """`CompiledEpisodes.advance` for the seeds of one device.

    `draw` draws the noise of a block of steps, and `step` makes one step, both of all
    these seeds.
    """

    def is_done(records: EpisodeRecords) -> Array:
        return jnp.all(functions.has_finished(records))

    def is_running(carry: tuple) -> Array:
        return (carry[0] < limit) & ~is_done(carry[-1])

    def run_block(carry: tuple) -> tuple:
        start = carry[0]
        noise = draw(seeds, evaluation_index, start)

        def run_step(carry: tuple) -> tuple:
            time, *rest = carry
            step_noise = jax.tree.map(lambda leaf: leaf[:, time - start], noise)
            return time + 1, *step(acting, inputs, *rest, step_noise, time)

        def is_in_block(carry: tuple) -> Array:
            return (carry[0] < start + block) & is_running(carry)

        return jax.lax.while_loop(is_in_block, run_step, carry)

    carry = state.time[0], *state[1:]
    time, *rest = jax.lax.while_loop(is_running, run_block, carry)
    share = len(seeds)
    new_state = CompiledEpisodesState(jnp.full(share, time), *rest)
    return new_state, jnp.full(share, is_done(new_state.records))
