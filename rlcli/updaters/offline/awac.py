"""Advantage-weighted actor-critic (AWAC)."""

import functools

import jax

from rlcli.networks.predictions import Loss, TransformName
from rlcli.registry import register
from rlcli.types import (
    Array,
    Count,
    NonNegative,
    Params,
    PerRow,
    Positive,
    Transition,
    Updater,
)
from rlcli.updaters import Parts
from rlcli.updaters.advantage_weights import exponential_weight
from rlcli.updaters.learner import POLYAK_TARGET, Target
from rlcli.updaters.off_policy.actors import ActionChoices, distribution_actor
from rlcli.updaters.off_policy.off_policy_actor_critic import (
    ZERO_TEMPERATURE,
    OffPolicyOptions,
    OffPolicyParts,
    off_policy_actor_critic,
)


@register(
    "updater", policy="sampled", tracer="n_step", replay={"name": "dataset"}, unroll=1
)
def awac(
    parts: Parts,
    *,
    beta: NonNegative = 1.0,
    weight_clip: Positive = 100.0,
    critics: Count = 2,
    target: Target | None = POLYAK_TARGET,
    loss: Loss = "mse",
    transform: TransformName | None = None,
) -> Updater:
    """Advantage-weighted actor-critic (AWAC): imitates the better actions of a replay.

        q:  y = R + I Σ π(a′|s′) min q⁻(s′, a′)
        π:  −min(exp(β u), w) log π(a|s),  u = min q(s, a) − Σ π(a′|s) min q(s, a′)

    (Nair et al., 2020, https://arxiv.org/abs/2006.09359). The critics learn the values
    of the policy, as in `sac` without entropy. The policy only learns from actions in
    the replay, so it stays close to a data set, and improves further once the replay
    has its own actions. Over Discrete actions the sums are exact; otherwise they are
    estimated from one sampled action. β is `beta`, w `weight_clip`.
    """
    return off_policy_actor_critic(
        "awac",
        parts,
        distribution_actor(
            "awac",
            parts,
            box="normal",
            hint="`iql` and `behaviour_cloning` support more action spaces",
        ),
        ZERO_TEMPERATURE,
        OffPolicyOptions(
            critics=critics,
            target=target,
            loss=loss,
            transform=transform,
            change_policy_loss=functools.partial(awac_loss, beta, weight_clip),
        ),
    )


def awac_loss(
    beta: Array | float,
    weight_clip: Array | float,
    parts: OffPolicyParts,
    params: Params,
    policy_loss: PerRow,
    choice: ActionChoices,
    rows: Transition,
) -> PerRow:
    """The loss of the policy; `policy_loss` is −Σ π(a′|s) min q(s, a′)."""
    assert parts.actor.family is not None  # AWAC's actors are distributions
    prediction = parts.critic.predict_action(
        "act", params, None, rows.obs, rows.action, rows.first
    )
    q = prediction.particles(parts.transform).min_over_critics().mean()
    weight = exponential_weight(q + policy_loss, beta, weight_clip)
    log_prob = parts.actor.family.log_prob(choice.outputs, rows.action)
    return -jax.lax.stop_gradient(weight) * log_prob
