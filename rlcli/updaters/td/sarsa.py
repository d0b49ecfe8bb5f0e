"""SARSA, expected SARSA and TD(0): the values of the policy that acts."""

import jax

from rlcli.distributions.action_masks import get_mask, uniform_logits
from rlcli.networks import predictions
from rlcli.networks.predictions import LOSSES, Loss, TransformName
from rlcli.registry import register
from rlcli.types import Count, Updater
from rlcli.updaters import Parts
from rlcli.updaters.critics import Backup, state_critic
from rlcli.updaters.learner import Target
from rlcli.updaters.td.rule_context import RuleContext, TDParts
from rlcli.updaters.td.temporal_difference import rule, td_updater


@rule(discrete_only=False)
def sarsa(context: RuleContext) -> Backup:
    """SARSA: bootstraps from an action sampled from the policy.

        y = R + I q⁻(s′, a′),  a′ ~ π(·|s′)

    (Rummery & Niranjan, 1994; Sutton & Barto, 2018, section 6.4). a′ is sampled from
    the current policy, so the target is on-policy with a replay and with n-step
    returns, and is defined where a time limit truncates the episode. With `q: one`,
    SARSA supports any action space.
    """
    return Backup(context.sampled_next_q())


@rule()
def expected_sarsa(context: RuleContext) -> Backup:
    """Expected SARSA: bootstraps from the expected value under the policy.

        y = R + I Σ π(a|s′) q⁻(s′, a)

    (van Seijen et al., 2009, https://doi.org/10.1109/ADPRL.2009.4927542). π is the
    recipe's exploring policy, acting on q⁻.
    """
    probabilities = context.action_probabilities(context.target_next_q())
    return Backup(context.next_q(), probabilities)


@register("updater", policy="random", tracer="n_step", unroll=1)
def simple_td(
    parts: Parts,
    *,
    critics: Count = 1,
    target: Target | None = None,
    loss: Loss = "huber",
    transform: TransformName | None = None,
) -> Updater:
    """TD(0): learns the state values of a fixed policy (Sutton, 1988).

        y = R + I v⁻(s′)

    There are no action values to act on, so the policy is `random`. Its
    `value` returns v.
    """
    value_transform = predictions.value_transform(transform)
    critic = state_critic(parts.networks, "value", critics)

    def value(params, obs, state, first):
        del state  # these networks have no memory
        obs, first = jax.tree.map(lambda leaf: leaf[None], (obs, first))
        prediction = critic.predict_all_actions("act", params, None, obs, first)
        return prediction.particles(value_transform).min_over_critics().mean()[0, :, 0]

    def outputs(params, obs, first, carry):
        """The legal actions: all that a policy without a network needs."""
        if get_mask(obs) is None:
            return ()
        return uniform_logits(obs)

    policy = parts.policies(space=parts.spaces.action)
    policy = policy._replace(inspection=policy.inspection._replace(value=value))
    td_parts = TDParts(
        lambda context: Backup(context.next_q()),
        critic,
        policy,
        parts.spaces.action,
        value_transform,
        outputs,
    )
    return td_updater(td_parts, target, LOSSES[loss], parts.optimizer)
