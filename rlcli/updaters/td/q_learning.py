"""Q-learning, double Q-learning and clipped double Q-learning."""

import jax
import jax.numpy as jnp
from jaxtyping import Float

from rlcli.networks.predictions import Particles, index_actions
from rlcli.types import Array
from rlcli.updaters.critics import Backup
from rlcli.updaters.learner import POLYAK_TARGET
from rlcli.updaters.td.rule_context import RuleContext
from rlcli.updaters.td.temporal_difference import rule
from rlcli.xla.indexing import is_largest


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
