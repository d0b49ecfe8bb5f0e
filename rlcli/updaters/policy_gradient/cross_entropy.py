"""Advantage-filtered cross-entropy: self-imitation, CRR, AWR and behavior cloning."""

from collections.abc import Callable
from typing import Literal

import jax.numpy as jnp

from rlcli.types import Array, Positive
from rlcli.updaters.advantage_weights import exponential_weight
from rlcli.updaters.policy_gradient.actor_critic import ObjectiveContext, PolicyLoss
from rlcli.updaters.policy_gradient.objective_updater import objective

Filter = Literal["positive", "binary", "exponential", "none"]
_MAX_WEIGHT = 20.0  # limit of the exponential filter (Peng et al., 2019)


@objective(epochs=1, minibatches=1, sequence=None, replays="any")
def cross_entropy(
    context: ObjectiveContext,
    *,
    filter: Filter = "positive",
    temperature: Positive = 1.0,
) -> PolicyLoss:
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
    return _loss(context, filter, temperature)


@objective(
    preset_of="cross_entropy",
    replay={"name": "sequences", "length": 32, "batch_size": 8},
    unroll=1,
    epochs=1,
    minibatches=1,
    sequence=None,
    replays="any",
    normalize_advantage=True,
    regularizers=[],
)
def awr(
    context: ObjectiveContext,
    *,
    filter: Filter = "exponential",
    temperature: Positive = 1.0,
) -> PolicyLoss:
    """Advantage-weighted regression (AWR): imitates the better actions of a replay.

    (Peng et al., 2019, https://arxiv.org/abs/1910.00177). The weights are those of the
    filter `exponential`, with λ-returns of the steps of earlier policies.
    """
    return _loss(context, filter, temperature)


def _loss(
    context: ObjectiveContext, filter: Filter, temperature: Array | float
) -> PolicyLoss:
    filters: dict[str, Callable[[Array], Array]] = {
        "positive": lambda advantage: jnp.maximum(advantage, 0),
        "binary": lambda advantage: (advantage > 0).astype(jnp.float32),
        "exponential": lambda advantage: exponential_weight(
            advantage, 1 / temperature, _MAX_WEIGHT
        ),
        "none": jnp.ones_like,
    }
    action_weight = filters[filter](context.advantage)
    return PolicyLoss(
        -action_weight * context.log_prob, {"imitated": action_weight > 0}
    )
