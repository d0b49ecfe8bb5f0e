"""V-trace actor-critic (IMPALA): off-policy corrected policy gradients."""

from __future__ import annotations

from collections.abc import Callable

import jax.numpy as jnp
import optax

from rlcli.registry import register
from rlcli.types import Array, Count, Network, NonNegative, Policy, Updater
from rlcli.updaters import Spaces
from rlcli.updaters.policy_gradient.actor_critic import (
    ActorCriticOptions,
    Batch,
    actor_critic,
)
from rlcli.updaters.presets import preset
from rlcli.updaters.regularizers import Regularizer

_DEFAULTS = {
    "policy": "sampled",
    "tracer": {"name": "v_trace", "gamma": 0.99},
    "unroll": 20,
}


@register("updater", **_DEFAULTS)
def v_trace(
    spaces: Spaces,
    networks: Callable[..., Network],
    policies: Callable[..., Policy],
    optimizer: optax.GradientTransformation,
    *,
    value_weight: NonNegative = 0.5,
    normalize_advantage: bool = False,
    regularizers: list[Regularizer] = [{"name": "entropy", "weight": 0.01}],  # noqa: B006 - never mutated
    sequence: Count = 20,
) -> Updater:
    """V-trace actor-critic (IMPALA): an off-policy corrected policy gradient.

        −Â log π(a|s)        Âₜ = ρₜ (rₜ₊₁ + γ Vₜ₊₁ − v(sₜ))

    Â is held fixed; the value loss is `value_weight` · ½ (v(s) − V)². The tracer
    `v_trace` computes ρ and V, which correct for the behavior policy μ (Espeholt et
    al., 2018, https://arxiv.org/abs/1802.01561). It learns from unrolls, or from a
    replay of `sequence` consecutive steps. With a replay, `normalize_advantage` is not
    allowed: actions that π never takes must keep an advantage of 0. The metric `ratio`
    is π/μ.
    """
    options = ActorCriticOptions(value_weight, normalize_advantage, regularizers)
    parts = (spaces, networks, policies, optimizer)
    updater = actor_critic(
        "v_trace", *parts, _policy_gradient_loss, options, requires=("log_prob",)
    )
    return updater._replace(rows=sequence)


@preset(v_trace, _DEFAULTS)
def impala() -> None:
    """IMPALA: V-trace actor-critic, with all actors in this process.

    (Espeholt et al., 2018, https://arxiv.org/abs/1802.01561). `environment.num_envs` is
    the number of actors. The convolutions of the paper are `network: residual`.
    """


def _policy_gradient_loss(
    log_prob: Array, batch: Batch
) -> tuple[Array, dict[str, Array]]:
    ratio = jnp.exp(log_prob - batch.steps.extras["log_prob"])
    return -batch.advantage * log_prob, {"ratio": ratio}
