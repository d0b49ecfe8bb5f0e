"""Proximal policy optimization."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Literal, NamedTuple, TypedDict

import jax
import jax.numpy as jnp
import optax

from rlcli.errors import RlcliError
from rlcli.learning import Learner, Losses, learner
from rlcli.networks.heads import parameters, state_value
from rlcli.policies import Parameters
from rlcli.registry import register
from rlcli.types import (
    Array,
    ArrayTree,
    Clock,
    Count,
    Estimates,
    Key,
    Network,
    NonNegative,
    Policy,
    Positive,
    Report,
    Transition,
    Updater,
)
from rlcli.updaters import Spaces, stochastic


class Regularizer(TypedDict):
    """What the objective is bent towards, and how strongly."""

    name: Literal["entropy"]
    weight: NonNegative


class _Batch(NamedTuple):
    """`[L, N]`: N sequences of L steps, with what stays fixed while learning."""

    steps: Transition
    weight: Array
    target: Array  # what the value should be
    advantage: Array


@register(
    "updater",
    policy="sampled",
    tracer={"name": "lambda_return", "gamma": 0.99, "lambda": 0.95},
    unroll=128,
)
def ppo(
    spaces: Spaces,
    networks: Callable[..., Network],
    policies: Callable[..., Policy],
    optimizer: optax.GradientTransformation,
    *,
    epochs: Count = 4,
    minibatches: Count = 4,
    clip_ratio: Positive = 0.2,
    value_weight: NonNegative = 0.5,
    normalize_advantage: bool = True,
    regularizers: list[Regularizer] = [{"name": "entropy", "weight": 0.01}],  # noqa: B006 - never mutated
    sequence: Count | None = 1,
) -> Updater:
    """Several passes over an unroll, none of which moves the policy far.

        ρ = π(a|s) / π_old(a|s)        −min(ρ Â, clip(ρ, 1 − ε, 1 + ε) Â)

    (Schulman et al., 2017, https://arxiv.org/abs/1707.06347). The tracer says what
    the value should be; the advantage Â is that minus the value of before the update,
    normalized in each minibatch. `sequence` is how many consecutive steps stay
    together in a minibatch; null: the whole unroll.
    """
    family = stochastic(spaces.action, "ppo")
    actor = networks("policy", functools.partial(parameters, family))
    critic = networks("value", state_value)
    policy = policies(distribution=Parameters(actor, family), space=spaces.action)

    def init(key: Key) -> ArrayTree:
        return {**actor.init(key), **critic.init(key)}

    begin, step = learner(init, optimizer)
    entropy_weight = sum(each["weight"] for each in regularizers)

    def value(params, obs: Array, first: Array) -> Array:
        return critic.apply(params, None, obs, (), first)[0]

    def log_prob(params, steps: Transition) -> tuple[Array, Array]:
        found, _ = actor.apply(params, None, steps.obs, (), steps.first)
        return family.log_prob(found, steps.action), family.entropy(found)

    def losses(batch: _Batch, params) -> Losses:
        steps, advantage = batch.steps, batch.advantage
        if normalize_advantage:
            advantage = _normalized(advantage, batch.weight)
        now, entropy = log_prob(params, steps)
        log_ratio = now - steps.extras["log_prob"]
        ratio = jnp.exp(log_ratio)
        clipped = jnp.clip(ratio, 1 - clip_ratio, 1 + clip_ratio)
        error = value(params, steps.obs, steps.first) - batch.target
        return Losses(
            terms={
                "policy": -jnp.minimum(ratio * advantage, clipped * advantage),
                "critic": value_weight * 0.5 * error**2,
                "entropy": -entropy_weight * entropy,
            },
            priority=jnp.mean(jnp.abs(error), axis=0),
            metrics={
                "entropy": entropy,
                "kl": ratio - 1 - log_ratio,
                "clip_fraction": jnp.abs(ratio - 1) > clip_ratio,
                "value_loss": 0.5 * error**2,
            },
        )

    def update(
        state: Learner, batch: Transition, weight: Array, clock: Clock, key: Key
    ) -> tuple[Learner, Report]:
        v_tm1 = value(state.params, batch.obs, batch.first)
        v_t = value(state.params, batch.next_obs, batch.first)
        target = batch.reward + batch.discount * v_t
        whole = _Batch(batch, weight, target, target - v_tm1)
        cut = _sequences(whole, sequence or batch.reward.shape[0])
        order = _minibatches(key, cut.weight.shape[1], epochs, minibatches)

        def learn(state: Learner, index: Array) -> tuple[Learner, dict[str, Array]]:
            part = jax.tree.map(lambda leaf: jnp.take(leaf, index, axis=1), cut)
            loss = functools.partial(losses, part)
            state, _, metrics = step(state, loss, part.weight, clock)
            return state, metrics

        state, metrics = jax.lax.scan(learn, state, order)
        metrics = jax.tree.map(lambda each: jnp.mean(each, axis=0), metrics)
        explained = 1 - jnp.var(target - v_tm1) / (jnp.var(target) + 1e-8)
        priority = jnp.mean(jnp.abs(target - v_tm1), axis=0)
        return state, Report(priority, {**metrics, "explained_variance": explained})

    def estimate(state: Learner, steps: Transition) -> Estimates:
        v_tm1 = value(state.params, steps.obs, steps.first)
        return Estimates(
            v_tm1=v_tm1,
            v_t=value(state.params, steps.next_obs, steps.first),
            log_prob=log_prob(state.params, steps)[0],
            q_tm1=v_tm1,  # a state value knows no actions
        )

    return Updater(
        init=begin,
        acting=lambda state: state.params,
        policy=policy,
        update=update,
        estimate=estimate,
        failed=lambda state: state.failed,
        needs=("log_prob",),
    )


def _normalized(advantage: Array, weight: Array) -> Array:
    """Zero mean and unit deviation, over the rows that count."""
    counts = weight > 0
    rows = jnp.maximum(jnp.sum(counts), 1)  # a minibatch may have none that counts
    mean = jnp.sum(advantage, where=counts) / rows
    variance = jnp.sum((advantage - mean) ** 2, where=counts) / rows
    return (advantage - mean) / (jnp.sqrt(variance) + 1e-8)


def _sequences(batch: _Batch, length: int) -> _Batch:
    """`[T, B]` as `[length, T / length · B]`."""
    steps, environments = batch.weight.shape
    if steps % length:
        raise RlcliError(
            f"updater `ppo` cannot cut an unroll of {steps} steps in sequences of "
            f"{length}",
            "choose `train.unroll` as a multiple of `updater.sequence`",
        )

    def cut(leaf: Array) -> Array:
        pieces = leaf.reshape((steps // length, length, *leaf.shape[1:]))
        return jnp.moveaxis(pieces, 1, 0).reshape(
            (length, steps // length * environments, *leaf.shape[2:])
        )

    return jax.tree.map(cut, batch)


def _minibatches(key: Key, rows: int, epochs: int, minibatches: int) -> Array:
    """Which rows each gradient step takes: `[epochs · minibatches, rows]`."""
    if rows % minibatches:
        raise RlcliError(
            f"updater `ppo` cannot deal {rows} sequences to {minibatches} minibatches",
            "choose `updater.minibatches` as a divisor of `train.unroll` times "
            "`environment.num_envs`, over `updater.sequence`",
        )
    keys = jax.random.split(key, epochs)
    orders = jax.vmap(lambda each: jax.random.permutation(each, rows))(keys)
    return orders.reshape((epochs * minibatches, rows // minibatches))
