"""Normalization: observations and rewards scaled by running statistics.

It wraps an updater and its agent. Unrolls, replays and tracers hold raw values of the
environment; the updater normalizes them when it uses them. The statistics include a new
unroll only after the agent has learned from it, so that learning uses the same scale as
acting did.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import gymnasium
import jax
import jax.numpy as jnp

from rlcli import spaces
from rlcli.distributions import action_masks
from rlcli.errors import RlcliError
from rlcli.types import (
    Agent,
    Array,
    ArrayTree,
    Clock,
    Estimates,
    Key,
    Policy,
    Report,
    Transition,
    Updater,
)
from rlcli.xla.control_flow import update_if
from rlcli.xla.data_axis import axis_size, mean_over_devices
from rlcli.xla.fusion_barrier import round_to_dtype

_CLIP = 10.0  # bound of a normalized observation, in standard deviations
_EPSILON = 1e-8  # added to variances
_MAX_COUNT = 2**30  # the count saturates here, and so does the weight of new rows
_REWARDS = ("reward", "advantage")  # extras that are sums of rewards


class Moments(NamedTuple):
    """Running mean and variance; initially 0 and 1."""

    count: Array  # int32
    mean: ArrayTree
    variance: ArrayTree


class NormalizationStatistics(NamedTuple):
    """Running statistics; () for those that are disabled."""

    observation: Moments | tuple[()]
    returns: Moments | tuple[()]  # of the running discounted returns
    running: Array | tuple[()]  # `[B]`: running discounted return of each environment


class NormalizedState(NamedTuple):
    """The state of an updater and the normalization statistics."""

    learner: ArrayTree
    statistics: NormalizationStatistics


class NormalizedActing(NamedTuple):
    """The parameters of a policy and the moments of its observations."""

    policy: ArrayTree
    observation: Moments | tuple[()]


class Normalizer(NamedTuple):
    """Wrappers: `updater` wraps an updater, `agent` the agent built from it."""

    updater: Callable[[Updater], Updater]
    agent: Callable[[Agent], Agent]


def initial_moments(like: ArrayTree) -> Moments:
    """Returns moments of zero rows, shaped as `like`."""
    zeros = jax.tree.map(jnp.zeros_like, like)
    return Moments(jnp.int32(0), zeros, jax.tree.map(jnp.ones_like, like))


def update_moments(moments: Moments, rows: ArrayTree) -> Moments:
    """Updates the moments with rows `[N, ...]`.

        δ = mean(rows) − m,  s = N / (n + N)
        m ← m + s δ          v ← (1 − s) v + s (var(rows) + (1 − s) δ²)

    (Chan et al., 1983, https://doi.org/10.1080/00031305.1983.10483115)
    The rows are those of all devices (`xla.data_axis`), which have equally many.
    """
    number = jax.tree.leaves(rows)[0].shape[0] * axis_size()
    share = number / (moments.count.astype(jnp.float32) + number)
    new_mean = mean_over_devices(jax.tree.map(lambda new: jnp.mean(new, axis=0), rows))
    new_variance = _variance_over_devices(rows, new_mean)

    def centre(mean: Array, new: Array) -> Array:
        return mean + share * (new - mean)

    def spread(variance: Array, mean: Array, new: Array, within: Array) -> Array:
        between_variance = (1 - share) * jnp.square(new - mean)
        # Not v + s (… − v): a rounding error of the initial 1 would remain.
        return (1 - share) * variance + share * (within + between_variance)

    return Moments(
        jnp.minimum(moments.count, _MAX_COUNT - number) + number,
        jax.tree.map(centre, moments.mean, new_mean),
        jax.tree.map(spread, moments.variance, moments.mean, new_mean, new_variance),
    )


def _variance_over_devices(rows: ArrayTree, mean: ArrayTree) -> ArrayTree:
    """The variance of rows `[N, ...]` of all devices around their common mean."""
    if axis_size() == 1:
        return jax.tree.map(lambda new: jnp.var(new, axis=0), rows)
    squares = jax.tree.map(
        lambda new, centre: jnp.mean(jnp.square(new - centre), axis=0), rows, mean
    )
    return mean_over_devices(squares)


def normalizer(
    space: gymnasium.Space,
    num_envs: int,
    *,
    observation: bool,
    reward: bool,
    gamma: Array | float,
) -> Normalizer:
    """Normalizes observations and rewards.

        o ↦ clip((o − mean) / √(var + 10⁻⁸), −10, 10)
        r ↦ r / √(var(G) + 10⁻⁸),  Gₜ = rₜ + γ Gₜ₋₁

    Only floating-point observations are normalized: not discrete values, integers or
    action masks. G restarts with each episode, as in OpenAI's baselines.
    """
    real = _real_leaves(space)
    if observation and not any(real):
        raise RlcliError(
            f"`normalize` found no floats to normalize in {spaces.describe(space)}",
            "remove `observation` from `normalize`",
        )
    pick, put = _leaf_selector(real)

    def normalize(moments: Moments | tuple[()], obs: ArrayTree) -> ArrayTree:
        if not isinstance(moments, Moments):
            return obs

        def scale_leaf(leaf: Array, mean: Array, variance: Array) -> Array:
            return jnp.clip(
                (leaf - mean) * jax.lax.rsqrt(variance + _EPSILON), -_CLIP, _CLIP
            )

        return put(
            obs, list(map(scale_leaf, pick(obs), moments.mean, moments.variance))
        )

    def begin() -> NormalizationStatistics:
        like = pick(jax.tree.map(jnp.asarray, spaces.zeros(space)))
        zero = jnp.float32(0)
        return NormalizationStatistics(
            initial_moments(like) if observation else (),
            initial_moments(zero) if reward else (),
            jnp.zeros(num_envs) if reward else (),
        )

    def update(
        statistics: NormalizationStatistics, steps: Transition
    ) -> NormalizationStatistics:
        moments, returns, running = statistics
        if isinstance(moments, Moments):
            rows = [leaf.reshape((-1, *leaf.shape[2:])) for leaf in pick(steps.obs)]
            moments = update_moments(moments, rows)
        if isinstance(returns, Moments):
            running, returns_seen = _running_returns(running, steps, gamma)
            returns = update_moments(returns, returns_seen.reshape(-1))
        return NormalizationStatistics(moments, returns, running)

    return Normalizer(
        updater=lambda updater: _normalize_updater(updater, begin, normalize),
        agent=lambda agent: _normalize_agent(agent, update),
    )


def _normalize_updater(
    updater: Updater,
    begin: Callable[[], NormalizationStatistics],
    normalize: Callable[..., ArrayTree],
) -> Updater:
    """Returns the updater with normalized inputs."""

    def normalize_steps(
        statistics: NormalizationStatistics, steps: Transition
    ) -> Transition:
        sums = {name: steps.extras[name] for name in _REWARDS if name in steps.extras}
        reward, sums = in_unit(statistics.returns, (steps.reward, sums))
        return steps._replace(
            obs=normalize(statistics.observation, steps.obs),
            next_obs=normalize(statistics.observation, steps.next_obs),
            reward=reward,
            extras={**steps.extras, **sums},
        )

    def in_unit(returns: Moments | tuple[()], rewards: ArrayTree) -> ArrayTree:
        if not isinstance(returns, Moments):
            return rewards
        # Rounded: XLA turns the division into a product, which it could fuse with the
        # sum of a target in one loop (host or compiled) and not in the other.
        unit = _reward_scale(returns)
        return round_to_dtype(jax.tree.map(lambda x: x / unit, rewards), returns.count)

    def update(
        state: NormalizedState, batch: Transition, weight: Array, clock: Clock, key: Key
    ) -> tuple[NormalizedState, Report]:
        rows = normalize_steps(state.statistics, batch)
        learner, report = updater.update(state.learner, rows, weight, clock, key)
        return state._replace(learner=learner), report

    def estimate(state: NormalizedState, steps: Transition) -> Estimates:
        estimates = updater.estimate(
            state.learner, normalize_steps(state.statistics, steps)
        )
        if not isinstance(state.statistics.returns, Moments):
            return estimates
        # Tracers sum raw rewards, so they need values in the same unit.
        unit = _reward_scale(state.statistics.returns)
        return estimates._replace(
            v_tm1=estimates.v_tm1 * unit,
            v_t=estimates.v_t * unit,
            q_tm1=estimates.q_tm1 * unit,
        )

    def acting(state: NormalizedState) -> NormalizedActing:
        return NormalizedActing(
            updater.acting(state.learner), state.statistics.observation
        )

    return updater._replace(
        init=lambda key: NormalizedState(updater.init(key), begin()),
        acting=acting,
        policy=_normalize_policy(updater.policy, normalize),
        update=update,
        estimate=estimate,
        environment_axes=NormalizedState(
            updater.environment_axes, NormalizationStatistics._make([None, None, 0])
        ),
        failed_at=lambda state: updater.failed_at(state.learner),
    )


def _normalize_policy(policy: Policy, normalize: Callable[..., ArrayTree]) -> Policy:
    """Returns the policy with normalized observations."""

    def with_normalized_obs(function: Callable) -> Callable:
        def normalized(acting: NormalizedActing, obs: ArrayTree, *rest: Any) -> Any:
            return function(acting.policy, normalize(acting.observation, obs), *rest)

        return normalized

    names = ("explore", "exploit", "value", "action_values", "parameters")
    functions = {name: getattr(policy, name) for name in names}
    return policy._replace(
        **{
            name: with_normalized_obs(function)
            for name, function in functions.items()
            if function is not None
        }
    )


def _normalize_agent(
    agent: Agent,
    update_statistics: Callable[
        [NormalizationStatistics, Transition], NormalizationStatistics
    ],
) -> Agent:
    """Returns the agent, which updates the statistics with each unroll.

    The statistics of an offline agent are those of its data set, from the start.
    """

    def learn_offline(
        state: Any, steps: Transition, clock: Clock, noise: ArrayTree
    ) -> tuple[Any, Mapping[str, Array]]:
        data = jax.tree.map(lambda leaf: leaf[:, None], clock.data)  # one environment
        statistics = update_if(
            clock.iteration == 0,
            lambda _, before: update_statistics(before, data),
            state.learner.statistics,
        )
        learner = state.learner._replace(statistics=statistics)
        return agent.learn(state._replace(learner=learner), steps, clock, noise)

    if agent.is_offline:
        return agent._replace(learn=learn_offline)

    def learn(
        state: Any, steps: Transition, clock: Clock, noise: ArrayTree
    ) -> tuple[Any, Mapping[str, Array]]:
        statistics_before = state.learner.statistics
        state, metrics = agent.learn(state, steps, clock, noise)
        learner = state.learner._replace(
            statistics=update_statistics(statistics_before, steps)
        )
        return state._replace(learner=learner), metrics

    return agent._replace(learn=learn)


def _reward_scale(returns: Moments) -> Array:
    """The divisor of rewards."""
    return jnp.sqrt(returns.variance + _EPSILON)


def _running_returns(
    running: Any, steps: Transition, gamma: Array | float
) -> tuple[Array, Array]:
    """Computes running discounted returns: after the last step, at each `[T, B]`."""

    def scan_step(
        return_before: Array, step: tuple[Array, Array]
    ) -> tuple[Array, Array]:
        reward, first = step
        new_return = reward + gamma * jnp.where(first, 0.0, return_before)
        return new_return, new_return

    return jax.lax.scan(scan_step, running, (steps.reward, steps.first))


def _real_leaves(space: gymnasium.Space) -> list[bool]:
    """Marks the leaves of an element that are floats."""
    visible, mask = action_masks.split_mask(space)
    shapes = jax.eval_shape(lambda: spaces.zeros(visible))
    real = jax.tree.map(lambda leaf: leaf.dtype.kind == "f", shapes)
    return jax.tree.leaves(real if mask is None else {**real, action_masks.MASK: False})


def _leaf_selector(is_selected: list[bool]) -> tuple[Callable, Callable]:
    """Returns `pick(tree) -> selected leaves` and `put(tree, leaves) -> tree`."""

    def pick(tree: ArrayTree) -> list[Array]:
        return [leaf for leaf, selected in pairs(tree) if selected]

    def put(tree: ArrayTree, leaves: list[Array]) -> ArrayTree:
        new = iter(leaves)
        new_leaves = [next(new) if selected else leaf for leaf, selected in pairs(tree)]
        return jax.tree.unflatten(jax.tree.structure(tree), new_leaves)

    def pairs(tree: ArrayTree) -> Iterable[tuple[Array, bool]]:
        return zip(jax.tree.leaves(tree), is_selected, strict=True)

    return pick, put
