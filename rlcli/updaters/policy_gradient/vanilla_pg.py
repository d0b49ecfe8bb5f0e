"""The policy gradient, REINFORCE and advantage actor-critic (A2C)."""

from __future__ import annotations

from collections.abc import Callable

import optax

from rlcli.registry import register
from rlcli.types import Array, Network, NonNegative, Policy, Updater
from rlcli.updaters import Spaces
from rlcli.updaters.policy_gradient.actor_critic import (
    ActorCriticOptions,
    Batch,
    actor_critic,
)
from rlcli.updaters.regularizers import Regularizer

_RETURNS = {"name": "lambda_return", "gamma": 0.99, "lambda": 1.0}
_ADVANTAGE = {"name": "lambda_return", "gamma": 0.99, "lambda": 0.95}


@register("updater", policy="sampled", tracer=_ADVANTAGE, unroll=16)
def vanilla_pg(
    spaces: Spaces,
    networks: Callable[..., Network],
    policies: Callable[..., Policy],
    optimizer: optax.GradientTransformation,
    *,
    baseline: bool = True,
    value_weight: NonNegative = 0.5,
    normalize_advantage: bool = False,
    regularizers: list[Regularizer] = [{"name": "entropy", "weight": 0.01}],  # noqa: B006 - never mutated
) -> Updater:
    """Policy gradient: one gradient step on each unroll, with an optional baseline.

        −Â log π(a|s)        Â = G − v(s)

    Â is held fixed; the value loss is `value_weight` · ½ (v(s) − G)². The tracer
    computes G: with λ-returns this is A2C (Mnih et al., 2016,
    https://arxiv.org/abs/1602.01783). Without a `baseline` there is no value function,
    so Â = G; with whole returns this is REINFORCE (Williams, 1992,
    https://doi.org/10.1007/BF00992696). `normalize_advantage` scales Â to mean 0 and
    standard deviation 1 over the unroll.
    """
    options = ActorCriticOptions(
        value_weight=value_weight,
        normalize_advantage=normalize_advantage,
        regularizers=regularizers,
        baseline=baseline,
    )
    parts = (spaces, networks, policies, optimizer)
    return actor_critic("vanilla_pg", *parts, _policy_gradient_loss, options)


@register("updater", policy="sampled", tracer=_ADVANTAGE, unroll=16)
def a2c(
    spaces: Spaces,
    networks: Callable[..., Network],
    policies: Callable[..., Policy],
    optimizer: optax.GradientTransformation,
    *,
    value_weight: NonNegative = 0.5,
    normalize_advantage: bool = False,
    regularizers: list[Regularizer] = [{"name": "entropy", "weight": 0.01}],  # noqa: B006 - never mutated
) -> Updater:
    """Advantage actor-critic (A2C): `vanilla_pg` with a baseline and λ-returns.

    (Mnih et al., 2016, https://arxiv.org/abs/1602.01783)
    """
    options = ActorCriticOptions(value_weight, normalize_advantage, regularizers)
    parts = (spaces, networks, policies, optimizer)
    return actor_critic("a2c", *parts, _policy_gradient_loss, options)


@register("updater", policy="sampled", tracer=_RETURNS, unroll=128)
def reinforce(
    spaces: Spaces,
    networks: Callable[..., Network],
    policies: Callable[..., Policy],
    optimizer: optax.GradientTransformation,
    *,
    normalize_advantage: bool = False,
    regularizers: list[Regularizer] = [],  # noqa: B006 - never mutated
) -> Updater:
    """REINFORCE: `vanilla_pg` with whole returns and without a baseline.

    (Williams, 1992, https://doi.org/10.1007/BF00992696). Returns truncated by the end
    of the unroll or by a time limit sum only the observed rewards.
    """
    options = ActorCriticOptions(0.0, normalize_advantage, regularizers, baseline=False)
    parts = (spaces, networks, policies, optimizer)
    return actor_critic("reinforce", *parts, _policy_gradient_loss, options)


def _policy_gradient_loss(
    log_prob: Array, batch: Batch
) -> tuple[Array, dict[str, Array]]:
    return -batch.advantage * log_prob, {}
