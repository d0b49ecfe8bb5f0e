"""Compiled evaluation: whole episodes of a pure environment in one program.

It runs the same episodes as the loop on the host in `rlcli.loop.evaluator`, at
microseconds per step instead of a dispatch. For videos it also records the steps.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from rlcli.loop.advance import info_names, zero_actions
from rlcli.loop.devices import Devices
from rlcli.loop.episode_records import EpisodeFunctions, EpisodeRecords
from rlcli.loop.progress import noise_block_size
from rlcli.loop.seeds import pad_seeds, resize_seeds, vmap_seeds
from rlcli.types import Array, ArrayTree, Environment, Inputs, Policy
from rlcli.xla.fusion_barrier import round_to_dtype
from rlcli.xla.numeric_limits import INT32_MAX
from rlcli.xla.temporaries import temporary_bytes

_FIRST_STEPS = 1024  # steps of each environment in the first call of the program
_GROWTH = 4  # how much longer the next call may be …
_TARGET = 0.25  # … while one takes less than this, in seconds: it cannot be interrupted
_RECORDED_STEPS = 512  # steps of each environment that one call records, at most …
_RECORDED_BYTES = 1 << 24  # … and their size for each seed


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


class CompiledEpisodes:
    """The compiled functions of an evaluation, for all seeds, sharded over devices.

    `at(inputs)` are the environment and the policy of a time. Every environment is
    stepped until all those on its device have finished their episodes. With `recording`
    every call of the program returns its steps.
    """

    def __init__(
        self,
        at: Callable[[Inputs], tuple[Environment, Policy]],
        functions: EpisodeFunctions,
        seeds: int,
        *,
        devices: int = 1,
        recording: bool = False,
    ) -> None:
        self._at, self._functions, self._recording = at, functions, recording
        self._devices = Devices(devices)
        self._share = -(-seeds // devices)  # seeds of a device
        self._padded_seeds = self._share * devices
        self._block = noise_block_size(functions.environment.num_envs * self._share)
        shard, axes = self._devices.shard, (0, 0, 0, 0, None, None)
        self._begin = jax.jit(shard(self._begin_share, (0, 0), 0))
        self._advance = jax.jit(shard(self._advance_share, axes, 0), donate_argnums=2)

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
            self._padded_seeds, (*agents, seeds, reset_seeds)
        )
        state, index = self._begin(inputs, reset_seeds), np.int32(evaluation_index)
        recorded = jax.tree.leaves(state.recording)
        count = limit = recorded[0].shape[1] if recorded else _FIRST_STEPS
        while True:
            start = time.perf_counter()
            state, is_done = self._advance(
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
        acting, inputs, seeds = resize_seeds(self._padded_seeds, (*agents, seeds))
        state = jax.eval_shape(self._begin, inputs, seeds)
        state = self._devices.shapes(state, 0)
        sizes = [size for leaf in jax.tree.leaves(state) for size in leaf.shape]
        if max(sizes) > INT32_MAX:  # XLA cannot index it, and no memory can hold it
            return state, 0
        number = jax.ShapeDtypeStruct((), np.int32)
        program = self._advance.trace(acting, inputs, state, seeds, number, number)
        return state, self._devices.groups * temporary_bytes(program.jaxpr)

    def _begin_share(self, inputs: Inputs, reset_seeds: Array) -> CompiledEpisodesState:
        """The state at the start, of the seeds of one device."""
        begin = vmap_seeds(self._begin_one, self._share, (0, 0), 0)
        time = jnp.zeros(self._share, jnp.int32)
        return CompiledEpisodesState(time, *begin(inputs, reset_seeds))

    def _begin_one(
        self, inputs: Inputs, reset_seed: Array
    ) -> tuple[ArrayTree, ArrayTree, EpisodeRecords]:
        environment, _ = self._at(inputs)
        state, obs = environment.reset(jax.random.key(reset_seed))
        names = info_names(environment, state), [*environment.parameters(state)]
        records = self._functions.begin(obs, *names)
        steps: ArrayTree = ()
        if self._recording:
            steps = _empty_recording(environment, state, records)
        return state, steps, records

    def _draw_block(self, seed: Array, index: Array, start: Array) -> tuple:
        times = start + jnp.arange(self._block)
        return jax.vmap(lambda time: self._functions.draw(seed, index, time))(times)

    def _step_one(
        self,
        acting: ArrayTree,
        inputs: Inputs,
        state: ArrayTree,
        steps: ArrayTree,
        records: EpisodeRecords,
        noise: tuple[ArrayTree, ArrayTree],
        time: Array,
    ) -> tuple[ArrayTree, ArrayTree, EpisodeRecords]:
        (environment, policy), functions = self._at(inputs), self._functions
        policy_noise, environment_noise = noise
        cut = functions.cut(records)
        action, policy_state = functions.select(policy, acting, records, policy_noise)
        outcome = environment.step(state, action, environment_noise, cut)
        # Rounded as on the host, so that both loops compute the same numbers.
        new_state, timestep = round_to_dtype(outcome, time)
        new_records = functions.record(
            records, policy_state, timestep, cut, environment.parameters(state)
        )
        if self._recording:
            step = RecordedStep(
                state,
                action,
                records.running_return,
                records.length,
                timestep.reward,
                last=new_records.first,
                info=_latest_info(new_records, records.num_finished),
            )
            # A call starts at a multiple of their number.
            row = time % len(steps.last)
            steps = jax.tree.map(lambda leaf, new: leaf.at[row].set(new), steps, step)
        return new_state, steps, new_records

    def _advance_share(
        self,
        acting: ArrayTree,
        inputs: Inputs,
        state: CompiledEpisodesState,
        seeds: Array,
        evaluation_index: Array,
        limit: Array,
    ) -> tuple[CompiledEpisodesState, Array]:
        """Steps the environments of one device up to the time `limit`.

        Returns the state, and whether they have finished, both `[S]`.
        """
        share, block = self._share, self._block
        draw = vmap_seeds(self._draw_block, share, (0, None, None), 0)
        step = vmap_seeds(self._step_one, share, (0, 0, 0, 0, 0, 0, None), 0)

        def is_done(records: EpisodeRecords) -> Array:
            return jnp.all(self._functions.has_finished(records))

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
        new_state = CompiledEpisodesState(jnp.full(share, time), *rest)
        return new_state, jnp.full(share, is_done(new_state.records))


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
