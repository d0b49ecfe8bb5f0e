"""Agents: policy, tracer and updater combined, with or without a replay."""

from fractions import Fraction
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp
from jaxtyping import Int, Real, Shaped

from rlcli.environments.episode_info import ROW_FIELDS
from rlcli.errors import RlcliError, quote
from rlcli.loop import phases
from rlcli.types import (
    Agent,
    AgentInside,
    AgentTraits,
    Array,
    ArrayTree,
    Clock,
    Key,
    Replay,
    Report,
    Traced,
    Tracer,
    Transition,
    Updater,
)
from rlcli.xla.control_flow import update_if, zeros_of_shapes
from rlcli.xla.data_axis import any_over_devices
from rlcli.xla.debugging import locate

# Separates the estimates of the tracer from the random numbers of the update, which
# splits its key, or folds in 0, 1, …
_ESTIMATES = 2**31


class ReplayAgentState(NamedTuple):
    """The state of an agent with a replay."""

    learner: ArrayTree
    replay: ArrayTree
    # The metrics of the last update, if it may be skipped (`ReplayTraits.episodes`);
    # else ().
    metrics: ArrayTree = ()


class OnlineAgentState(NamedTuple):
    """The state of an agent without a replay."""

    learner: ArrayTree
    tail: Transition  # the steps in front of the unroll, `[window − 1, B, ...]`


def replay_agent(
    updater: Updater,
    tracer: Tracer,
    replay: Replay,
    *,
    updates: Fraction,
    start: int,
    filled: int = 0,
) -> Agent:
    """An agent that learns from samples of a replay.

    `updates` is the average number of updates per iteration, and `start` the number of
    iterations before the first update. `filled` is the number of unrolls with which the
    replay begins, see `AgentInside.fill`.
    """
    max_updates = -(-updates.numerator // updates.denominator)
    # One update per iteration needs no loop: it would cost 1/20 of a small update.
    is_single_update = updates == 1 and start == 0
    required_extras, traits = _required_extras(tracer, updater), replay.traits
    # Whether the steps of a data set are the first in the state of the replay.
    adds_dataset = traits.dataset is not None and not traits.keeps_dataset

    def init(key: Key, unroll: Transition) -> ReplayAgentState:
        state = ReplayAgentState(updater.init(key), replay.init(unroll))
        if not traits.episodes or not {*required_extras} <= {*unroll.extras}:
            return state  # an unroll without extras, see `initial_progress`
        _, metrics = jax.eval_shape(learn, state, unroll, Clock.zero(), draw(key))
        return state._replace(metrics=zeros_of_shapes(metrics))

    def draw(key: Key) -> tuple[ArrayTree, Shaped[Array, "updates"]]:
        sample_key, update_key = jax.random.split(key)
        samples = jax.vmap(replay.draw)(jax.random.split(sample_key, max_updates))
        return samples, jax.random.split(update_key, max_updates)

    def count_updates(iterations: Any) -> Any:
        """The number of updates in the first `iterations`, an int or an int array."""
        learning_iterations = iterations - start
        learning_iterations = learning_iterations * (learning_iterations > 0)
        return learning_iterations * updates.numerator // updates.denominator

    def store(
        state: ArrayTree, steps: Transition, clock: Clock, data: ArrayTree
    ) -> tuple[ArrayTree, Int[Array, ""]]:
        """Adds an unroll; returns the replay, and the number of unrolls so far."""
        count = jnp.asarray(clock.iteration)
        if traits.is_offline:
            return state, count
        count = count + filled if filled else count
        if adds_dataset:
            state = update_if(
                clock.iteration == 0,
                lambda _, state: _add_dataset(replay, state, data, steps),
                state,
            )
            count = count + _count_unrolls(data, steps)
        return replay.add(state, steps, count), count + 1

    def observe_data(
        learner: ArrayTree, clock: Clock, steps: Transition, data: ArrayTree
    ) -> ArrayTree:
        """Lets the updater observe the data set, in the first iteration.

        An offline agent observes all steps, those of one environment; another agent the
        steps that are added to its replay, each environment its own.
        """
        observe = updater.observe
        share = _count_unrolls(data, steps) * steps.reward.shape[0]
        if observe is None or not (traits.is_offline or share):
            return learner

        def observe_all(_: Any, learner: ArrayTree) -> ArrayTree:
            # Here, because outside of the condition each iteration would copy them.
            if traits.is_offline:
                rows = jax.tree.map(lambda leaf: leaf[:, None], data)
            else:
                rows = _divide_dataset(data, steps, jnp.arange(share))
            return observe(learner, rows, learner)

        return update_if(clock.iteration == 0, observe_all, learner)

    def update_from_sample(
        states: tuple,
        count: Int[Array, ""],
        clock: Clock,
        time: tuple,
        noise: tuple,
        data: ArrayTree,
    ) -> tuple:
        """Learns from one sample; returns the new `states`.

        `states` are the learner, the replay and the metrics of the last update. `count`
        is the number of unrolls added to the replay. `time` is the number of updates
        before this iteration, and the index of this update within the iteration.
        `noise` is the noise of all updates of the iteration.
        """
        learner, replay_state, metrics = states
        updates_before, i = time
        sample_noise, key = jax.tree.map(lambda x: x[i], noise)
        with jax.named_scope(phases.SAMPLE):
            source = data if traits.is_offline else replay_state
            if traits.keeps_dataset:
                source = replay_state, data
            raw, weight, index = replay.sample(source, count, sample_noise)
        clock = clock._replace(updates=updates_before + i)
        if traits.episodes:
            # Updates with an empty sample are skipped, so it is not known in advance
            # which update is the last one before a log point.
            clock = clock._replace(compute_metrics=jnp.bool_(True))

        def step(learner: ArrayTree) -> tuple:
            rows = _trace(tracer, updater, learner, raw, key)
            row_weight = weight[: rows.reward.shape[0]]
            with jax.named_scope(phases.UPDATE), locate("the update"):
                learner, report = updater.update(learner, rows, row_weight, clock, key)
            return learner, report.priority, _metrics_of(report)

        if traits.episodes:  # nothing changes if all weights are 0
            _, *report = jax.eval_shape(step, learner)
            priority, new = zeros_of_shapes(report)
            has_rows = any_over_devices(jnp.any(weight > 0))
            initial = learner, priority, metrics or new
            result = update_if(has_rows, lambda _, carry: step(carry[0]), initial)
        else:
            result = step(learner)
        learner, priority, metrics = result
        with jax.named_scope(phases.STORE):
            replay_state = replay.reweigh(replay_state, index, priority)
        return learner, replay_state, metrics

    def learn(
        state: ReplayAgentState,
        steps: Transition,
        clock: Clock,
        noise: ArrayTree,
        data: ArrayTree = (),
    ) -> tuple[ReplayAgentState, dict[str, Real[Array, ""]]]:
        with jax.named_scope(phases.STORE):
            replay_state, count = store(state.replay, steps, clock, data)
        updates_before = count_updates(clock.iteration)
        num_updates = count_updates(clock.iteration + 1) - updates_before

        @jax.jit  # traced once, for the shapes of metrics and for the loop
        def update(
            i: Int[Array, ""] | int,
            learner: ArrayTree,
            replay_state: ArrayTree,
            metrics: ArrayTree,
        ) -> tuple:
            states, time = (learner, replay_state, metrics), (updates_before, i)
            return update_from_sample(states, count, clock, time, noise, data)

        def update_next(i: Int[Array, ""] | int, carry: tuple) -> tuple:
            learner, replay_state, metrics = carry
            # Only an update that may be skipped keeps the metrics of the last one.
            return update(i, learner, replay_state, metrics if state.metrics else ())

        learner = state.learner
        if traits.dataset is not None:
            learner = observe_data(learner, clock, steps, data)
        before = learner
        initial = learner, replay_state, state.metrics
        *_, shapes = jax.eval_shape(update, 0, *initial)
        if is_single_update:
            learner, replay_state, metrics = update_next(0, initial)
        else:
            carry = *initial[:2], state.metrics or zeros_of_shapes(shapes)
            learner, replay_state, metrics = jax.lax.fori_loop(
                0, num_updates, update_next, carry
            )
        if updater.observe is not None and not traits.is_offline:
            learner = updater.observe(learner, steps, before)
        return ReplayAgentState(
            learner, replay_state, metrics if state.metrics else ()
        ), metrics

    def redivide(
        state: ReplayAgentState, iteration: int, before: int, after: int
    ) -> ReplayAgentState:
        assert replay.redivide is not None  # else this function is not offered
        division = iteration + filled, before, after
        return state._replace(replay=replay.redivide(state.replay, *division))

    def contents(
        state: ReplayAgentState,
        iteration: int,
        unroll: Transition,
        data: ArrayTree,
        most: int,
    ) -> tuple[int, Transition]:
        """The steps in the replay, see `Replay.contents`."""
        assert replay.contents is not None  # else this function is not offered
        if traits.is_offline:
            return replay.contents(data, 0, most)
        if adds_dataset and iteration:
            iteration += _count_unrolls(data, unroll)
        return replay.contents(state.replay, iteration + filled, most)

    return Agent(
        init=init,
        acting=lambda state: updater.acting(state.learner),
        policy=updater.policy,
        draw=draw,
        learn=learn,
        count_updates=count_updates,
        failed_at=lambda state: updater.failed_at(state.learner),
        redivide=redivide if replay.redivide else None,
        inside=AgentInside(
            lambda state: state.learner,
            updater.estimate,
            contents if replay.contents else None,
            lambda unroll, steps: _add_dataset(
                replay, replay.init(unroll), steps, unroll
            ),
        ),
        traits=AgentTraits(
            requires=required_extras,
            is_offline=traits.is_offline,
            frame_stack=traits.frame_stack,
            environment_axes=ReplayAgentState(updater.traits.environment_axes, 0, None),
        ),
    )


def online_agent(updater: Updater, tracer: Tracer) -> Agent:
    """An agent that learns from each unroll once, and does not store it."""
    tail_length = (tracer.window or 1) - 1

    def init(key: Key, unroll: Transition) -> OnlineAgentState:
        tail = jax.tree.map(
            lambda leaf: jnp.zeros((tail_length, *leaf.shape[1:]), leaf.dtype), unroll
        )
        return OnlineAgentState(updater.init(key), tail)

    def learn(
        state: OnlineAgentState,
        steps: Transition,
        clock: Clock,
        noise: Key,
        data: ArrayTree = (),
    ) -> tuple[OnlineAgentState, dict[str, Real[Array, ""]]]:
        del data  # only for replays
        steps_with_tail = jax.tree.map(
            lambda a, b: jnp.concatenate([a, b]), state.tail, steps
        )
        rows = _trace(tracer, updater, state.learner, steps_with_tail, noise)
        # Rows that begin before the first step of the run are padding, and get weight
        # 0. After `tail_length` iterations there are none, so counting stops there,
        # which avoids an overflow.
        steps_before = jnp.minimum(clock.iteration, tail_length) * len(steps.reward)
        is_valid = jnp.arange(rows.reward.shape[0]) + steps_before >= tail_length
        weight = jnp.broadcast_to(is_valid[:, None], rows.reward.shape).astype(
            jnp.float32
        )
        clock = clock._replace(updates=clock.iteration)
        with jax.named_scope(phases.UPDATE), locate("the update"):
            learner, report = updater.update(state.learner, rows, weight, clock, noise)
        if updater.observe is not None:
            learner = updater.observe(learner, steps, state.learner)
        tail = jax.tree.map(
            lambda leaf: leaf[leaf.shape[0] - tail_length :], steps_with_tail
        )
        return OnlineAgentState(learner, tail), _metrics_of(report)

    return Agent(
        init=init,
        acting=lambda state: updater.acting(state.learner),
        policy=updater.policy,
        draw=lambda key: key,
        learn=learn,
        count_updates=lambda iterations: iterations,
        failed_at=lambda state: updater.failed_at(state.learner),
        inside=AgentInside(lambda state: state.learner, updater.estimate),
        traits=AgentTraits(
            requires=_required_extras(tracer, updater),
            environment_axes=OnlineAgentState._make(
                [updater.traits.environment_axes, 1]
            ),
        ),
    )


def _count_unrolls(data: Transition, steps: Transition) -> int:
    """The number of whole unrolls, shaped as `steps`, in the steps of a data set."""
    return data.reward.shape[0] // steps.reward.size


def _add_dataset(
    replay: Replay, state: ArrayTree, data: Transition, steps: Transition
) -> ArrayTree:
    """Adds the steps of a data set to a replay, in unrolls shaped as `steps`.

    Each environment gets consecutive steps, as if it had produced them. The last steps
    are dropped if they do not fill an unroll.
    """
    length = steps.reward.shape[0]

    def add(index: Int[Traced, ""], state: ArrayTree) -> ArrayTree:
        time = index * length + jnp.arange(length)
        return replay.add(state, _divide_dataset(data, steps, time), index)

    return jax.lax.fori_loop(0, _count_unrolls(data, steps), add, state)


def _divide_dataset(
    data: Transition, steps: Transition, time: Int[Array, "T"]
) -> Transition:
    """The steps `time` of each environment's share of a data set, `[T, B, ...]`."""
    num_envs = steps.reward.shape[1]
    share = _count_unrolls(data, steps) * steps.reward.shape[0]
    time = time[:, None]
    rows = jax.tree.map(lambda leaf: leaf[jnp.arange(num_envs) * share + time], data)
    # A share may begin or end within an episode.
    is_first, is_last = time == 0, time == share - 1
    return rows._replace(first=rows.first | is_first, last=rows.last | is_last)


def _metrics_of(report: Report) -> dict[str, Real[Array, ""]]:
    """The metrics of a report; refuses those that would replace a field of a row."""
    for name in report.metrics:
        if name in ROW_FIELDS or "." in name:
            raise RlcliError(
                f"the updater has a metric {quote(name)}, but rows of metrics use this "
                "name for another field",
                "choose another name, without a dot",
            )
    return dict(report.metrics)


def _trace(
    tracer: Tracer, updater: Updater, learner: ArrayTree, steps: Transition, key: Key
) -> Transition:
    """Applies the tracer to raw steps. The extra `reward` keeps the reward of each.

    `key` is that of the update; the estimates get another one.
    Raises an AssertionError if a shape violates the contracts. The shapes are compared
    while JAX traces the program, so a compiled step pays nothing.
    """
    with jax.named_scope(phases.TRACE), locate("the estimates and targets"):
        estimates = updater.estimate(
            learner, steps, jax.random.fold_in(key, _ESTIMATES)
        )
        _assert_rows(steps)
        chex.assert_shape(estimates[:4], steps.reward.shape)
        if estimates.reward is not None:
            chex.assert_equal_shape([steps.reward, estimates.reward])
            steps = steps._replace(reward=estimates.reward)
        if estimates.intrinsic_reward is not None:
            chex.assert_equal_shape([steps.reward, estimates.intrinsic_reward])
            reward = steps.reward + estimates.intrinsic_reward
            # The rows of a tracer may lack observations that this reward has seen.
            step_extras = {**steps.extras, "step_next_obs": steps.next_obs}
            steps = steps._replace(reward=reward, extras=step_extras)
        extras = {"reward": steps.reward, "next_carry": estimates.carry}
        steps = steps._replace(extras={**steps.extras, **extras})
        rows = tracer.trace(steps, estimates)
        _assert_rows(rows)
    return rows


def _assert_rows(rows: Transition) -> None:
    """Asserts that all fields are `[T, B, ...]`; extras may have fewer rows."""
    chex.assert_rank(rows.reward, 2)
    chex.assert_equal_shape([rows.reward, rows.discount, rows.first, rows.last])
    trees = (rows.obs, rows.action, rows.next_obs)
    chex.assert_tree_shape_prefix(trees, rows.reward.shape)


def _required_extras(tracer: Tracer, updater: Updater) -> tuple[str, ...]:
    return tuple(sorted({*tracer.requires, *updater.traits.requires}))
