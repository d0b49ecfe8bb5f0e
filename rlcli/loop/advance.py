"""Advancing: the device side of a step, the same for every algorithm and loop."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp

from rlcli.loop.faults import update_faults
from rlcli.loop.progress import (
    Pending,
    Progress,
    Setup,
    clock_at,
    current_step,
    draw_step_noise,
    select_action,
    update_statistics,
)
from rlcli.types import Agent, Array, ArrayTree, Clock, TimeStep, Transition
from rlcli.xla.control_flow import run_if, tree_select

_BLOCK = 128  # steps whose noise is drawn at once …
_BLOCK_ROWS = 16_384  # … as long as they are no more transitions than this


def advance(
    setup: Setup,
    progress: Progress,
    timestep: TimeStep,
    noise: tuple[ArrayTree, ArrayTree],
    compute_metrics: Array,
) -> tuple[Progress, Mapping[str, Array]]:
    """Takes an answer, learns if the unroll is full, decides: one step of one seed."""
    decide_noise, learn_noise = noise
    statistics = update_statistics(progress.statistics, timestep)
    row = _complete_transition(progress.pending, timestep)
    progress = progress._replace(statistics=statistics)
    step = current_step(setup, progress) + 1
    clock = clock_at(progress, step, compute_metrics)
    environment, agent = setup.parts(clock)
    action = progress.pending.action
    faults = update_faults(progress.faults, environment, action, timestep, step)
    progress = progress._replace(faults=faults)
    if setup.unroll == 1:  # which is made and learnt from at once, and kept nowhere
        unroll = jax.tree.map(lambda leaf: leaf[None], row)
        learner, metrics = agent.learn(progress.agent, unroll, clock, learn_noise)
        position, full = progress.position, 1
    else:
        unroll = jax.tree.map(
            lambda rows, leaf: jax.lax.dynamic_update_index_in_dim(
                rows, leaf.astype(rows.dtype), progress.position, 0
            ),
            progress.unroll,
            row,
        )
        progress = progress._replace(unroll=unroll)
        full = progress.position + 1 == setup.unroll
        position = jnp.where(full, 0, progress.position + 1)

        def learn(state: ArrayTree) -> tuple[ArrayTree, Any]:
            return agent.learn(state, unroll, clock, agent.draw(learn_noise))

        learner, metrics = run_if(full, learn, progress.agent)
    pending, policy = select_action(
        agent, learner, timestep.obs, progress.policy, timestep.last, decide_noise
    )
    return progress._replace(
        iteration=progress.iteration + full,
        position=position,
        pending=pending,
        policy=policy,
        agent=learner,
    ), metrics


def _complete_transition(pending: Pending, timestep: TimeStep) -> Transition:
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


def advance_with_metrics(
    agent: Agent,
    advance_fn: Callable[[Progress, Array], tuple[Progress, Mapping[str, Array]]],
    carry: tuple[Progress, Mapping[str, Array]],
    final_updates: Array,
) -> tuple[Progress, Mapping[str, Array]]:
    """One step of a chunk, with the metrics that stand for it: of its last update.

    `advance_fn` takes progress, and whether somebody will read the metrics;
    `final_updates` is how many updates there will have been when the chunk ends.
    """
    progress, metrics = carry
    compute_metrics = agent.updates(progress.iteration + 1) == final_updates
    after, new = advance_fn(progress, compute_metrics)
    has_updated = agent.updates(after.iteration) > agent.updates(progress.iteration)
    return after, tree_select(has_updated, new, metrics)


def noise_block_size(setup: Setup) -> int:
    """How many steps' noise is drawn at once."""
    environment, _ = setup.parts(Clock.zero())
    return max(1, min(_BLOCK, _BLOCK_ROWS // environment.num_envs))


def draw_noise_block(setup: Setup, seed: Array, start: Array) -> tuple[ArrayTree, ...]:
    """The noise of a block of steps, `[block, ...]`.

    On the host too: drawn where it is used, it would be rounded together with its use.
    """
    times = start + jnp.arange(noise_block_size(setup))
    return jax.vmap(lambda time: draw_step_noise(setup, seed, time))(times)
