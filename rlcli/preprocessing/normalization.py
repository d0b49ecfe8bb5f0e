"""Normalization: observations and rewards in units of what was seen so far.

It wraps an updater and the agent made of it. Unrolls, replays and tracers hold what the
environment said; it is brought to scale where the updater uses it. Statistics are taken
of each fresh unroll once the agent has learnt from it, so that an unroll is learnt from
as it was acted upon.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import gymnasium
import jax
import jax.numpy as jnp

from rlcli import action_masks, spaces
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
from rlcli.xla.fusion_barrier import rounded

_CLIP = 10.0  # deviations beyond which an observation is cut
_LEAST = 1e-8  # is added to variances
_MOST = 2**30  # rows that are counted; later ones move the mean as much as that one
_REWARDS = ("reward", "advantage")  # extras that are sums of rewards


class Moments(NamedTuple):
    """Mean and variance of all rows so far; 0 and 1 as long as there are none."""

    count: Array  # int32
    mean: ArrayTree
    variance: ArrayTree


class Statistics(NamedTuple):
    """What was seen; () where nobody asks."""

    observation: Moments | tuple[()]
    returns: Moments | tuple[()]  # discounted, as they ran up
    running: Array | tuple[()]  # `[B]`: the return of each environment so far


class Normalized(NamedTuple):
    """The state of an updater, and the statistics it sees the world by."""

    learner: ArrayTree
    statistics: Statistics


class Acting(NamedTuple):
    """What a policy acts with, and the scale of what it sees."""

    policy: ArrayTree
    observation: Moments | tuple[()]


class Normalizer(NamedTuple):
    """`updater` wraps an updater, `agent` the agent that was made of it."""

    updater: Callable[[Updater], Updater]
    agent: Callable[[Agent], Agent]


def unknown(like: ArrayTree) -> Moments:
    """The moments of no rows, each shaped as `like`."""
    zeros = jax.tree.map(jnp.zeros_like, like)
    return Moments(jnp.int32(0), zeros, jax.tree.map(jnp.ones_like, like))


def merged(moments: Moments, rows: ArrayTree) -> Moments:
    """The moments with more rows, `[N, ...]`.

        δ = mean(rows) − m,  s = N / (n + N)
        m ← m + s δ          v ← (1 − s) v + s (var(rows) + (1 − s) δ²)

    (Chan et al., 1983, https://doi.org/10.1080/00031305.1983.10483115)
    """
    number = jax.tree.leaves(rows)[0].shape[0]
    share = number / (moments.count.astype(jnp.float32) + number)

    def centre(mean: Array, new: Array) -> Array:
        return mean + share * (jnp.mean(new, axis=0) - mean)

    def spread(variance: Array, mean: Array, new: Array) -> Array:
        beside = (1 - share) * jnp.square(jnp.mean(new, axis=0) - mean)
        # Not v + s (… − v): of the 1 at first that would keep a rounding error.
        return (1 - share) * variance + share * (jnp.var(new, axis=0) + beside)

    return Moments(
        jnp.minimum(moments.count, _MOST - number) + number,
        jax.tree.map(centre, moments.mean, rows),
        jax.tree.map(spread, moments.variance, moments.mean, rows),
    )


def normalizer(
    space: gymnasium.Space,
    num_envs: int,
    *,
    observation: bool,
    reward: bool,
    gamma: Array | float,
) -> Normalizer:
    """Brings observations, and rewards, to scale.

        o ↦ clip((o − mean) / √(var + 10⁻⁸), −10, 10)
        r ↦ r / √(var(G) + 10⁻⁸),  G = r + γ G of the step before

    Every real number of the space is, and nothing else: no choice, no byte, no action
    mask. G begins anew with each episode, as in OpenAI's baselines.
    """
    real = _real(space)
    if observation and not any(real):
        raise RlcliError(
            f"`normalize` has nothing to do in {spaces.describe(space)}",
            "it is for real numbers: leave `observation` out",
        )
    pick, put = _leaves(real)

    def seen(moments: Moments | tuple[()], obs: ArrayTree) -> ArrayTree:
        if not isinstance(moments, Moments):
            return obs

        def scaled(leaf: Array, mean: Array, variance: Array) -> Array:
            return jnp.clip(
                (leaf - mean) * jax.lax.rsqrt(variance + _LEAST), -_CLIP, _CLIP
            )

        return put(obs, list(map(scaled, pick(obs), moments.mean, moments.variance)))

    def begin() -> Statistics:
        like = pick(jax.tree.map(jnp.asarray, spaces.zeros(space)))
        zero = jnp.float32(0)
        return Statistics(
            unknown(like) if observation else (),
            unknown(zero) if reward else (),
            jnp.zeros(num_envs) if reward else (),
        )

    def updated(before: Statistics, steps: Transition) -> Statistics:
        moments, returns, running = before
        if isinstance(moments, Moments):
            rows = [leaf.reshape((-1, *leaf.shape[2:])) for leaf in pick(steps.obs)]
            moments = merged(moments, rows)
        if isinstance(returns, Moments):
            running, each = _discounted(running, steps, gamma)
            returns = merged(returns, each.reshape(-1))
        return Statistics(moments, returns, running)

    return Normalizer(
        updater=lambda updater: _updater(updater, begin, seen),
        agent=lambda agent: _agent(agent, updated),
    )


def _updater(
    updater: Updater, begin: Callable[[], Statistics], seen: Callable[..., ArrayTree]
) -> Updater:
    """The updater, which is shown everything to scale."""

    def scaled(statistics: Statistics, steps: Transition) -> Transition:
        sums = {name: steps.extras[name] for name in _REWARDS if name in steps.extras}
        reward, sums = in_unit(statistics.returns, (steps.reward, sums))
        return steps._replace(
            obs=seen(statistics.observation, steps.obs),
            next_obs=seen(statistics.observation, steps.next_obs),
            reward=reward,
            extras={**steps.extras, **sums},
        )

    def in_unit(returns: Moments | tuple[()], rewards: ArrayTree) -> ArrayTree:
        if not isinstance(returns, Moments):
            return rewards
        # Rounded, or a division, which XLA takes for a product, and the sum of a target
        # would be one in the one loop and two in the other.
        unit = _unit(returns)
        return rounded(jax.tree.map(lambda x: x / unit, rewards), returns.count)

    def update(
        state: Normalized, batch: Transition, weight: Array, clock: Clock, key: Key
    ) -> tuple[Normalized, Report]:
        rows = scaled(state.statistics, batch)
        learner, report = updater.update(state.learner, rows, weight, clock, key)
        return state._replace(learner=learner), report

    def estimate(state: Normalized, steps: Transition) -> Estimates:
        found = updater.estimate(state.learner, scaled(state.statistics, steps))
        if not isinstance(state.statistics.returns, Moments):
            return found
        # Tracers add rewards as they are, so they are told values in the same unit.
        unit = _unit(state.statistics.returns)
        return found._replace(
            v_tm1=found.v_tm1 * unit, v_t=found.v_t * unit, q_tm1=found.q_tm1 * unit
        )

    def acting(state: Normalized) -> Acting:
        return Acting(updater.acting(state.learner), state.statistics.observation)

    return updater._replace(
        init=lambda key: Normalized(updater.init(key), begin()),
        acting=acting,
        policy=_policy(updater.policy, seen),
        update=update,
        estimate=estimate,
        failed=lambda state: updater.failed(state.learner),
    )


def _policy(policy: Policy, seen: Callable[..., ArrayTree]) -> Policy:
    """The policy, which sees everything to scale."""

    def to_scale(act: Callable) -> Callable:
        def acting_so(acting: Acting, obs: ArrayTree, *rest: Any) -> tuple:
            return act(acting.policy, seen(acting.observation, obs), *rest)

        return acting_so

    return policy._replace(
        explore=to_scale(policy.explore), exploit=to_scale(policy.exploit)
    )


def _agent(
    agent: Agent, updated: Callable[[Statistics, Transition], Statistics]
) -> Agent:
    """The agent, which takes the statistics of each unroll."""

    def learn(
        state: Any, steps: Transition, clock: Clock, noise: ArrayTree
    ) -> tuple[Any, Mapping[str, Array]]:
        before = state.learner.statistics
        state, metrics = agent.learn(state, steps, clock, noise)
        learner = state.learner._replace(statistics=updated(before, steps))
        return state._replace(learner=learner), metrics

    return agent._replace(learn=learn)


def _unit(returns: Moments) -> Array:
    """What a reward is divided by."""
    return jnp.sqrt(returns.variance + _LEAST)


def _discounted(
    running: Any, steps: Transition, gamma: Array | float
) -> tuple[Array, Array]:
    """The returns of `[T, B]` steps as they run up, after the last and at each."""

    def one(before: Array, step: tuple[Array, Array]) -> tuple[Array, Array]:
        reward, first = step
        after = reward + gamma * jnp.where(first, 0.0, before)
        return after, after

    return jax.lax.scan(one, running, (steps.reward, steps.first))


def _real(space: gymnasium.Space) -> list[bool]:
    """Which leaves of an element are real numbers."""
    shown, mask = action_masks.apart(space)
    shapes = jax.eval_shape(lambda: spaces.zeros(shown))
    real = jax.tree.map(lambda leaf: leaf.dtype.kind == "f", shapes)
    return jax.tree.leaves(real if mask is None else {**real, action_masks.MASK: False})


def _leaves(which: list[bool]) -> tuple[Callable, Callable]:
    """`pick(tree) -> leaves`, those of them; `put(tree, leaves) -> tree`."""

    def pick(tree: ArrayTree) -> list[Array]:
        return [leaf for leaf, ours in _each(tree) if ours]

    def put(tree: ArrayTree, leaves: list[Array]) -> ArrayTree:
        new = iter(leaves)
        each = [next(new) if ours else leaf for leaf, ours in _each(tree)]
        return jax.tree.unflatten(jax.tree.structure(tree), each)

    def _each(tree: ArrayTree) -> Iterable[tuple[Array, bool]]:
        return zip(jax.tree.leaves(tree), which, strict=True)

    return pick, put
