"""Intrinsic rewards: rewards that agents add to those of their environment.

Belongs here: rewards with a learned state, such as a prediction error, one file each,
and what adds them to an updater.
May import: the shared modules of updaters, and what updaters may import.

Intrinsic rewards are parts with a state of their own. `add_intrinsic_reward` wraps an
updater: its estimates contain the reward of each step (`Estimates.intrinsic_reward`),
which the agent adds to the rewards before the tracer, its `update` trains the reward on
the same rows, and its `observe` updates running statistics. So a replay holds the
environment's rewards, and neither loop nor tracers nor updaters know of it.
Normalization wraps the result: an intrinsic reward is in the unit of normalized
rewards.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Int32, Real

from rlcli.types import Array, ArrayTree, Key, PerRow, Transition, Updater


class IntrinsicReward(NamedTuple):
    """A reward that the agent adds to the environment's, with a learned state.

    A step gets the reward of the state at the time of learning, so unrolls and replays
    hold the environment's reward only.
    """

    init: Callable[[Key], ArrayTree]
    # (state, steps) -> the reward of each step
    reward: Callable[[ArrayTree, Transition], PerRow]
    # (state, rows, weight, clock, key) -> state, metrics: with every update, on its
    # rows. Those of the tracer: their `reward` is a sum of total rewards. But their
    # `next_obs` is that of the first step of the row, as in `reward`.
    update: Callable[..., tuple[ArrayTree, Mapping[str, Real[Array, ""]]]]
    # state -> the first failed update, or −1
    failed_at: Callable[[ArrayTree], Int32[Array, ""]]
    # See the fields of `Updater` with these names.
    observe: Callable[[ArrayTree, Transition, ArrayTree], ArrayTree] | None = None
    environment_axes: ArrayTree = None
    is_data_parallel: bool = False


class IntrinsicState(NamedTuple):
    """The states of an updater and of its intrinsic reward."""

    learner: ArrayTree
    reward: ArrayTree


def add_intrinsic_reward(updater: Updater, reward: IntrinsicReward) -> Updater:
    """The updater with the sum of the environment's and an intrinsic reward.

    The sum is what tracers trace, so it works with any updater, tracer and replay.
    """

    def init(key: Key) -> IntrinsicState:
        updater_key, reward_key = jax.random.split(key)
        return IntrinsicState(updater.init(updater_key), reward.init(reward_key))

    def estimate(state, steps, key):
        estimates = updater.estimate(state.learner, steps, key)
        intrinsic = reward.reward(state.reward, steps)
        return estimates._replace(intrinsic_reward=intrinsic)

    def update(state, batch, weight, clock, key):
        updater_key, reward_key = jax.random.split(key)
        extras = {**batch.extras}
        next_obs = extras.pop("step_next_obs")
        batch = batch._replace(extras=extras)
        learner, report = updater.update(
            state.learner, batch, weight, clock, updater_key
        )
        rows = batch._replace(next_obs=next_obs)
        learned, metrics = reward.update(state.reward, rows, weight, clock, reward_key)
        report = report._replace(metrics={**report.metrics, **metrics})
        return IntrinsicState(learner, learned), report

    def observe(state, unroll, before):
        learner, learned = state
        if updater.observe is not None:
            learner = updater.observe(learner, unroll, before.learner)
        if reward.observe is not None:
            learned = reward.observe(learned, unroll, before.reward)
        return IntrinsicState(learner, learned)

    def failed_at(state: IntrinsicState) -> Int32[Array, ""]:
        first, second = updater.failed_at(state.learner), reward.failed_at(state.reward)
        both = jnp.minimum(first, second)
        # −1 is no failure: the larger is the only one, if there is one.
        return jnp.where(both >= 0, both, jnp.maximum(first, second))

    return updater._replace(
        init=init,
        acting=lambda state: updater.acting(state.learner),
        estimate=estimate,
        update=update,
        observe=observe,
        failed_at=failed_at,
        traits=updater.traits._replace(
            environment_axes=IntrinsicState(
                updater.traits.environment_axes, reward.environment_axes
            ),
            is_data_parallel=updater.traits.is_data_parallel
            and reward.is_data_parallel,
        ),
    )
