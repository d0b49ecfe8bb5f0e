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
    counted,
    decided,
    draw,
    midnight,
    now,
)
from rlcli.types import Agent, Array, ArrayTree, TimeStep, Transition
from rlcli.xla.control_flow import kept, when

_BLOCK = 128  # steps whose noise is drawn at once …
_BLOCK_ROWS = 16_384  # … as long as they are no more transitions than this


def advance(
    setup: Setup,
    progress: Progress,
    timestep: TimeStep,
    noise: tuple[ArrayTree, ArrayTree],
    watched: Array,
) -> tuple[Progress, Mapping[str, Array]]:
    """Takes an answer, learns if the unroll is full, decides: one step of one seed."""
    decide_noise, learn_noise = noise
    statistics = counted(progress.statistics, timestep)
    row = _completed(progress.pending, timestep)
    progress = progress._replace(statistics=statistics)
    step = now(setup, progress) + 1
    clock = clock_at(progress, step, watched)
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

        learner, metrics = when(full, learn, progress.agent)
    pending, policy = decided(
        agent, learner, timestep.obs, progress.policy, timestep.last, decide_noise
    )
    return progress._replace(
        iteration=progress.iteration + full,
        position=position,
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


def noted(
    agent: Agent,
    advanced: Callable[[Progress, Array], tuple[Progress, Mapping[str, Array]]],
    carry: tuple[Progress, Mapping[str, Array]],
    made: Array,
) -> tuple[Progress, Mapping[str, Array]]:
    """One step of a chunk, with the metrics that stand for it: of its last update.

    `advanced` takes progress, and whether somebody will read the metrics; `made` is how
    many updates there will have been when the chunk ends.
    """
    before, metrics = carry
    watched = agent.updates(before.iteration + 1) == made
    after, new = advanced(before, watched)
    updated = agent.updates(after.iteration) > agent.updates(before.iteration)
    return after, kept(updated, new, metrics)


def block_of(setup: Setup) -> int:
    """How many steps' noise is drawn at once."""
    environment, _ = setup.parts(midnight())
    return max(1, min(_BLOCK, _BLOCK_ROWS // environment.num_envs))


def noise_of(setup: Setup, seed: Array, start: Array) -> tuple[ArrayTree, ...]:
    """The noise of a block of steps, `[block, ...]`.

    On the host too: drawn where it is used, it would be rounded together with its use.
    """
    times = start + jnp.arange(block_of(setup))
    return jax.vmap(lambda time: draw(setup, seed, time))(times)
