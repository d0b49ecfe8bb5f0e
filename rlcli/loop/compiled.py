"""The compiled loop: of a pure environment, in chunks of many iterations."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from rlcli.loop.advance import advance, block_of, noise_of, noted
from rlcli.loop.engine import Loop
from rlcli.loop.progress import (
    AXES,
    RESET,
    Progress,
    Setup,
    begin,
    clock_at,
    draw,
    midnight,
    now,
    said,
    stream,
)
from rlcli.loop.seeds import numbers, over_seeds
from rlcli.types import Array, ArrayTree
from rlcli.xla.control_flow import zeros
from rlcli.xla.fusion_barrier import rounded
from rlcli.xla.packing import Packed, Packing
from rlcli.xla.temporaries import temporary_bytes


def compiled(setup: Setup) -> Loop:
    """Chunks of iterations as one program, spread over devices, then vmapped."""
    share = len(setup.seeds) // setup.devices  # seeds of one device
    mesh = Mesh(np.array(jax.devices()[: setup.devices]), ("seeds",))
    each, same = PartitionSpec("seeds"), PartitionSpec()
    specs = Progress._make(same if axis is None else each for axis in AXES)
    spread = functools.partial(jax.shard_map, mesh=mesh, check_vma=False)

    def begin_one(seed: Array) -> Progress:
        environment, _ = setup.parts(midnight())
        state, obs = environment.reset(stream(seed, RESET))
        return begin(setup, seed, state, obs, said(environment, state))

    begin_all = jax.jit(
        spread(over_seeds(begin_one, share, (0,), AXES), in_specs=each, out_specs=specs)
    )
    advance_all = jax.jit(
        spread(
            over_seeds(_chunk(setup), share, (AXES, None), (AXES, 0)),
            in_specs=(specs, same),
            out_specs=(specs, each),
        ),
        donate_argnums=0,
    )

    @functools.cache
    def traced() -> tuple[Progress, int]:
        seeds = jax.ShapeDtypeStruct((len(setup.seeds),), jnp.uint32)
        progress = jax.eval_shape(begin_all, seeds)
        program = advance_all.trace(progress, jnp.int32(1))
        return progress, setup.devices * temporary_bytes(program.jaxpr)

    def restore(saved: ArrayTree) -> tuple[Progress, str]:
        # As JAX lays out its own results, which on one device are spread over nothing:
        # else a run that goes on would be another program, and compiled anew.
        laid = specs if setup.devices > 1 else Progress._make(same for _ in specs)
        layout = jax.tree.map(lambda spec: NamedSharding(mesh, spec), laid)
        return jax.device_put(saved, layout), ""

    return Loop(
        begin=lambda: begin_all(numbers(setup)),
        advance=lambda progress, count: advance_all(progress, np.int32(count)),
        save=lambda progress: progress,
        restore=restore,
        shapes=lambda: traced()[0],
        close=lambda progress: None,
        temporaries=lambda: traced()[1],
    )


def _chunk(setup: Setup) -> Callable:
    """`(progress, iterations) -> progress, metrics` of one seed.

    One program for any number of iterations: blocks of steps whose noise is drawn at
    once, and in each a loop with a traced count.
    """
    block = block_of(setup)

    def step(
        progress: Progress, noise: tuple[ArrayTree, ...], watched: Array
    ) -> tuple[Progress, Mapping[str, Array]]:
        step_noise, *rest = noise
        clock = clock_at(progress, now(setup, progress), watched)
        environment, _ = setup.parts(clock)
        cut = setup.reset & (progress.position + 1 == setup.unroll)
        answer = environment.step(
            progress.environment, progress.pending.action, step_noise, cut
        )
        # As the host gets it; else the bits would be others than the host's.
        state, timestep = rounded(answer, progress.iteration)
        progress = progress._replace(environment=state)
        return advance(setup, progress, timestep, tuple(rest), watched)

    def chunk(
        progress: Progress, iterations: Array
    ) -> tuple[Progress, Mapping[str, Array]]:
        total = iterations * setup.unroll
        _, agent = setup.parts(midnight())
        made = agent.updates(progress.iteration + iterations)

        def many(i: Array, carry: tuple) -> tuple:
            noise = noise_of(setup, progress.seed, now(setup, carry[0]))

            def one(j: Array, carry: tuple) -> tuple:
                drawn = jax.tree.map(lambda leaf: leaf[j], noise)

                def advanced(before: Progress, watched: Array) -> tuple:
                    return step(before, drawn, watched)

                return packed(*noted(agent, advanced, unpacked(*carry), made))

            count = jnp.minimum(block, total - i * block)
            return jax.lax.fori_loop(0, count, one, carry)

        noise = jax.eval_shape(lambda: draw(setup, progress.seed, jnp.int32(0)))
        _, metrics = jax.eval_shape(step, progress, noise, jnp.bool_(True))
        # What is shown of a run is some ten numbers, each of which would be a kernel of
        # its own at every step: they go around as one array of each dtype.
        packing = Packing((progress.statistics, progress.faults.not_finite, metrics))

        def packed(progress: Progress, metrics: Mapping[str, Array]) -> tuple:
            faults = progress.faults
            shown = (progress.statistics, faults.not_finite, metrics)
            rest = faults._replace(not_finite=())  # which never changes here
            return progress._replace(statistics=(), faults=rest), packing.pack(shown)

        def unpacked(progress: Progress, numbers: Packed) -> tuple[Progress, Any]:
            statistics, not_finite, metrics = packing.unpack(numbers)
            faults = progress.faults._replace(not_finite=not_finite)
            return progress._replace(statistics=statistics, faults=faults), metrics

        blocks = (total + block - 1) // block
        carry = packed(progress, zeros(metrics))
        return unpacked(*jax.lax.fori_loop(0, blocks, many, carry))

    return chunk
