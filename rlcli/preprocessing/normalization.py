"""Normalization: observations and rewards scaled by running statistics.

It wraps an updater. Unrolls, replays and tracers hold raw values of the environment;
the updater normalizes them when it uses them. The statistics include a new unroll only
after the agent has learned from it, so that learning uses the same scale as acting did.
An agent with a data set, offline or in its replay, starts with its statistics.

Normalized values are clipped. The first reward after many zeros, or a constant entry
that changes, would otherwise be thousands of deviations.

PPO's ratios start at one, because `observe` adds a new unroll after learning from it.
Tracers are linear in rewards and values together. They receive both in the
environment's unit, so no tracer depends on normalization. Clipping is not linear, so
the rewards are clipped before they are traced (`Estimates.reward`), to a bound in the
environment's unit. The moments of `preprocessing.moments` are those of all running
statistics.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import gymnasium
import jax
import jax.numpy as jnp

from rlcli import spaces
from rlcli.errors import RlcliError
from rlcli.preprocessing.moments import Moments, ObservationMoments, discounted_sums
from rlcli.types import (
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
from rlcli.xla.fusion_barrier import round_to_dtype

_REWARDS = ("reward", "advantage")  # extras that are sums of rewards


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


def normalizer(
    space: gymnasium.Space,
    num_envs: int,
    *,
    observation: bool,
    reward: bool,
    gamma: Array | float,
    observation_clip: float | None = 10.0,
    reward_clip: float | None = 10.0,
) -> Callable[[Updater], Updater]:
    """Returns a wrapper of updaters that normalizes observations and rewards.

        o ↦ clip((o − mean) / √(var + 10⁻⁸), −c, c)
        r ↦ clip(r / √(var(G) + 10⁻⁸), −c′, c′),  Gₜ = rₜ + γ Gₜ₋₁

    Floats and images `[H, W, C]` of bytes or booleans are normalized, each entry by
    itself: not discrete values, other integers or action masks. G is the sum of rewards
    without clipping, and restarts with each episode, as in OpenAI's baselines. c is
    `observation_clip` and c′ `reward_clip`; None: no clipping.
    """
    observations = ObservationMoments(space, observation_clip)
    if observation and observations.is_empty:
        raise RlcliError(
            "`normalize` found neither floats nor images to normalize in "
            f"{spaces.describe(space)}",
            "remove `observation` from `normalize`",
        )

    def begin() -> NormalizationStatistics:
        return NormalizationStatistics(
            observations.initial() if observation else (),
            Moments.initial(jnp.float32(0)) if reward else (),
            jnp.zeros(num_envs) if reward else (),
        )

    def normalize(moments: Moments | tuple[()], obs: ArrayTree) -> ArrayTree:
        has_moments = isinstance(moments, Moments)
        return observations.normalize(moments, obs) if has_moments else obs

    def normalize_steps(
        statistics: NormalizationStatistics, steps: Transition
    ) -> Transition:
        extras = {**steps.extras}
        sums = {name: extras[name] for name in _REWARDS if name in extras}
        reward, sums = in_unit(statistics.returns, (steps.reward, sums))
        if "step_next_obs" in extras:
            next_obs = normalize(statistics.observation, extras["step_next_obs"])
            extras["step_next_obs"] = next_obs
        return steps._replace(
            obs=normalize(statistics.observation, steps.obs),
            next_obs=normalize(statistics.observation, steps.next_obs),
            reward=reward,
            extras={**extras, **sums},
        )

    def clip_rewards(
        statistics: NormalizationStatistics, steps: Transition
    ) -> Transition:
        returns = statistics.returns
        if not isinstance(returns, Moments):
            return steps
        return steps._replace(reward=returns.clip(steps.reward, reward_clip))

    def in_unit(returns: Moments | tuple[()], rewards: ArrayTree) -> ArrayTree:
        if not isinstance(returns, Moments):
            return rewards
        # Rounded: XLA turns the division into a product. It could fuse this product
        # with the sum of a target in one of the two loops (host, compiled) only, and
        # then the loops would round differently.
        unit = returns.deviation
        return round_to_dtype(jax.tree.map(lambda x: x / unit, rewards), returns.count)

    def normalize_updater(updater: Updater) -> Updater:
        def update(
            state: NormalizedState,
            batch: Transition,
            weight: Array,
            clock: Clock,
            key: Key,
        ) -> tuple[NormalizedState, Report]:
            rows = normalize_steps(state.statistics, batch)
            learner, report = updater.update(state.learner, rows, weight, clock, key)
            return state._replace(learner=learner), report

        def estimate(state: NormalizedState, steps: Transition, key: Key) -> Estimates:
            steps = clip_rewards(state.statistics, steps)
            estimates = updater.estimate(
                state.learner, normalize_steps(state.statistics, steps), key
            )
            if not isinstance(state.statistics.returns, Moments):
                return estimates
            # Tracers sum rewards in the environment's unit, so they need values in it.
            unit = state.statistics.returns.deviation
            intrinsic = estimates.intrinsic_reward
            return estimates._replace(
                v_tm1=estimates.v_tm1 * unit,
                v_t=estimates.v_t * unit,
                q_tm1=estimates.q_tm1 * unit,
                reward=steps.reward,
                intrinsic_reward=None if intrinsic is None else intrinsic * unit,
            )

        def observe(
            state: NormalizedState, steps: Transition, before: NormalizedState
        ) -> NormalizedState:
            learner, (moments, returns, running) = state
            if updater.observe is not None:
                clipped = clip_rewards(state.statistics, steps)
                rows = normalize_steps(state.statistics, clipped)
                learner = updater.observe(learner, rows, before.learner)
            if isinstance(moments, Moments):
                moments = observations.update(moments, steps)
            if isinstance(returns, Moments) and not isinstance(running, tuple):
                running, sums = discounted_sums(
                    running, steps.reward, steps.first, gamma
                )
                returns = returns.update(sums.reshape(-1))
            statistics = NormalizationStatistics(moments, returns, running)
            return NormalizedState(learner, statistics)

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
            failed_at=lambda state: updater.failed_at(state.learner),
            observe=observe,
            traits=updater.traits._replace(
                environment_axes=NormalizedState(
                    updater.traits.environment_axes,
                    NormalizationStatistics._make([None, None, 0]),
                )
            ),
        )

    return normalize_updater


def _normalize_policy(policy: Policy, normalize: Callable[..., ArrayTree]) -> Policy:
    """Returns the policy with normalized observations."""

    def with_normalized_obs(function: Callable) -> Callable:
        def normalized(acting: NormalizedActing, obs: ArrayTree, *rest: Any) -> Any:
            return function(acting.policy, normalize(acting.observation, obs), *rest)

        return normalized

    return policy._replace(
        explore=with_normalized_obs(policy.explore),
        exploit=with_normalized_obs(policy.exploit),
        inspection=policy.inspection.map(with_normalized_obs),
    )
