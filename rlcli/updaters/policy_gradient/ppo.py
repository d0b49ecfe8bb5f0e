"""Proximal policy optimization (PPO)."""

import jax.numpy as jnp

from rlcli.types import Positive
from rlcli.updaters.policy_gradient.actor_critic import ObjectiveContext, PolicyLoss
from rlcli.updaters.policy_gradient.objective_updater import objective


@objective(
    requires=("log_prob",),
    value_clip_ratio=None,
    normalize_advantage=True,
    kl_limit=None,
    epochs=4,
    minibatches=4,
    sequence=None,
)
def ppo(context: ObjectiveContext, *, clip_ratio: Positive = 0.2) -> PolicyLoss:
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
    log_ratio, advantage = context.log_ratio, context.advantage
    # Not `rlax.clipped_surrogate_pg_loss`: it returns the mean of rows, which here have
    # weights.
    ratio = jnp.exp(log_ratio)
    clipped_ratio = jnp.clip(ratio, 1 - clip_ratio, 1 + clip_ratio)
    return PolicyLoss(
        -jnp.minimum(ratio * advantage, clipped_ratio * advantage),
        {"kl": ratio - 1 - log_ratio, "clip_fraction": jnp.abs(ratio - 1) > clip_ratio},
    )
