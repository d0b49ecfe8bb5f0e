"""Proximal policy optimization (PPO)."""

from __future__ import annotations

from collections.abc import Callable

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
    value_clip_ratio: Positive | None = None,
    normalize_advantage: bool = True,
    kl_limit: Positive | None = None,
    regularizers: list[Regularizer] = [{"name": "entropy", "weight": 0.01}],  # noqa: B006 - never mutated
    sequence: Count | None = None,
) -> Updater:
    """Proximal policy optimization (PPO): a clipped objective over minibatch epochs.

        ρ = π(a|s) / π_old(a|s)        −min(ρ Â, clip(ρ, 1 − ε, 1 + ε) Â)

    (Schulman et al., 2017, https://arxiv.org/abs/1707.06347). ε is `clip_ratio`. The
    value loss is `value_weight` · ½ (v(s) − G)², with the value target G from the
    tracer. The advantage Â is G minus the value before the update, normalized in each
    minibatch if `normalize_advantage`.

    `value_clip_ratio` ε_v clips the value loss: it is the larger of the loss of v and
    that of v_old + clip(v − v_old, −ε_v, ε_v). With `kl_limit`, the update stops once
    E[ρ − 1 − log ρ] over the next minibatch exceeds it; the metric `stopped` is the
    fraction of gradient steps skipped. `sequence` is the number of consecutive steps
    that stay together in a minibatch; null: 1, or the whole unroll if the network is
    recurrent.
    """

    def clipped_objective(
        log_prob: Array, batch: Batch
    ) -> tuple[Array, dict[str, Array]]:
        log_ratio = log_prob - batch.steps.extras["log_prob"]
        ratio, advantage = jnp.exp(log_ratio), batch.advantage
        clipped_ratio = jnp.clip(ratio, 1 - clip_ratio, 1 + clip_ratio)
        return -jnp.minimum(ratio * advantage, clipped_ratio * advantage), {
            "kl": ratio - 1 - log_ratio,
            "clip_fraction": jnp.abs(ratio - 1) > clip_ratio,
        }

    options = ActorCriticOptions(
        value_weight=value_weight,
        normalize_advantage=normalize_advantage,
        regularizers=regularizers,
        value_clip_ratio=value_clip_ratio,
        kl_limit=kl_limit,
        epochs=epochs,
        minibatches=minibatches,
        sequence=sequence,
    )
    parts = (spaces, networks, policies, optimizer)
    return actor_critic(
        "ppo", *parts, clipped_objective, options, requires=("log_prob",)
    )
