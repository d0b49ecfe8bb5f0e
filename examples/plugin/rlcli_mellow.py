"""A plug-in with an environment, a network, a TD rule and a policy-gradient objective.

Install it with `pip install ./examples/plugin`.
"""

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium.spaces import Discrete

from rlcli.networks.torsos import Torso
from rlcli.registry import register
from rlcli.types import Core, Count, Positive, TimeStep
from rlcli.updaters.policy_gradient import ObjectiveContext, PolicyLoss, objective
from rlcli.updaters.td import Backup, RuleContext, rule


@register("environment", "Ring-v0", time_limit=30)
def ring(*, length: Count = 9) -> Core:
    """A ring of cells with reward 1 in the cell opposite the start."""

    def step(cell, action, noise):
        cell = (cell + 2 * action - 1) % length
        is_goal = (cell == length // 2).astype(jnp.float32)
        return cell, TimeStep(cell, cell, is_goal, 1 - is_goal, is_goal > 0, {})

    def render(cell):
        return np.uint8(255 * (np.arange(length) == cell))[None, :, None].repeat(3, -1)

    reset = lambda key: (jnp.int32(0), jnp.int32(0))  # noqa: E731 - state, observation
    return Core(reset, step, Discrete(length), Discrete(2), render)


@register("network")
def gated(*, width: Count = 32) -> Torso:
    """A gated linear unit: one layer times the sigmoid of another."""

    def features(inputs):
        return hk.Linear(width)(inputs) * jax.nn.sigmoid(hk.Linear(width)(inputs))

    return Torso(features, lambda size, scale: hk.Linear(size))


@rule(target={"polyak": 0.05})
def mellowmax(context: RuleContext, *, omega: Positive = 20.0) -> Backup:
    """Mellowmax (Asadi and Littman, 2017): y = R + I log(mean exp(ω q⁻)) / ω."""
    next_q = context.next_q()
    log_prob = jax.nn.log_softmax(omega * next_q.mean())
    bonus = -(log_prob + jnp.log(log_prob.shape[-1])) / omega
    return Backup(next_q, jnp.exp(log_prob), bonus)


@objective(requires=("log_prob",), epochs=4, minibatches=4)
def spo(context: ObjectiveContext, *, clip_ratio: Positive = 0.2) -> PolicyLoss:
    """Simple policy optimization (Xie et al., 2024): PPO with a quadratic penalty."""
    ratio, advantage = jnp.exp(context.log_ratio), context.advantage
    penalty = jnp.abs(advantage) * (ratio - 1) ** 2 / (2 * clip_ratio)
    return PolicyLoss(penalty - ratio * advantage)
