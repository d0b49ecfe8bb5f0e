"""Q-learning: plain, double, clipped double, soft and Munchausen Q-learning."""

import jax
import jax.numpy as jnp
from jaxtyping import Float

from rlcli.distributions.action_masks import divide
from rlcli.networks.predictions import Particles, index_actions
from rlcli.types import Array, NonNegative, Positive
from rlcli.updaters.critics import Backup
from rlcli.updaters.learner import POLYAK_TARGET
from rlcli.updaters.td.rule_context import RuleContext
from rlcli.updaters.td.temporal_difference import rule
from rlcli.xla.indexing import is_largest, select_index


@rule()
def q_learning(context: RuleContext) -> Backup:
    """Q-learning: bootstraps from the best next action (Watkins, 1989).

        y = R + I max q⁻(s′, ·)

    With a neural network, a replay and target parameters this is deep Q-learning (DQN;
    Mnih et al., 2015, https://doi.org/10.1038/nature14236).
    """
    return bootstrap_from_best(context)


@rule(target=POLYAK_TARGET)
def double_q_learning(context: RuleContext) -> Backup:
    """Double Q-learning: q selects the next action, and the target q⁻ evaluates it.

        y = R + I q⁻(s′, argmax q(s′, ·))

    (van Hasselt et al., 2016, https://arxiv.org/abs/1509.06461)
    """
    return bootstrap_from_online_best(context)


@rule(target=POLYAK_TARGET, critics=2)
def clipped_double_q_learning(context: RuleContext) -> Backup:
    """Clipped double Q-learning: the minimum of two critics.

        y = R + I q⁻(s′, argmax q(s′, ·)),  q = min(q₁, q₂)

    As in TD3 (Fujimoto et al., 2018, https://arxiv.org/abs/1802.09477), for Discrete
    actions. The policy acts on the minimum as well.
    """
    return bootstrap_from_online_best(context)


def bootstrap_from_best(context: RuleContext) -> Backup:
    """Bootstraps from the best action under the target parameters."""
    next_q = context.next_q()
    if next_q.value.shape[-1] > 1:
        return _bootstrap_from_argmax(context, context.target_next_q())
    # K = 1: a value is its own mean.
    best = jnp.max(next_q.value, axis=-2, keepdims=True)
    return Backup(
        Particles(best, jnp.ones_like(best)), target_policy=_greedy(next_q.mean())
    )


def bootstrap_from_online_best(context: RuleContext) -> Backup:
    """Bootstraps from the best action under the online parameters."""
    return _bootstrap_from_argmax(context, context.online_next_q())


def _bootstrap_from_argmax(
    context: RuleContext, values: Float[Array, "T B A"]
) -> Backup:
    """Bootstraps from the action that maximizes these values `[T, B, A]`."""
    bootstrap_value = index_actions(context.next_q(), jnp.argmax(values, axis=-1))
    return Backup(
        jax.tree.map(lambda leaf: leaf[..., None, :], bootstrap_value),
        target_policy=_greedy(values),
    )


def _greedy(values: Float[Array, "T B A"]) -> Float[Array, "T B A"]:
    """The probabilities of the greedy policy; ties are equally likely."""
    is_best = is_largest(values)
    return is_best / jnp.sum(is_best, axis=-1, keepdims=True)


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
