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
from rlcli.updaters.presets import preset
from rlcli.updaters.regularizers import Regularizer

_ADVANTAGES = {
    "policy": "sampled",
    "tracer": {"name": "lambda_return", "gamma": 0.99, "lambda": 0.95},
    "unroll": 16,
}
_RETURNS = {
    "policy": "sampled",
    "tracer": {"name": "lambda_return", "gamma": 0.99, "lambda": 1.0},
    "unroll": 128,
}


@register("updater", **_ADVANTAGES)
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


@preset(vanilla_pg, _ADVANTAGES)
def a2c() -> None:
    """Advantage actor-critic (A2C): policy gradient with a baseline and λ-returns.

    (Mnih et al., 2016, https://arxiv.org/abs/1602.01783)
    """


@preset(vanilla_pg, _RETURNS, baseline=False, value_weight=0.0, regularizers=[])
def reinforce() -> None:
    """REINFORCE: policy gradient with whole returns and without a baseline.

    (Williams, 1992, https://doi.org/10.1007/BF00992696). Returns truncated by the end
    of the unroll or by a time limit sum only the observed rewards.
    """


def _policy_gradient_loss(
    log_prob: Array, batch: Batch
) -> tuple[Array, dict[str, Array]]:
    return -batch.advantage * log_prob, {}
