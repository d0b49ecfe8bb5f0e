"""V-trace actor-critic (IMPALA): off-policy corrected policy gradients."""

import jax.numpy as jnp

from rlcli.types import Count
from rlcli.updaters.policy_gradient.actor_critic import ObjectiveContext, PolicyLoss
from rlcli.updaters.policy_gradient.objective_updater import objective

_TRACER = {"name": "v_trace", "gamma": 0.99}


@objective(
    tracer=_TRACER, unroll=20, requires=("log_prob",), sequence_length="sequence"
)
def v_trace(context: ObjectiveContext, *, sequence: Count = 20) -> PolicyLoss:
    """V-trace actor-critic (IMPALA): an off-policy corrected policy gradient.

        −Â log π(a|s)        Âₜ = ρₜ (rₜ₊₁ + γ Vₜ₊₁ − v(sₜ))

    Â is held fixed; the value loss is `value_weight` · ½ (v(s) − V)². The tracer
    `v_trace` computes ρ and V, which correct for the behavior policy μ (Espeholt et
    al., 2018, https://arxiv.org/abs/1802.01561). It learns from unrolls, or from a
    replay of `sequence` consecutive steps. With a replay, `normalize_advantage` is not
    allowed: actions that π never takes must keep an advantage of 0. The metric `ratio`
    is π/μ.
    """
    del sequence  # read by the decorator
    return _loss(context)


@objective(
    preset_of="v_trace",
    tracer=_TRACER,
    unroll=20,
    requires=("log_prob",),
    sequence_length="sequence",
)
def impala(context: ObjectiveContext, *, sequence: Count = 20) -> PolicyLoss:
    """IMPALA: V-trace actor-critic, with all actors in this process.

    (Espeholt et al., 2018, https://arxiv.org/abs/1802.01561). `environment.num_envs` is
    the number of actors. The convolutions of the paper are `network: residual`.
    """
    del sequence  # read by the decorator
    return _loss(context)


def _loss(context: ObjectiveContext) -> PolicyLoss:
    loss = -context.advantage * context.log_prob
    return PolicyLoss(loss, {"ratio": jnp.exp(context.log_ratio)})
