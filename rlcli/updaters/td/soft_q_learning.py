"""Soft Q-learning and Munchausen Q-learning: values with an entropy bonus."""

import jax
import jax.numpy as jnp

from rlcli.distributions.action_masks import divide
from rlcli.types import Array, NonNegative, Positive
from rlcli.updaters.critics import Backup
from rlcli.updaters.learner import POLYAK_TARGET
from rlcli.updaters.td.rule_context import RuleContext
from rlcli.updaters.td.temporal_difference import rule
from rlcli.xla.indexing import select_index


@rule(policy="boltzmann")
def soft_q_learning(context: RuleContext, *, temperature: Positive = 1.0) -> Backup:
    """Soft Q-learning: bootstraps from the soft value of the policy π ∝ exp(q⁻/τ).

        y = R + I τ log Σ exp(q⁻(s′, ·)/τ) = R + I Σ π(a|s′) (q⁻(s′, a) − τ log π(a|s′))

    (Haarnoja et al., 2017, https://arxiv.org/abs/1702.08165). The acting policy
    has its own temperature.
    """
    return _soft_backup(context, temperature)


@rule(policy="boltzmann", target=POLYAK_TARGET, critics=2)
def soft_clipped_double_q_learning(
    context: RuleContext, *, temperature: Positive = 1.0
) -> Backup:
    """Soft clipped double Q-learning: the minimum of two critics for each action.

        y = R + I τ log Σ exp(q⁻(s′, ·)/τ),  q⁻ = min(q₁⁻, q₂⁻)

    As in soft actor-critic (Haarnoja et al., 2018, https://arxiv.org/abs/1812.05905),
    with the Boltzmann policy that the values imply.
    """
    return _soft_backup(context, temperature)


@rule(target=POLYAK_TARGET)
def munchausen(
    context: RuleContext,
    *,
    temperature: Positive = 0.03,
    alpha: NonNegative = 0.9,
    clip: float = -1.0,
) -> Backup:
    """Munchausen Q-learning: adds the clipped log-policy to the reward.

        y = R + α max(τ log π(a|s), l₀) + I Σ π(a′|s′) (q⁻(s′, a′) − τ log π(a′|s′))

    π ∝ exp(q⁻/τ), l₀ is `clip` (Vieillard et al., 2020,
    https://arxiv.org/abs/2007.14430). In an n-step row, only the first action
    adds to the reward.
    """
    scaled_log_probs = temperature * jax.nn.log_softmax(
        divide(context.current_q(), temperature)
    )
    log_policy = select_index(scaled_log_probs, context.action)
    return _soft_backup(context, temperature)._replace(
        reward=alpha * jnp.maximum(log_policy, clip)
    )


def _soft_backup(context: RuleContext, temperature: Array | float) -> Backup:
    """The mixture over actions under π ∝ exp(q⁻/τ), with its entropy as a bonus."""
    log_prob = jax.nn.log_softmax(divide(context.target_next_q(), temperature))
    policy, bonus = jnp.exp(log_prob), -temperature * log_prob
    return Backup(context.next_q(), policy, bonus, target_policy=policy)
