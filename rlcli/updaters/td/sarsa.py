"""SARSA and its relatives: the value of what the policy does."""

from __future__ import annotations

from collections.abc import Callable

import optax

from rlcli.networks import predictions
from rlcli.networks.predictions import LOSSES, Loss, TransformName
from rlcli.registry import register
from rlcli.types import Count, Network, Policy, Updater
from rlcli.updaters import Spaces
from rlcli.updaters.critics import Backup, state_critic
from rlcli.updaters.learner import Target
from rlcli.updaters.td.temporal_difference import RuleContext, TDParts, rule, td_updater


@rule(discrete_only=False)
def sarsa(context: RuleContext) -> Backup:
    """Moves q(s, a) towards the value of the action that the policy takes next.

        y = R + I q⁻(s′, a′),  a′ ~ π(·|s′)

    (Rummery & Niranjan, 1994; Sutton & Barto, 2018, section 6.4). a′ is drawn from the
    policy as it is now: so it is on-policy with a replay and over n steps, too, and
    there is one where a time limit cut the episode and nobody acted any more. With
    `q: one` in any space of actions.
    """
    return Backup(context.sampled_next_q())


@rule()
def expected_sarsa(context: RuleContext) -> Backup:
    """Moves q(s, a) towards the mean value of what the policy may do next.

        y = R + I Σ π(a|s′) q⁻(s′, a)

    (van Seijen et al., 2009, https://doi.org/10.1109/ADPRL.2009.4927542). π is the
    recipe's policy on q⁻, as it explores.
    """
    next_q = context.next_q()
    return Backup(next_q, context.action_probabilities(next_q.mean()))


@register("updater", policy="random", tracer="n_step", unroll=1)
def simple_td(
    spaces: Spaces,
    networks: Callable[..., Network],
    policies: Callable[..., Policy],
    optimizer: optax.GradientTransformation,
    *,
    critics: Count = 1,
    target: Target | None = None,
    loss: Loss = "huber",
    transform: TransformName | None = None,
) -> Updater:
    """Learns what states are worth to a policy that does not learn (Sutton, 1988).

        y = R + I v⁻(s′)

    The policy has no values of actions to act upon: `random`.
    """
    scale = predictions.value_transform(transform)
    critic = state_critic(networks, "value", critics)
    policy = policies(space=spaces.action)
    parts = TDParts(
        lambda context: Backup(context.next_q()),
        critic,
        policy,
        spaces.action,
        scale,
        lambda *_: (),
    )
    return td_updater(parts, target, LOSSES[loss], optimizer)
