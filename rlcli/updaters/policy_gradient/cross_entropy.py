"""Advantage-filtered cross-entropy: self-imitation, CRR and behavior cloning."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import jax.numpy as jnp
import optax

from rlcli.registry import register
from rlcli.types import Array, Count, Network, NonNegative, Policy, Positive, Updater
from rlcli.updaters import Spaces
from rlcli.updaters.policy_gradient.actor_critic import (
    ActorCriticOptions,
    Batch,
    actor_critic,
)
from rlcli.updaters.regularizers import Regularizer

_MAX_WEIGHT = 20.0  # limit of the exponential filter (Wang et al., 2020)


@register(
    "updater",
    policy="sampled",
    tracer={"name": "lambda_return", "gamma": 0.99, "lambda": 0.95},
    unroll=128,
)
def cross_entropy(
    spaces: Spaces,
    networks: Callable[..., Network],
    policies: Callable[..., Policy],
    optimizer: optax.GradientTransformation,
    *,
    filter: Literal["positive", "binary", "exponential", "none"] = "positive",
    temperature: Positive = 1.0,
    epochs: Count = 1,
    minibatches: Count = 1,
    value_weight: NonNegative = 0.5,
    normalize_advantage: bool = False,
    regularizers: list[Regularizer] = [{"name": "entropy", "weight": 0.01}],  # noqa: B006 - never mutated
    sequence: Count | None = None,
) -> Updater:
    """Cross-entropy: imitates actions, weighted by a non-negative advantage filter.

        −f(Â) log π(a|s)        Â = G − v(s)

    where f(Â) is max(Â, 0) (`positive`: self-imitation, Oh et al., 2018,
    https://arxiv.org/abs/1806.05635), 1 if Â > 0 else 0 (`binary`) or
    min(exp(Â / β), 20) with β the `temperature` (`exponential`; both are those of
    critic-regularized regression, Wang et al., 2020, https://arxiv.org/abs/2006.15134),
    or 1 (`none`: behavior cloning). Unlike the loss of `vanilla_pg`, this loss has a
    minimum for any behavior policy: the policy that takes only the weighted actions. So
    it needs no importance ratio, even over several epochs. The value loss is
    `value_weight` · ½ (v(s) − G)², with G from the tracer.
    """
    filters: dict[str, Callable[[Array], Array]] = {
        "positive": lambda advantage: jnp.maximum(advantage, 0),
        "binary": lambda advantage: (advantage > 0).astype(jnp.float32),
        "exponential": lambda advantage: jnp.minimum(
            jnp.exp(advantage / temperature), _MAX_WEIGHT
        ),
        "none": jnp.ones_like,
    }

    def imitate(log_prob: Array, batch: Batch) -> tuple[Array, dict[str, Array]]:
        action_weight = filters[filter](batch.advantage)
        return -action_weight * log_prob, {"imitated": action_weight > 0}

    options = ActorCriticOptions(
        value_weight=value_weight,
        normalize_advantage=normalize_advantage,
        regularizers=regularizers,
        epochs=epochs,
        minibatches=minibatches,
        sequence=sequence,
    )
    parts = (spaces, networks, policies, optimizer)
    return actor_critic("cross_entropy", *parts, imitate, options)
