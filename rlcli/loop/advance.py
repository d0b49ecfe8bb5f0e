"""Advance: the start and one step of training, for the compiled and the host loop."""

from collections.abc import Callable, Mapping, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float32, Int32, Real

from rlcli import spaces
from rlcli.environments.episode_info import logged_names
from rlcli.errors import RlcliError, quote
from rlcli.loop import phases
from rlcli.loop.episode_statistics import (
    begin_statistics,
    count_successes,
    update_statistics,
)
from rlcli.loop.faults import begin_faults, update_faults
from rlcli.loop.progress import INIT, POLICY, STEP, Pending, Progress, Setup, stream_key
from rlcli.types import (
    Agent,
    Array,
    ArrayTree,
    Clock,
    Environment,
    Inputs,
    Key,
    TimeStep,
    Transition,
)
from rlcli.xla.control_flow import run_if, tree_select
from rlcli.xla.data_axis import draw_share, sum_over_devices
from rlcli.xla.debugging import locate


def first_inputs(setup: Setup, numbers: Float32[Array, "N"]) -> Inputs:
    """The inputs at the start of a run, before any success."""
    successes = {key: np.int32(0) for key in setup.conditions}
    clock = Clock.zero()._replace(successes=successes)
    return Inputs(clock, setup.numbers_by_place(numbers))


def initial_progress(
    setup: Setup,
    seed: Array,
    numbers: Float32[Array, "N"],
    state: ArrayTree,
    obs: ArrayTree,
    info_keys: Sequence[str] = (),
) -> Progress:
    """Progress at the start of one seed, with the first action selected.

    `info_keys` are the names of the environment's `info` that are summed over episodes.
    """
    environment, agent = setup.at(first_inputs(setup, numbers))
    batch = environment.num_envs
    first = jnp.ones(batch, bool)
    # The action of step t + 1 uses the key of step t, so the first action uses key −1.
    action_key = jax.random.fold_in(stream_key(seed, POLICY), np.uint32(2**32 - 1))
    noise = draw_share(agent.policy.draw, action_key, batch)
    # Not `stream_key`: its hashes take longer to compile where large arrays are drawn.
    init_key = jax.random.fold_in(jax.random.key(seed), INIT)

    def init_agent(unroll: Transition) -> ArrayTree:
        return setup.start(agent.init(init_key, unroll), seed)

    def first_action(agent_state: ArrayTree) -> tuple[Pending, ArrayTree]:
        policy_state = agent.policy.initial(batch)
        return select_action(agent, agent_state, obs, policy_state, first, noise)

    # The state of the agent depends on the shapes of an unroll, and these depend on the
    # extras of an action, which the agent selects. An unroll without extras breaks the
    # cycle: it suffices for the shapes of the first action.
    example = Pending(obs, zero_actions(environment), first, {})
    shapes, _ = jax.eval_shape(
        lambda: first_action(init_agent(_empty_unroll(setup, example)))
    )
    unroll = _empty_unroll(setup, shapes)
    agent_state = init_agent(unroll)
    pending, policy_state = first_action(agent_state)
    return Progress(
        iteration=jnp.int32(0),
        position=jnp.int32(0),
        seed=seed,
        environment=state,
        pending=pending,
        policy=policy_state,
        unroll=unroll,
        agent=agent_state,
        statistics=begin_statistics(batch, info_keys, [*setup.conditions]),
        faults=begin_faults(environment, obs),
        numbers=numbers,
    )


def _empty_unroll(setup: Setup, pending: Pending) -> Transition:
    """An unroll of zeros, with the shapes of `pending`."""

    def empty(leaf: Array) -> Array:
        return jnp.zeros((setup.unroll, *leaf.shape), leaf.dtype)

    flag = empty(pending.first)
    number = flag.astype(jnp.float32)
    return Transition(
        obs=jax.tree.map(empty, pending.obs),
        action=jax.tree.map(empty, pending.action),
        reward=number,
        discount=number,
        next_obs=jax.tree.map(empty, pending.obs),
        first=flag,
        last=flag,
        extras=jax.tree.map(empty, pending.extras),
    )


def info_names(environment: Environment, state: ArrayTree) -> list[str]:
    """The names of the values that episodes of a pure environment log."""

    def step_info(key: Key) -> Mapping[str, Array]:
        noise = environment.draw(key)
        return environment.step(state, zero_actions(environment), noise)[1].info

    return logged_names(environment, jax.eval_shape(step_info, stream_key(0, STEP)))


def zero_actions(environment: Environment) -> ArrayTree:
    """Zeros of the shape of the actions of all environments."""
    return spaces.zeros(environment.action, (environment.num_envs,))


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
    row = _complete_transition(pending, timestep)
    with jax.named_scope(phases.STATISTICS):
        statistics = update_statistics(
            progress.statistics, timestep, setup.environment.info, setup.conditions
        )
    progress = progress._replace(statistics=statistics)
    step = setup.current_step(progress) + 1
    inputs = inputs_at(setup, progress, step, compute_metrics)
    environment, agent = setup.at(inputs)
    action = progress.pending.action
    with jax.named_scope(phases.STATISTICS):
        faults = update_faults(progress.faults, environment, action, timestep, step)
    progress = progress._replace(faults=faults)

    def update(
        state: ArrayTree, unroll: Transition, noise: ArrayTree
    ) -> tuple[ArrayTree, dict[str, Real[Array, ""]]]:
        """Learns with the schedules' values at the time at which the unroll began.

        They are among the metrics.
        """
        began = _began_at(setup, inputs, unroll)
        _, agent = setup.at(began)
        state, metrics = agent.learn(state, unroll, began.clock, noise, progress.data)
        return state, {**metrics, **setup.scheduled(began)}

    if setup.unroll == 1:  # the row is the whole unroll: it is not stored
        unroll = jax.tree.map(lambda leaf: leaf[None], row)
        agent_state, metrics = update(progress.agent, unroll, learn_noise)
        position, is_full = progress.position, 1
    else:
        progress, position, is_full = _store_row(setup, progress, row)

        def learn(state: ArrayTree) -> tuple[ArrayTree, Mapping[str, Array]]:
            return update(state, progress.unroll, agent.draw(learn_noise))

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


def _store_row(
    setup: Setup, progress: Progress, row: Transition
) -> tuple[Progress, Int32[Array, ""], Bool[Array, ""]]:
    """Stores a row of the unroll; also returns the next position, and if it is full."""
    with jax.named_scope(phases.STORE):
        unroll = jax.tree.map(
            lambda rows, leaf: jax.lax.dynamic_update_index_in_dim(
                rows, leaf.astype(rows.dtype), progress.position, 0
            ),
            progress.unroll,
            row,
        )
    is_full = progress.position + 1 == setup.unroll
    position = jnp.where(is_full, 0, progress.position + 1)
    return progress._replace(unroll=unroll), position, is_full


def inputs_at(
    setup: Setup,
    progress: Progress,
    steps: Int32[Array, ""],
    compute_metrics: Bool[Array, ""],
) -> Inputs:
    """The inputs after `steps` steps of each environment, those of `progress`.

    The environment steps by their clock, and a policy selects the next action by it.
    An update sees an earlier one.
    """
    num_envs = progress.pending.first.shape[0] * setup.data_parallel
    # The condition always holds, but XLA cannot prove it. Without it, XLA would hoist
    # expressions that depend only on the numbers, such as the negated learning rate,
    # out of the compiled loop, which would then round differently from the host loop.
    numbers = jnp.where(progress.iteration >= 0, progress.numbers, 0)
    clock = Clock(
        iteration=progress.iteration,
        steps=steps.astype(jnp.float32) * num_envs,
        episodes=progress.statistics.episodes.astype(jnp.float32),
        updates=jnp.int32(0),  # set by the agent
        compute_metrics=compute_metrics,
        successes=count_successes(progress.statistics),
    )
    return Inputs(clock, setup.numbers_by_place(numbers))


def _began_at(setup: Setup, inputs: Inputs, unroll: Transition) -> Inputs:
    """The inputs at which a full unroll began, from those after its last step.

    The updates of an iteration see this time: the first one sees the start of the run,
    and the last one a time before its end.
    """
    clock = inputs.clock
    steps = (clock.iteration * setup.unroll).astype(jnp.float32)
    num_envs = unroll.last.shape[1] * setup.data_parallel
    finished = sum_over_devices(jnp.sum(unroll.last, dtype=jnp.int32))
    began = clock._replace(
        steps=steps * num_envs,
        episodes=clock.episodes - finished.astype(jnp.float32),
    )
    return inputs._replace(clock=began)


def select_action(
    agent: Agent,
    state: ArrayTree,
    obs: ArrayTree,
    policy: ArrayTree,
    first: Bool[Array, "B"],
    noise: ArrayTree,
) -> tuple[Pending, ArrayTree]:
    """Selects the next action; also returns the next state of the policy.

    `state` and `policy` are the states of the agent and of its policy. The action has
    the extras that unrolls store; `advance` sets `cut` when the environment has
    executed the action.
    """
    decision, next_policy = agent.policy.explore(
        agent.acting(state), obs, policy, first, noise
    )
    available_extras = {
        "carry": policy[0],
        "cut": jnp.zeros_like(first),
        **decision.extras,
    }
    for name in agent.traits.requires:
        if name not in available_extras:
            offered = ", ".join(f"`{extra}`" for extra in sorted(available_extras))
            raise RlcliError(
                f"the updater or the tracer requires the extra {quote(name)}, but the "
                f"policy and the loop offer only {offered}",
                "correct its `requires`",
            )
    extras = {name: available_extras[name] for name in agent.traits.requires}
    return Pending(obs, decision.action, first, extras), next_policy


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
