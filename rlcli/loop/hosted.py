"""The loop on the host: one dispatch for each step of an environment JAX cannot trace.

What is small goes in and out packed: `rlcli.loop.packing` says why.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from rlcli import spaces, threads
from rlcli.learning import zeros
from rlcli.loop.advancing import advance, block_of, noise_of, noted
from rlcli.loop.engine import Loop
from rlcli.loop.packing import SMALL, Packing
from rlcli.loop.seeds import expanded, numbers, over_seeds, squeezed
from rlcli.pinning import pinned
from rlcli.progress import AXES, Progress, Setup, begin, midnight, now
from rlcli.types import Array, ArrayTree, Environment, TimeStep

_CARRIED = (AXES, 0)  # the axes of the seeds in progress and metrics


class _Program(NamedTuple):
    """The compiled functions of a run."""

    begin: Callable  # (seeds[S], obs[S, B, ...]) -> progress
    draw: Callable  # (seeds[S], time) -> noise of a block of steps, `[S, block, ...]`
    pack: Callable  # progress -> packed, with the metrics
    step: Callable  # (packed, packed timestep, noise, made) -> packed, action
    unpack: Callable  # packed -> progress, metrics
    answer: Packing  # of the timestep
    shapes: Progress


def hosted(setup: Setup, environment: Environment) -> Loop:
    """One dispatch per environment step; only `environment.step` stands outside."""
    block = block_of(setup)
    _, agent = setup.parts(midnight())
    grid = (len(setup.seeds), environment.num_envs)
    # A lone seed's action comes without its axis. By leaves, since a `jax.tree.map` at
    # every step takes as long as a step of CartPole.
    leaves, structure = jax.tree.flatten(spaces.zeros(environment.action))
    shapes = [(*grid, *leaf.shape) for leaf in leaves]

    def played(action: ArrayTree) -> ArrayTree:
        """An action on the host, `[S, B, ...]`."""
        pairs = zip(jax.tree.leaves(action), shapes, strict=True)
        return structure.unflatten([np.asarray(x).reshape(to) for x, to in pairs])

    alone = threads.one() and jax.default_backend() == "cpu"

    @functools.cache
    def program() -> _Program:
        return _program(setup, environment)

    def first() -> Progress:
        state, obs = environment.reset(np.array(setup.seeds, np.uint32))
        return program().begin(numbers(setup), obs)._replace(environment=state)

    def advance_by(progress: Progress, count: int) -> tuple[Progress, dict[str, Array]]:
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
                    noise = run.draw(seeds, np.int32(time - row))
                    own, drawn = jax.tree.flatten(noise[0])
                mine = drawn.unflatten([leaf[:, row] for leaf in own])
                cut = setup.reset and (time + 1) % setup.unroll == 0
                state, timestep = environment.step(state, played(action), mine, cut)
                # What an environment on the host logs is not counted.
                answer = run.answer.pack_host(timestep._replace(info={}))
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

    return Loop(first, advance_by, save, restore, lambda: program().shapes, close)


def _program(setup: Setup, environment: Environment) -> _Program:
    """Traces everything, so that what does not fit shows."""
    seeds, block = len(setup.seeds), block_of(setup)
    _, agent = setup.parts(midnight())
    # A lone seed has no axis from step to step: with one, XLA would not write into the
    # buffers that it is given, and would copy the replay each time.
    lone = seeds == 1

    def begin_one(seed: Array, obs: Array) -> Progress:
        return begin(setup, seed, (), obs)

    def step(
        carry: tuple, timestep: TimeStep, noise: tuple[ArrayTree, ...], made: Array
    ) -> tuple[Progress, dict[str, Array]]:
        row = now(setup, carry[0]) % block
        _, *drawn = jax.tree.map(lambda leaf: leaf[row], noise)

        def advanced(before: Progress, watched: Array) -> tuple:
            return advance(setup, before, timestep, tuple(drawn), watched)

        return noted(agent, advanced, carry, made)

    begin_all = jax.jit(over_seeds(begin_one, seeds, (0, 0), AXES))
    draw_all = jax.jit(
        over_seeds(functools.partial(noise_of, setup), seeds, (0, None), 0)
    )
    obs, timestep = _shapes(seeds, environment)
    progress = jax.eval_shape(begin_all, numbers(setup), obs)
    noise = jax.eval_shape(draw_all, numbers(setup), np.int32(0))

    def metrics_of(progress: Progress, timestep: TimeStep, noise: tuple) -> Any:
        drawn = jax.tree.map(lambda leaf: leaf[0], noise)
        watched = jnp.bool_(True)
        return advance(setup, progress, timestep, tuple(drawn[1:]), watched)[1]

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
        else:
            every = jax.vmap(step, (_CARRIED, *axes), _CARRIED)
            carry = every(packing.unpack(packed), *rest)
        return packing.pack(carry), carry[0].pending.action

    def unpack(packed: Any) -> tuple:
        carry = packing.unpack(packed)
        return expanded(carry, _CARRIED) if lone else carry

    return _Program(
        begin=begin_all,
        draw=draw_all,
        pack=jax.jit(pack),
        step=jax.jit(dispatch, donate_argnums=0),
        unpack=jax.jit(unpack),
        answer=answers,
        shapes=progress,
    )


def _shapes(seeds: int, environment: Environment) -> tuple[Any, TimeStep]:
    """Of an observation and of an answer, `[S, B, ...]`."""
    batch = (seeds, environment.num_envs)

    def like(dtype: Any, *rest: int) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct((*batch, *rest), dtype)

    element = spaces.zeros(environment.observation)
    obs = jax.tree.map(lambda leaf: like(leaf.dtype, *leaf.shape), element)
    number, flag = like(np.float32), like(np.bool_)
    return obs, TimeStep(obs, obs, number, number, flag, {})
