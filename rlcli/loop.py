"""The loop: how progress advances. The only one, for every algorithm.

Its device side is one pure function: `_advance` takes an environment's answer,
completes the transition, learns when the unroll is full, and decides upon the next
action. For a pure environment `step ∘ advance` is compiled into chunks of many
iterations; for one on the host `advance` is one dispatch per environment step. Both
give the same bits.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from rlcli.learning import kept, when, zeros
from rlcli.progress import (
    AXES,
    RESET,
    Pending,
    Progress,
    Setup,
    begin,
    clock_at,
    counted,
    decided,
    draw,
    midnight,
    now,
    stream,
)
from rlcli.types import Array, ArrayTree, Environment, TimeStep, Transition

_BLOCK = 128  # steps whose noise is drawn at once …
_BLOCK_ROWS = 16_384  # … as long as they are no more transitions than this


class Loop(NamedTuple):
    """A run's engine, for all its seeds at once."""

    begin: Callable[[], Progress]
    advance: Callable[[Progress, int], tuple[Progress, dict[str, Array]]]
    # (progress, iterations) -> progress, metrics of the last update, `[S]` each
    save: Callable[[Progress], ArrayTree]  # arrays alone
    restore: Callable[
        [ArrayTree], tuple[Progress, str]
    ]  # and what it could not restore
    shapes: Callable[[], Progress]  # of what `save` gives, but for a host environment:
    # the whole program is traced for it, so that what does not fit shows
    close: Callable[[Progress], None]


def make(setup: Setup) -> Loop:
    """The loop of a setup: compiled where the environment allows it."""
    environment, _ = setup.parts(midnight())
    return _compiled(setup) if environment.pure else _hosted(setup, environment)


def _advance(
    setup: Setup,
    progress: Progress,
    timestep: TimeStep,
    noise: tuple[ArrayTree, ArrayTree],
    watched: Array,
) -> tuple[Progress, dict[str, Array]]:
    """Takes an answer, learns if the unroll is full, decides: one step of one seed."""
    decide_noise, learn_noise = noise
    statistics = counted(progress.statistics, timestep)
    unroll = jax.tree.map(
        lambda rows, row: jax.lax.dynamic_update_index_in_dim(
            rows, row.astype(rows.dtype), progress.position, 0
        ),
        progress.unroll,
        _completed(progress.pending, timestep),
    )
    progress = progress._replace(statistics=statistics, unroll=unroll)
    clock = clock_at(progress, now(setup, progress) + 1, watched)
    _, agent = setup.parts(clock)

    def learn(state: ArrayTree) -> tuple[ArrayTree, Any]:
        drawn = learn_noise if setup.unroll == 1 else agent.draw(learn_noise)
        return agent.learn(state, unroll, clock, drawn)

    full = progress.position + 1 == setup.unroll
    if setup.unroll == 1:
        learner, metrics = learn(progress.agent)
    else:
        learner, metrics = when(full, learn, progress.agent)
    pending, policy = decided(
        agent, learner, timestep.obs, progress.policy, timestep.last, decide_noise
    )
    return progress._replace(
        iteration=progress.iteration + full,
        position=jnp.where(full, 0, progress.position + 1),
        pending=pending,
        policy=policy,
        agent=learner,
    ), metrics


def _completed(pending: Pending, timestep: TimeStep) -> Transition:
    return Transition(
        obs=pending.obs,
        action=pending.action,
        reward=timestep.reward,
        discount=timestep.discount,
        next_obs=timestep.next_obs,
        first=pending.first,
        last=timestep.last,
        extras=pending.extras,
    )


def over_seeds(function: Callable, seeds: int, inputs: Any, outputs: Any) -> Callable:
    """`vmap` over the axis of seeds; one seed is squeezed, which costs nothing."""
    if seeds > 1:
        return jax.vmap(function, in_axes=inputs, out_axes=outputs)

    def squeezed(*arguments: Any) -> Any:
        return _expanded(function(*_squeezed(arguments, inputs)), outputs)

    return squeezed


def _squeezed(tree: ArrayTree, axes: Any) -> ArrayTree:
    """Without the axis of a lone seed, where `axes` says that there is one."""
    return _changed(lambda leaf: leaf[0], tree, axes)


def _expanded(tree: ArrayTree, axes: Any) -> ArrayTree:
    """With an axis for the lone seed, where `axes` asks for one."""
    return _changed(lambda leaf: jnp.expand_dims(leaf, 0), tree, axes)


def _changed(change: Callable, tree: ArrayTree, axes: Any) -> ArrayTree:
    return jax.tree.map(
        lambda axis, part: part if axis is None else jax.tree.map(change, part),
        axes,
        tree,
        is_leaf=lambda axis: axis is None,
    )


def _seeds(setup: Setup) -> Array:
    return jnp.asarray(np.array(setup.seeds, np.uint32))


def _compiled(setup: Setup) -> Loop:
    """Chunks of iterations as one program, spread over devices, then vmapped."""
    share = len(setup.seeds) // setup.devices  # seeds of one device
    mesh = Mesh(np.array(jax.devices()[: setup.devices]), ("seeds",))
    each, same = PartitionSpec("seeds"), PartitionSpec()
    specs = Progress._make(same if axis is None else each for axis in AXES)
    spread = functools.partial(jax.shard_map, mesh=mesh, check_vma=False)

    def begin_one(seed: Array) -> Progress:
        environment, _ = setup.parts(midnight())
        state, obs = environment.reset(stream(seed, RESET))
        return begin(setup, seed, state, obs)

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
    def shapes() -> Progress:
        progress = jax.eval_shape(begin_all, _seeds(setup))
        jax.eval_shape(advance_all, progress, jnp.int32(1))
        return progress

    def restore(saved: ArrayTree) -> tuple[Progress, str]:
        layout = jax.tree.map(lambda spec: NamedSharding(mesh, spec), specs)
        return jax.device_put(saved, layout), ""

    return Loop(
        begin=lambda: begin_all(_seeds(setup)),
        advance=lambda progress, count: advance_all(progress, jnp.int32(count)),
        save=lambda progress: progress,
        restore=restore,
        shapes=shapes,
        close=lambda progress: None,
    )


def _block(setup: Setup) -> int:
    """How many steps' noise is drawn at once."""
    environment, _ = setup.parts(midnight())
    return max(1, min(_BLOCK, _BLOCK_ROWS // environment.num_envs))


def _noise(setup: Setup, seed: Array, start: Array) -> tuple[ArrayTree, ...]:
    """The noise of a block of steps, `[block, ...]`.

    On the host too: drawn where it is used, it would be rounded together with its use.
    """
    times = start + jnp.arange(_block(setup))
    return jax.vmap(lambda time: draw(setup, seed, time))(times)


def _rounded(answer: ArrayTree, zero: Array) -> ArrayTree:
    """An environment's answer as the host gets it: every number rounded.

    Else XLA fuses a product in `step` with a sum in `advance`, rounds both as one, and
    the bits are others than the host's. It drops an `optimization_barrier` before it
    fuses; through integers, and a zero that it cannot prove to be one, it does not see.
    """

    def through_bits(leaf: Array) -> Array:
        if not jnp.issubdtype(leaf.dtype, jnp.floating):
            return leaf
        bits = jax.lax.bitcast_convert_type(leaf, f"uint{8 * leaf.dtype.itemsize}")
        return jax.lax.bitcast_convert_type(bits ^ zero.astype(bits.dtype), leaf.dtype)

    return jax.tree.map(through_bits, answer)


def _chunk(setup: Setup) -> Callable:
    """`(progress, iterations) -> progress, metrics` of one seed.

    One program for any number of iterations: blocks of steps whose noise is drawn at
    once, and in each a loop with a traced count.
    """
    block = _block(setup)

    def step(
        progress: Progress, noise: tuple[ArrayTree, ...], watched: Array
    ) -> tuple[Progress, dict[str, Array]]:
        step_noise, *rest = noise
        clock = clock_at(progress, now(setup, progress), watched)
        environment, _ = setup.parts(clock)
        cut = setup.reset & (progress.position + 1 == setup.unroll)
        answer = environment.step(
            progress.environment, progress.pending.action, step_noise, cut
        )
        state, timestep = _rounded(answer, jnp.minimum(progress.iteration, 0))
        progress = progress._replace(environment=state)
        return _advance(setup, progress, timestep, tuple(rest), watched)

    def chunk(
        progress: Progress, iterations: Array
    ) -> tuple[Progress, dict[str, Array]]:
        total = iterations * setup.unroll
        _, agent = setup.parts(midnight())
        made = agent.updates(progress.iteration + iterations)

        def many(i: Array, carry: tuple) -> tuple:
            noise = _noise(setup, progress.seed, now(setup, carry[0]))

            def one(j: Array, carry: tuple) -> tuple:
                current = jax.tree.map(lambda leaf: leaf[j], noise)
                before, metrics = carry
                # Its metrics stand for the chunk: that of the last update in it.
                watched = agent.updates(before.iteration + 1) == made
                after, new = step(before, current, watched)
                updated = agent.updates(after.iteration) > agent.updates(
                    before.iteration
                )
                return after, kept(updated, new, metrics)

            count = jnp.minimum(block, total - i * block)
            return jax.lax.fori_loop(0, count, one, carry)

        noise = jax.eval_shape(lambda: draw(setup, progress.seed, jnp.int32(0)))
        _, metrics = jax.eval_shape(step, progress, noise, jnp.bool_(True))
        blocks = (total + block - 1) // block
        return jax.lax.fori_loop(0, blocks, many, (progress, zeros(metrics)))

    return chunk


def _hosted(setup: Setup, environment: Environment) -> Loop:
    """One dispatch per environment step; only `environment.step` stands outside."""
    seeds, numbers, block = len(setup.seeds), _seeds(setup), _block(setup)
    _, agent = setup.parts(midnight())
    actions = (seeds, environment.num_envs, *(environment.action.shape or ()))

    def begin_one(seed: Array, obs: Array) -> Progress:
        return begin(setup, seed, (), obs)

    def step(
        progress: Progress,
        timestep: TimeStep,
        noise: tuple[ArrayTree, ...],
        row: Array,
        watched: Array,
    ) -> tuple[Progress, dict[str, Array]]:
        _, *drawn = jax.tree.map(lambda leaf: leaf[row], noise)
        return _advance(setup, progress, timestep, tuple(drawn), watched)

    def step_lone(progress: Progress, *rest: Any) -> tuple[Progress, dict[str, Array]]:
        return step(progress, *_squeezed(rest, axes[1:]))

    begin_all = jax.jit(over_seeds(begin_one, seeds, (0, 0), AXES))
    # A lone seed has no axis from step to step: with one, XLA would not write into the
    # buffers that it is given, and would copy the replay each time.
    lone = seeds == 1
    axes = (AXES, 0, 0, None, None)
    advance_all = jax.jit(
        step_lone if lone else jax.vmap(step, axes, (AXES, 0)), donate_argnums=0
    )
    squeeze = jax.jit(lambda device: _squeezed(device, AXES) if lone else device)
    expand = jax.jit(lambda device: _expanded(device, AXES) if lone else device)
    draw_all = jax.jit(
        over_seeds(functools.partial(_noise, setup), seeds, (0, None), 0)
    )

    def first() -> Progress:
        state, obs = environment.reset(np.array(setup.seeds, np.uint32))
        return begin_all(_seeds(setup), obs)._replace(environment=state)

    def advance(progress: Progress, count: int) -> tuple[Progress, dict[str, Array]]:
        state = progress.environment
        device = squeeze(progress._replace(environment=()))
        before = int(progress.iteration)
        made = agent.updates(before + count)
        metrics = zeros(shapes()[1])
        begun = before * setup.unroll
        for time in range(begun, (before + count) * setup.unroll):
            iteration, position = divmod(time, setup.unroll)
            row = (time - begun) % block
            if row == 0:
                noise = draw_all(numbers, np.int32(time))
            action = np.asarray(device.pending.action).reshape(actions)
            full = position + 1 == setup.unroll
            own = jax.tree.map(operator.itemgetter((slice(None), row)), noise[0])
            state, timestep = environment.step(state, action, own, setup.reset and full)
            # The metrics are those of the chunk's last update.
            due = agent.updates(iteration + 1)
            device, new = advance_all(
                device, timestep, noise, np.int32(row), due == made
            )
            if full and due > agent.updates(iteration):
                metrics = new
        if lone:
            metrics = jax.tree.map(lambda leaf: leaf.reshape((1,)), metrics)
        return expand(device)._replace(environment=state), metrics

    def save(progress: Progress) -> ArrayTree:
        arrays = environment.save(progress.environment)
        return progress._replace(environment=arrays)

    def restore(saved: ArrayTree) -> tuple[Progress, str]:
        state, sentence = environment.restore(saved.environment)
        device = jax.device_put(saved._replace(environment=()))
        return device._replace(environment=state), sentence

    @functools.cache
    def shapes() -> tuple[Progress, ArrayTree]:
        batch = (seeds, environment.num_envs)

        def like(dtype: Any, *rest: int) -> jax.ShapeDtypeStruct:
            return jax.ShapeDtypeStruct((*batch, *rest), dtype)

        space = environment.observation
        obs = like(jax.dtypes.canonicalize_dtype(space.dtype), *(space.shape or ()))
        number, flag = like(np.float32), like(np.bool_)
        timestep = TimeStep(obs, obs, number, number, flag, {})
        progress = jax.eval_shape(begin_all, _seeds(setup), obs)
        noise = jax.eval_shape(draw_all, numbers, np.int32(0))
        step_all = over_seeds(step, seeds, axes, (AXES, 0))
        _, metrics = jax.eval_shape(
            step_all, progress, timestep, noise, np.int32(0), np.bool_(True)
        )
        return progress, metrics

    def close(progress: Progress) -> None:
        environment.close(progress.environment)

    return Loop(first, advance, save, restore, lambda: shapes()[0], close)
