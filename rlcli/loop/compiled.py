"""The compiled loop for pure environments, in chunks of many iterations."""

import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from rlcli.loop import phases
from rlcli.loop.advance import (
    advance,
    advance_with_metrics,
    first_inputs,
    info_names,
    initial_progress,
    inputs_at,
)
from rlcli.loop.devices import divide
from rlcli.loop.log import Log, empty_buffer, finished_episodes, write_if
from rlcli.loop.progress import RESET, Loop, Progress, Setup, stream_key
from rlcli.loop.seeds import map_seeds, vmap_seeds
from rlcli.types import Array, ArrayTree
from rlcli.xla.control_flow import zeros_of_shapes
from rlcli.xla.debugging import locate
from rlcli.xla.fusion_barrier import round_to_dtype
from rlcli.xla.packing import PackedTree, Packing


def compiled_loop(setup: Setup) -> Loop:
    """Compiles chunks of iterations, vmapped over seeds and divided among devices."""
    seeds_per_device = len(setup.padded_seeds) // setup.devices

    def begin_one(seed: Array, numbers: Array) -> Progress:
        environment, _ = setup.at(first_inputs(setup, numbers))
        state, obs = environment.reset(stream_key(seed, RESET))
        names = info_names(environment, state)
        return initial_progress(setup, seed, numbers, state, obs, names)

    def begin_share(seeds: Array, numbers: Array) -> Progress:
        if setup.has_own_numbers:
            return map_seeds(begin_one, seeds_per_device, setup.axes)(seeds, numbers)
        begin = functools.partial(begin_one, numbers=numbers)
        return map_seeds(begin, seeds_per_device, setup.axes)(seeds)

    axes = (setup.axes, None), (setup.axes, 0)
    advance_share = vmap_seeds(_chunk_function(setup), seeds_per_device, *axes)
    return divide(setup, begin_share, advance_share)


class _ScalarPacking:
    """Packs statistics and metrics, one array per dtype.

    They are about ten scalars, and each would need a kernel of its own at every step of
    the loop.
    """

    def __init__(self, progress: Progress, metrics: Mapping[str, Any]) -> None:
        self._packing = Packing(
            (progress.statistics, progress.faults.not_finite, metrics)
        )

    def pack(
        self, progress: Progress, metrics: Mapping[str, Array]
    ) -> tuple[Progress, PackedTree]:
        """Returns the progress without its scalars, and the packed scalars."""
        faults = progress.faults
        scalars = (progress.statistics, faults.not_finite, metrics)
        # `outside` stays: it is constant here, because only the host loop updates it.
        rest = faults._replace(not_finite=())
        return progress._replace(statistics=(), faults=rest), self._packing.pack(
            scalars
        )

    def unpack(self, progress: Progress, packed: PackedTree) -> tuple[Progress, Any]:
        """The inverse of `pack`."""
        statistics, not_finite, metrics = self._packing.unpack(packed)
        faults = progress.faults._replace(not_finite=not_finite)
        return progress._replace(statistics=statistics, faults=faults), metrics

    def read_row(self, row: Mapping[str, Array], packed: PackedTree) -> Log:
        """A row of the log, from a row of the buffer.

        The buffer has no large arrays, such as the running returns of many
        environments. `unpack` requires them, so it gets those of `packed`. The log does
        not contain them.
        """
        statistics, _, metrics = self._packing.unpack(PackedTree(row, packed.large))
        return Log(finished_episodes(statistics), metrics)


class _ChunkSteps(NamedTuple):
    """The steps of a chunk, in blocks whose noise is drawn in one call."""

    setup: Setup
    step: Callable  # (progress, noise, compute_metrics) -> progress, metrics
    packing: _ScalarPacking
    seed: Array
    num_steps: Array
    # Both are indexed by `buffer.row`, the next row to write. The index is past the
    # end, where JAX clamps it, only after the last row was written. That happens in the
    # last iteration, so the clamped value is never used.
    points: Array  # the iterations of the log points
    updates_at_points: Array

    def run_all(self, carry: tuple) -> tuple:
        """Runs all blocks; `carry` is (progress, packed scalars, buffer of the log)."""
        blocks = (self.num_steps + self.setup.noise_block - 1) // self.setup.noise_block
        return jax.lax.fori_loop(0, blocks, self._run_block, carry)

    def _run_block(self, i: Array, carry: tuple) -> tuple:
        start = self.setup.current_step(carry[0])
        with jax.named_scope(phases.NOISE):
            noise = self.setup.draw_noise_block(self.seed, start)

        def run_step(j: Array, carry: tuple) -> tuple:
            return self._run_step(jax.tree.map(lambda leaf: leaf[j], noise), carry)

        count = jnp.minimum(
            self.setup.noise_block, self.num_steps - i * self.setup.noise_block
        )
        return jax.lax.fori_loop(0, count, run_step, carry)

    def _run_step(self, noise: ArrayTree, carry: tuple) -> tuple:
        before, packed, buffer = carry
        after, metrics = advance_with_metrics(
            self.setup.agent,
            lambda progress, compute_metrics: self.step(
                progress, noise, compute_metrics
            ),
            self.packing.unpack(before, packed),
            self.updates_at_points[buffer.row],
        )
        after, packed = self.packing.pack(after, metrics)
        is_at_point = after.iteration == self.points[buffer.row]
        is_due = (after.iteration > before.iteration) & is_at_point
        return after, packed, write_if(is_due, buffer, packed)


def _chunk_function(setup: Setup) -> Callable:
    """Returns `(progress, counts) -> progress, log` of one seed.

    `counts` are the log points, as numbers of iterations since the start of the chunk.
    The last one is the length of the chunk.

    The program is the same for any number of iterations: the noise is drawn for a block
    of steps, and the inner loop over the block has a traced length.
    """

    @jax.jit  # traced once, for the shapes of metrics and for the loop
    def step(
        progress: Progress, noise: tuple[ArrayTree, ...], compute_metrics: Array
    ) -> tuple[Progress, Mapping[str, Array]]:
        step_noise, *rest = noise
        now = setup.current_step(progress)
        inputs = inputs_at(setup, progress, now, compute_metrics)
        environment, _ = setup.at(inputs)
        cut = setup.is_cut(progress)
        with jax.named_scope(phases.ENVIRONMENT), locate("the environment"):
            outcome = environment.step(
                progress.environment, progress.pending.action, step_noise, cut
            )
        # Rounded as on the host, so that both loops compute the same numbers.
        state, timestep = round_to_dtype(outcome, progress.iteration)
        progress = progress._replace(environment=state)
        return advance(setup, progress, timestep, tuple(rest), compute_metrics)

    def chunk(progress: Progress, counts: Array) -> tuple[Progress, Log]:
        noise = jax.eval_shape(setup.draw_step_noise, progress.seed, jnp.int32(0))
        _, metrics = jax.eval_shape(step, progress, noise, jnp.bool_(True))
        packing, points = _ScalarPacking(progress, metrics), progress.iteration + counts
        steps = _ChunkSteps(
            setup,
            step,
            packing,
            seed=progress.seed,
            num_steps=counts[-1] * setup.unroll,
            points=points,
            updates_at_points=setup.agent.count_updates(points),
        )
        remaining, packed = packing.pack(progress, zeros_of_shapes(metrics))
        carry = remaining, packed, empty_buffer(packed)
        remaining, packed, buffer = steps.run_all(carry)
        progress, _ = packing.unpack(remaining, packed)
        read_row = functools.partial(packing.read_row, packed=packed)
        return progress, jax.vmap(read_row)(buffer.rows)

    return chunk
