"""The loop on the host: one dispatch for each step of an environment JAX cannot trace.

What is small goes in and out packed: `rlcli.xla.packing` says why.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from rlcli import spaces
from rlcli.loop.advance import advance, block_of, noise_of, noted
from rlcli.loop.engine import Loop
from rlcli.loop.progress import AXES, Progress, Setup, begin, draw, midnight, now
from rlcli.loop.seeds import expanded, numbers, over_seeds, squeezed
from rlcli.types import Array, ArrayTree, Environment, TimeStep
from rlcli.xla import threads
from rlcli.xla.control_flow import zeros
from rlcli.xla.packing import SMALL, Packed, Packing
from rlcli.xla.pinning import pinned
from rlcli.xla.temporaries import temporary_bytes, tree_bytes

_CARRIED = (AXES, 0)  # the axes of the seeds in progress and metrics


class _Program(NamedTuple):
    """The compiled functions of a run."""

    begin: Callable  # (seeds[S], obs[S, B, ...]) -> progress
    draw: Callable  # (seeds[S], time) -> noise of a block of steps, `[S, block, ...]`:
    # of environments, and packed what agents take
    pack: Callable  # progress -> packed, with the metrics
    step: Callable  # (packed, packed timestep, noise, made) -> packed, action
    unpack: Callable  # packed -> progress, metrics
    answer: Callable  # timestep, NumPy's -> packed
    shapes: Progress
    temporaries: int  # bytes, of `step` and of the noise that it is given


def hosted(setup: Setup, environment: Environment) -> Loop:
    """One dispatch per environment step; only `environment.step` stands outside."""
    block = block_of(setup)
    _, agent = setup.parts(midnight())
    alone = threads.one() and jax.default_backend() == "cpu"

    @functools.cache
    def program() -> _Program:
        return _program(setup, environment)

    def first() -> Progress:
        state, obs = environment.reset(np.array(setup.seeds, np.uint32))
        return program().begin(numbers(setup), obs)._replace(environment=state)

    def advance_by(
        progress: Progress, count: int
    ) -> tuple[Progress, Mapping[str, Array]]:
        run, seeds = program(), numbers(setup)
        state = progress.environment
        action = progress.pending.action
        before = int(progress.iteration)
        packed = run.pack(progress._replace(environment=()))
        made = jnp.asarray(agent.updates(before + count))
        noise, start = None, before * setup.unroll
        with pinned() if alone else contextlib.nullcontext():
            for time in range(start, (before + count) * setup.unroll):
                row = time % block
                if row == 0 or noise is None:
                    drawn, noise = run.draw(seeds, np.int32(time - row))
                    own, structure = jax.tree.flatten(drawn)
                mine = structure.unflatten([leaf[:, row] for leaf in own])
                cut = setup.reset and (time + 1) % setup.unroll == 0
                state, timestep = environment.step(state, action, mine, cut)
                if timestep.info:  # what is logged on the host is not counted
                    timestep = timestep._replace(info={})
                answer = run.answer(timestep)
                packed, action = run.step(packed, answer, noise, made)
        progress, metrics = run.unpack(packed)
        return progress._replace(environment=state), metrics

    def save(progress: Progress) -> ArrayTree:
        arrays = environment.save(progress.environment)
        return progress._replace(environment=arrays)

    def restore(saved: ArrayTree) -> tuple[Progress, str]:
        state, sentence = environment.restore(saved.environment)
        device = jax.device_put(saved._replace(environment=()))
        return device._replace(environment=state), sentence

    def close(progress: Progress) -> None:
        environment.close(progress.environment)

    return Loop(
        begin=first,
        advance=advance_by,
        save=save,
        restore=restore,
        shapes=lambda: program().shapes,
        close=close,
        temporaries=lambda: program().temporaries,
    )


def _program(setup: Setup, environment: Environment) -> _Program:
    """Traces everything, so that what does not fit shows."""
    seeds, block = len(setup.seeds), block_of(setup)
    _, agent = setup.parts(midnight())
    # A lone seed has no axis from step to step: with one, XLA would not write into the
    # buffers that it is given, and would copy the replay each time.
    lone = seeds == 1

    _, *drawn = jax.eval_shape(functools.partial(draw, setup), numbers(setup)[0], 0)
    noises = Packing(tuple(drawn))

    def draw_one(seed: Array, start: Array) -> tuple[ArrayTree, Packed]:
        environments, *agents = noise_of(setup, seed, start)
        return environments, jax.vmap(noises.pack)(tuple(agents))

    def begin_one(seed: Array, obs: Array) -> Progress:
        return begin(setup, seed, (), obs)

    def step(
        carry: tuple, timestep: TimeStep, noise: Packed, made: Array
    ) -> tuple[Progress, Mapping[str, Array]]:
        row = now(setup, carry[0]) % block
        drawn = noises.unpack(jax.tree.map(lambda leaf: leaf[row], noise))

        def advanced(before: Progress, watched: Array) -> tuple:
            return advance(setup, before, timestep, drawn, watched)

        return noted(agent, advanced, carry, made)

    begin_all = jax.jit(over_seeds(begin_one, seeds, (0, 0), AXES))
    draw_all = jax.jit(over_seeds(draw_one, seeds, (0, None), 0))
    obs, timestep = timestep_shapes(seeds, environment)
    progress = jax.eval_shape(begin_all, numbers(setup), obs)
    _, noise = jax.eval_shape(draw_all, numbers(setup), np.int32(0))

    def metrics_of(progress: Progress, timestep: TimeStep, noise: Packed) -> Any:
        drawn = noises.unpack(jax.tree.map(lambda leaf: leaf[0], noise))
        return advance(setup, progress, timestep, drawn, jnp.bool_(True))[1]

    shaped = over_seeds(metrics_of, seeds, (AXES, 0, 0), 0)
    metrics = jax.eval_shape(shaped, progress, timestep, noise)

    def bare(carry: tuple) -> tuple:
        return squeezed(carry, _CARRIED) if lone else carry

    # Several seeds are left as they are: vmapped and packed, XLA sums in another order
    # than the compiled loop, and their arithmetic outweighs what arguments cost.
    small = SMALL if lone else 0
    packing = Packing(jax.eval_shape(bare, (progress, metrics)), small)
    answers = Packing(timestep)

    def pack(progress: Progress) -> Any:
        return packing.pack(bare((progress, zeros(metrics))))

    def dispatch(packed: Any, answer: Any, noise: ArrayTree, made: Array) -> tuple:
        rest = answers.unpack(answer), noise, made
        axes = (0, 0, None)
        if lone:
            carry = step(packing.unpack(packed), *squeezed(rest, axes))
            chosen = expanded(carry[0].pending.action, 0)
        else:
            every = jax.vmap(step, (_CARRIED, *axes), _CARRIED)
            carry = every(packing.unpack(packed), *rest)
            chosen = carry[0].pending.action
        return packing.pack(carry), chosen

    def unpack(packed: Any) -> tuple:
        carry = packing.unpack(packed)
        return expanded(carry, _CARRIED) if lone else carry

    step_all = jax.jit(dispatch, donate_argnums=0)
    arguments = jax.eval_shape(pack, progress), jax.eval_shape(answers.pack, timestep)
    program = step_all.trace(*arguments, noise, jnp.int32(0))
    return _Program(
        begin=begin_all,
        draw=draw_all,
        pack=jax.jit(pack),
        step=step_all,
        unpack=jax.jit(unpack),
        answer=answers.host(),
        shapes=progress,
        temporaries=temporary_bytes(program.jaxpr) + tree_bytes(noise),
    )


def timestep_shapes(seeds: int, environment: Environment) -> tuple[Any, TimeStep]:
    """The shapes of an observation and of a time step, `[S, B, ...]`."""
    batch = (seeds, environment.num_envs)

    def like(dtype: Any, *rest: int) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct((*batch, *rest), dtype)

    element = spaces.zeros(environment.observation)
    obs = jax.tree.map(lambda leaf: like(leaf.dtype, *leaf.shape), element)
    number, flag = like(np.float32), like(np.bool_)
    return obs, TimeStep(obs, obs, number, number, flag, {})
