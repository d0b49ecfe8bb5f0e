"""Advance: one step of training on the device, for the compiled and the host loop."""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Bool, Real

from rlcli.loop import phases
from rlcli.loop.episode_statistics import update_statistics
from rlcli.loop.faults import update_faults
from rlcli.loop.progress import Pending, Progress, Setup, select_action
from rlcli.types import Agent, Array, ArrayTree, Inputs, TimeStep, Transition
from rlcli.xla.control_flow import run_if, tree_select
from rlcli.xla.debugging import locate


def advance(
    setup: Setup,
    progress: Progress,
    timestep: TimeStep,
    noise: tuple[ArrayTree, ArrayTree],
    compute_metrics: Bool[Array, ""],
) -> tuple[Progress, Mapping[str, Real[Array, ""]]]:
    """Advances one seed by one step: adds a timestep, learns if due, selects an action.

    Returns the progress, and metrics that are valid only if the step made an update.
    """
    action_noise, learn_noise = noise
    timestep, pending = _cut_episodes(setup, progress, timestep)
    with jax.named_scope(phases.STATISTICS):
        statistics = update_statistics(
            progress.statistics, timestep, setup.environment.info, setup.conditions
        )
    row = _complete_transition(pending, timestep)
    progress = progress._replace(statistics=statistics)
    step = setup.current_step(progress) + 1
    inputs = setup.inputs_at(progress, step, compute_metrics)
    environment, agent = setup.at(inputs)
    action = progress.pending.action
    with jax.named_scope(phases.STATISTICS):
        faults = update_faults(progress.faults, environment, action, timestep, step)
    progress = progress._replace(faults=faults)
    if setup.unroll == 1:  # the row is the whole unroll: it is not stored
        unroll = jax.tree.map(lambda leaf: leaf[None], row)
        agent_state, metrics = _learn(
            setup, progress.agent, unroll, inputs, learn_noise, progress.data
        )
        position, is_full = progress.position, 1
    else:
        with jax.named_scope(phases.STORE):
            unroll = jax.tree.map(
                lambda rows, leaf: jax.lax.dynamic_update_index_in_dim(
                    rows, leaf.astype(rows.dtype), progress.position, 0
                ),
                progress.unroll,
                row,
            )
        progress = progress._replace(unroll=unroll)
        is_full = progress.position + 1 == setup.unroll
        position = jnp.where(is_full, 0, progress.position + 1)

        def learn(state: ArrayTree) -> tuple[ArrayTree, Any]:
            noise = agent.draw(learn_noise)
            return _learn(setup, state, unroll, inputs, noise, progress.data)

        agent_state, metrics = run_if(is_full, learn, progress.agent)
    with jax.named_scope(phases.ACT), locate("the policy, which acts"):
        pending, policy_state = select_action(
            agent,
            agent_state,
            timestep.obs,
            progress.policy,
            timestep.last,
            action_noise,
        )
    return progress._replace(
        iteration=progress.iteration + is_full,
        position=position,
        pending=pending,
        policy=policy_state,
        agent=agent_state,
    ), metrics


def _learn(
    setup: Setup,
    state: ArrayTree,
    unroll: Transition,
    inputs: Inputs,
    noise: ArrayTree,
    data: ArrayTree,
) -> tuple[ArrayTree, dict[str, Real[Array, ""]]]:
    """Learns with the schedules' values at the time at which the unroll began.

    `inputs` are those after the unroll. The values are among the metrics.
    """
    began = inputs._replace(clock=setup.unroll_clock(inputs.clock, unroll))
    _, agent = setup.at(began)
    state, metrics = agent.learn(state, unroll, began.clock, noise, data)
    return state, {**metrics, **setup.scheduled(began)}


def _cut_episodes(
    setup: Setup, progress: Progress, timestep: TimeStep
) -> tuple[TimeStep, Pending]:
    """Ends all episodes at the end of an unroll that is followed by a reset.

    The extra `cut` marks those that the environment has not ended itself.
    """
    pending = progress.pending
    if not setup.resets_unroll:
        return timestep, pending
    cut = setup.is_cut(progress) & ~timestep.last
    if "cut" in pending.extras:
        pending = pending._replace(extras={**pending.extras, "cut": cut})
    return timestep._replace(last=timestep.last | cut), pending


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
    """Advances one step of a chunk, and keeps the metrics of the last update.

    `advance_fn(progress, compute_metrics)` advances one step. `compute_metrics` is true
    only in the iteration that makes the last update before the next log point. `carry`
    is the progress and the metrics so far. `final_updates` is the number of updates of
    the run at the next log point.
    """
    progress, metrics = carry
    compute_metrics = agent.count_updates(progress.iteration + 1) == final_updates
    after, new_metrics = advance_fn(progress, compute_metrics)
    has_updated = agent.count_updates(after.iteration) > agent.count_updates(
        progress.iteration
    )
    return after, tree_select(has_updated, new_metrics, metrics)
