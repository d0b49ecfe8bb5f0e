"""Agents: policy, tracer and updater put together, with a replay or without."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from rlcli.loop.progress import midnight
from rlcli.types import (
    Agent,
    Array,
    ArrayTree,
    Clock,
    Key,
    Replay,
    Tracer,
    Transition,
    Updater,
)
from rlcli.xla.control_flow import zeros


class Remembering(NamedTuple):
    """The state of an agent with a replay."""

    learner: ArrayTree
    replay: ArrayTree
    # Of the last update, where there may be none in an iteration: else ().
    metrics: ArrayTree = ()


class Online(NamedTuple):
    """The state of an agent without one."""

    learner: ArrayTree
    tail: Transition  # the steps in front of the unroll, `[window − 1, B, ...]`


def remembering(
    updater: Updater,
    tracer: Tracer,
    replay: Replay,
    *,
    updates: Fraction,
    start: int,
) -> Agent:
    """An agent that learns from a replay.

    `updates` is how many updates there are in an iteration, on average; `start` the
    iterations before the first.
    """
    most = -(-updates.numerator // updates.denominator)
    # One update a visit needs no loop, whose cost is a twentieth of a small one.
    lone = updates == 1 and start == 0

    def init(key: Key, unroll: Transition) -> Remembering:
        state = Remembering(updater.init(key), replay.init(unroll))
        if not replay.episodes:
            return state
        _, metrics = jax.eval_shape(learn, state, unroll, midnight(), draw(key))
        return state._replace(metrics=zeros(metrics))

    def draw(key: Key) -> tuple[ArrayTree, Key]:
        sample_key, update_key = jax.random.split(key)
        samples = jax.vmap(replay.draw)(jax.random.split(sample_key, most))
        return samples, jax.random.split(update_key, most)

    def made(iterations: Any) -> Any:
        """Updates in so many iterations: a Python int of one, an array of an array."""
        learnt = iterations - start
        learnt = learnt * (learnt > 0)
        return learnt * updates.numerator // updates.denominator

    def learn(
        state: Remembering, steps: Transition, clock: Clock, noise: ArrayTree
    ) -> tuple[Remembering, dict[str, Array]]:
        memory = replay.add(state.replay, steps, clock.iteration)
        before = made(clock.iteration)
        due = made(clock.iteration + 1) - before

        def update(k: Array, carry: tuple) -> tuple:
            learner, memory, metrics = carry
            sampled, key = jax.tree.map(lambda each: each[k], noise)
            raw, weight, index = replay.sample(memory, clock.iteration + 1, sampled)
            time = clock._replace(updates=before + k)

            def step(learner: ArrayTree) -> tuple:
                rows = _traced(tracer, updater, learner, raw)
                counts = weight[: rows.reward.shape[0]]
                learner, report = updater.update(learner, rows, counts, time, key)
                return learner, report.priority, dict(report.metrics)

            if replay.episodes:
                # Who can tell whether this is the last update that somebody watches?
                time = time._replace(watched=jnp.bool_(True))
                stepped = _unless_empty(weight, step, learner, metrics)
            else:
                stepped = step(learner)
            learner, priority, metrics = stepped
            return learner, replay.reweigh(memory, index, priority), metrics

        *_, shapes = jax.eval_shape(update, 0, (state.learner, memory, state.metrics))
        begin = (state.learner, memory, state.metrics or zeros(shapes))
        if lone:
            learner, memory, metrics = update(0, begin)
        else:
            learner, memory, metrics = jax.lax.fori_loop(0, due, update, begin)
        return Remembering(learner, memory, metrics if state.metrics else ()), metrics

    return Agent(
        init=init,
        acting=lambda state: updater.acting(state.learner),
        policy=updater.policy,
        draw=draw,
        learn=learn,
        updates=made,
        failed=lambda state: updater.failed(state.learner),
        needs=_needs(tracer, updater),
    )


def online(updater: Updater, tracer: Tracer) -> Agent:
    """An agent that learns from each unroll once, and forgets it."""
    lead = (tracer.window or 1) - 1

    def init(key: Key, unroll: Transition) -> Online:
        tail = jax.tree.map(
            lambda leaf: jnp.zeros((lead, *leaf.shape[1:]), leaf.dtype), unroll
        )
        return Online(updater.init(key), tail)

    def learn(
        state: Online, steps: Transition, clock: Clock, noise: Key
    ) -> tuple[Online, dict[str, Array]]:
        joined = jax.tree.map(lambda a, b: jnp.concatenate([a, b]), state.tail, steps)
        rows = _traced(tracer, updater, state.learner, joined)
        # Rows that begin before the first step do not count: nothing was there.
        before = jnp.minimum(clock.iteration, lead) * len(steps.reward)  # or enough
        there = jnp.arange(rows.reward.shape[0]) + before >= lead
        weight = jnp.broadcast_to(there[:, None], rows.reward.shape).astype(jnp.float32)
        clock = clock._replace(updates=clock.iteration)
        learner, report = updater.update(state.learner, rows, weight, clock, noise)
        tail = jax.tree.map(lambda leaf: leaf[leaf.shape[0] - lead :], joined)
        return Online(learner, tail), dict(report.metrics)

    return Agent(
        init=init,
        acting=lambda state: updater.acting(state.learner),
        policy=updater.policy,
        draw=lambda key: key,
        learn=learn,
        updates=lambda iterations: iterations,
        failed=lambda state: updater.failed(state.learner),
        needs=_needs(tracer, updater),
    )


def _unless_empty(
    weight: Array, step: Callable, learner: ArrayTree, metrics: ArrayTree
) -> tuple:
    """`step(learner)`; the learner and metrics as they were if nothing weighs."""
    _, *report = jax.eval_shape(step, learner)
    priority, new = zeros(report)
    turns = jnp.any(weight > 0).astype(jnp.int32)
    begin = (learner, priority, metrics or new)
    # A loop of 0 or 1 turns: what goes through a `cond` is copied.
    return jax.lax.fori_loop(0, turns, lambda _, carry: step(carry[0]), begin)


def _traced(
    tracer: Tracer, updater: Updater, learner: ArrayTree, steps: Transition
) -> Transition:
    """Rows of raw steps, which keep what the tracer sums up."""
    estimates = updater.estimate(learner, steps)
    kept = {"reward": steps.reward, "next_carry": estimates.carry}
    steps = steps._replace(extras={**steps.extras, **kept})
    return tracer.trace(steps, estimates)


def _needs(tracer: Tracer, updater: Updater) -> tuple[str, ...]:
    return tuple(sorted({*tracer.needs, *updater.needs}))
