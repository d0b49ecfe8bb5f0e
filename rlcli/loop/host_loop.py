"""The host loop: one dispatch per step, for environments that JAX cannot trace.

Small arrays are passed to and from the program packed (see `rlcli.xla.packing`).
"""

import contextlib
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from rlcli import spaces
from rlcli.environments.adapters.info_recorder import InfoStatistics
from rlcli.loop import phases
from rlcli.loop.advance import advance, advance_with_metrics, initial_progress
from rlcli.loop.log import Log, finished_episodes, log_points
from rlcli.loop.progress import AXES, Loop, Progress, Setup
from rlcli.loop.seeds import expand_seed, map_seeds, squeeze_seed, vmap_seeds
from rlcli.types import Array, ArrayTree, Environment, TimeStep
from rlcli.xla import threads
from rlcli.xla.control_flow import zeros_of_shapes
from rlcli.xla.packing import SMALL_SIZE, InPlacePacking, PackedTree, Packing
from rlcli.xla.temporaries import temporary_bytes, tree_bytes
from rlcli.xla.threads import pin_threads

_CARRY_AXES = (AXES, 0)  # the axes of the seeds in progress and metrics


class _Program(NamedTuple):
    """The compiled functions of a run."""

    # (seeds[S], time) -> noise of a block of steps, `[S, block, ...]`: of the
    # environments, and of the agents, packed
    draw: Callable
    # progress -> packed, with the metrics; the progress can no longer be used
    pack: Callable
    # (packed, packed timestep, noise, final_updates) -> packed, action
    step: Callable
    unpack: Callable  # packed -> progress, metrics; the inverse of `pack`
    pack_timestep: Callable  # timestep of NumPy arrays -> packed
    temporary_bytes: int  # bytes, of `step` and of its noise
    hlo: Callable[[], str]  # the compiled `step`


def host_loop(setup: Setup) -> Loop:
    """Runs one dispatch per environment step, with `environment.step` on the host."""
    environment = setup.environment
    host = environment.host
    assert host is not None
    seeds, numbers = setup.seed_array, setup.numbers_array
    obs, timestep = timestep_shapes(len(setup.seeds), environment)

    @jax.jit
    def begin_all(seeds: Array, numbers: Array, obs: ArrayTree) -> Progress:
        def begin_one(seed: Array, obs: ArrayTree) -> Progress:
            return initial_progress(setup, seed, numbers, (), obs)

        return map_seeds(begin_one, len(setup.seeds), AXES)(seeds, obs)

    @functools.cache
    def shapes() -> Progress:
        return jax.eval_shape(begin_all, seeds, numbers, obs)

    @functools.cache
    def program() -> _Program:
        data = jax.eval_shape(setup.data)
        return _build_program(setup, shapes()._replace(data=data), timestep)

    def begin() -> Progress:
        host_seeds: Any = np.array(setup.seeds, np.uint32)  # in place of a key
        state, obs = environment.reset(host_seeds)
        progress = begin_all(seeds, numbers, obs)
        return progress._replace(environment=state, data=jax.device_put(setup.data()))

    def advance_by(
        progress: Progress, counts: int | Sequence[int]
    ) -> tuple[Progress, Log]:
        rows, start = [], int(progress.iteration)
        points = log_points(counts)
        for count in np.unique(points):
            end = start + int(count)
            progress, metrics = _advance_to(setup, program(), progress, end)
            row = jax.device_get(Log(finished_episodes(progress.statistics), metrics))
            rows.append(_add_info(row, host.info(progress.environment)))
        rows = _fill_missing(rows)
        unused = (0, 0), (0, len(points) - len(rows))
        return progress, jax.tree.map(
            lambda *leaves: np.pad(np.stack(leaves, axis=1), unused), *rows
        )

    def save(progress: Progress) -> ArrayTree:
        arrays = host.save(progress.environment)
        return progress._replace(environment=arrays, numbers=(), data=())

    def restore(arrays: ArrayTree) -> tuple[Progress, str]:
        state, warning = host.restore(arrays.environment)
        # Not the array `numbers` itself, since `advance` donates its argument.
        arrays_on_host = arrays._replace(environment=(), numbers=np.asarray(numbers))
        device = jax.device_put(arrays_on_host)
        data = jax.device_put(setup.data())
        return device._replace(environment=state, data=data), warning

    def close(progress: Progress) -> None:
        host.close(progress.environment)

    return Loop(
        begin=begin,
        advance=advance_by,
        save=save,
        restore=restore,
        shapes=lambda: shapes()._replace(numbers=()),
        close=close,
        temporary_bytes=lambda: program().temporary_bytes,
        hlo=lambda: program().hlo(),
    )


def _add_info(row: Log, info: InfoStatistics | None) -> Log:
    """Adds what the environment itself has recorded of `info`."""
    if info is None:
        return row
    names = {"last_info": info.last, "total_info": info.total, "max_info": info.max}
    return row._replace(statistics=row.statistics._replace(**names))


def _fill_missing(rows: Sequence[Log]) -> list[Log]:
    """The rows with the same names: NaN for those that came later."""
    newest = rows[-1].statistics

    def fill(row: Log) -> Log:
        fields = ("last_info", "total_info", "max_info")
        filled = {
            field: {
                name: getattr(row.statistics, field).get(
                    name, np.full_like(value, np.nan)
                )
                for name, value in getattr(newest, field).items()
            }
            for field in fields
        }
        return row._replace(statistics=row.statistics._replace(**filled))

    return [fill(row) for row in rows]


def _advance_to(
    setup: Setup, program: _Program, progress: Progress, end: int
) -> tuple[Progress, Mapping[str, Array]]:
    """Runs until iteration `end`."""
    environment, seeds = setup.environment, setup.seed_array
    block = setup.noise_block
    is_pinned = threads.is_single_threaded() and jax.default_backend() == "cpu"
    state = progress.environment
    # Copied: the environment reads it after `pack`, which donates large arrays.
    action = jax.tree.map(jnp.copy, progress.pending.action)
    packed_carry = program.pack(progress._replace(environment=()))
    final_updates = jnp.asarray(setup.agent.count_updates(end))
    noise, start = None, int(progress.iteration) * setup.unroll
    with pin_threads() if is_pinned else contextlib.nullcontext():
        for time in range(start, end * setup.unroll):
            row = time % block
            if row == 0 or noise is None:
                block_noise, noise = program.draw(seeds, np.int32(time - row))
                leaves, structure = jax.tree.flatten(block_noise)
            env_noise = structure.unflatten([leaf[:, row] for leaf in leaves])
            cut = setup.resets_unroll and (time + 1) % setup.unroll == 0
            with jax.profiler.TraceAnnotation(phases.ENVIRONMENT):
                state, timestep = environment.step(state, action, env_noise, cut)
            if timestep.info:  # recorded by the environment itself
                timestep = timestep._replace(info={})
            packed_timestep = program.pack_timestep(timestep)
            packed_carry, action = program.step(
                packed_carry, packed_timestep, noise, final_updates
            )
    progress, metrics = program.unpack(packed_carry)
    return progress._replace(environment=state), metrics


def _build_program(setup: Setup, progress: Progress, timestep: TimeStep) -> _Program:
    """Traces all functions, so that arrays that do not fit in memory raise an error.

    `progress` and `timestep` are shapes.
    """
    seeds = len(setup.seeds)
    # The carry of a single seed has no axis for seeds: with one, XLA would not update
    # the donated buffers in place, and would copy the replay at every step.
    is_single = seeds == 1

    _, *shapes = jax.eval_shape(setup.draw_step_noise, setup.seed_array[0], 0)
    noises = Packing(tuple(shapes))  # of one agent and step

    def draw_one(seed: Array, start: Array) -> tuple[ArrayTree, PackedTree]:
        environments, *agents = setup.draw_noise_block(seed, start)
        return environments, jax.vmap(noises.pack)(tuple(agents))

    draw_all = jax.jit(vmap_seeds(draw_one, seeds, (0, None), 0))

    def step(
        carry: tuple, timestep: TimeStep, noise: PackedTree, final_updates: Array
    ) -> tuple[Progress, Mapping[str, Array]]:
        """Advances one seed; takes its row of the noise of a whole block."""
        row = setup.current_step(carry[0]) % setup.noise_block
        step_noise = noises.unpack(jax.tree.map(lambda leaf: leaf[row], noise))

        def advance_fn(progress_before: Progress, compute_metrics: Array) -> tuple:
            return advance(
                setup, progress_before, timestep, step_noise, compute_metrics
            )

        return advance_with_metrics(setup.agent, advance_fn, carry, final_updates)

    _, noise = jax.eval_shape(draw_all, setup.seed_array, np.int32(0))

    def metrics_of(progress: Progress, timestep: TimeStep, noise: PackedTree) -> Any:
        step_noise = noises.unpack(jax.tree.map(lambda leaf: leaf[0], noise))
        return advance(setup, progress, timestep, step_noise, jnp.bool_(True))[1]

    metrics_all = vmap_seeds(metrics_of, seeds, (AXES, 0, 0), 0)
    metrics = jax.eval_shape(metrics_all, progress, timestep, noise)

    def squeeze(carry: tuple) -> tuple:
        return squeeze_seed(carry, _CARRY_AXES) if is_single else carry

    # The carry of several seeds is not packed: with both `vmap` and packing, XLA sums
    # in another order than in the compiled loop. Packing would also save little, since
    # the arithmetic of several seeds outweighs the cost of arguments.
    small_size = SMALL_SIZE if is_single else 0
    packing = Packing(jax.eval_shape(squeeze, (progress, metrics)), small_size)
    timestep_packing = Packing(timestep)
    in_place = InPlacePacking(Packing((progress, metrics), small_size), packing)
    zero_metrics = jax.jit(lambda: zeros_of_shapes(metrics))

    def pack(progress: Progress) -> PackedTree:
        return in_place.pack((progress, zero_metrics()))

    def dispatch(
        packed_carry: Any, packed_timestep: Any, noise: ArrayTree, final_updates: Array
    ) -> tuple:
        rest = timestep_packing.unpack(packed_timestep), noise, final_updates
        axes = (0, 0, None)
        if is_single:
            carry = step(packing.unpack(packed_carry), *squeeze_seed(rest, axes))
            action = expand_seed(carry[0].pending.action, 0)
        else:
            step_all = jax.vmap(step, (_CARRY_AXES, *axes), _CARRY_AXES)
            carry = step_all(packing.unpack(packed_carry), *rest)
            action = carry[0].pending.action
        return packing.pack(carry), action

    step_all = jax.jit(dispatch, donate_argnums=0)
    arguments = (
        jax.eval_shape(pack, progress),
        jax.eval_shape(timestep_packing.pack, timestep),
    )
    program = step_all.trace(*arguments, noise, jnp.int32(0))
    return _Program(
        draw=draw_all,
        pack=pack,
        step=step_all,
        unpack=in_place.unpack,
        pack_timestep=timestep_packing.host_packer(),
        temporary_bytes=temporary_bytes(program.jaxpr) + tree_bytes(noise),
        hlo=lambda: program.lower().compile().as_text() or "",
    )


def timestep_shapes(seeds: int, environment: Environment) -> tuple[Any, TimeStep]:
    """The shapes of an observation and of a time step, `[S, B, ...]`."""
    batch = (seeds, environment.num_envs)

    def like(dtype: Any, *rest: int) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct((*batch, *rest), dtype)

    # As shapes, too: one too large for memory is refused later, with a hint.
    element = jax.eval_shape(lambda: spaces.zeros(environment.observation))
    obs = jax.tree.map(lambda leaf: like(leaf.dtype, *leaf.shape), element)
    number, flag = like(np.float32), like(np.bool_)
    return obs, TimeStep._make((obs, obs, number, number, flag, {}))
