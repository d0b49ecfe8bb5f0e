"""Deep Q-learning (DQN) and its distributional variants: presets of TD rules."""

import functools

from rlcli.updaters.critics import Backup
from rlcli.updaters.learner import POLYAK_TARGET
from rlcli.updaters.td.q_learning import bootstrap_from_best, bootstrap_from_online_best
from rlcli.updaters.td.rule_context import RuleContext
from rlcli.updaters.td.temporal_difference import rule

_deep_rule = functools.partial(rule, replay="uniform", target=POLYAK_TARGET)


@_deep_rule(preset_of="q_learning")
def dqn(context: RuleContext) -> Backup:
    """Deep Q-network (DQN): Q-learning with a uniform replay and target parameters.

    (Mnih et al., 2015, https://doi.org/10.1038/nature14236). The target parameters are
    an exponential moving average; `target: {every: 1_000}` copies them, as in the
    paper. `rlcli show dqn_cartpole_rlax` is a complete recipe.
    """
    return bootstrap_from_best(context)


@_deep_rule(preset_of="double_q_learning")
def double_dqn(context: RuleContext) -> Backup:
    """Double DQN: double Q-learning with a uniform replay and target parameters.

    (van Hasselt et al., 2016, https://arxiv.org/abs/1509.06461)
    """
    return bootstrap_from_online_best(context)


@_deep_rule(preset_of="double_q_learning", head={"dueling": True})
def dueling_dqn(context: RuleContext) -> Backup:
    """Dueling double DQN: a state value plus an advantage for each action.

    (Wang et al., 2016, https://arxiv.org/abs/1511.06581)
    """
    return bootstrap_from_online_best(context)


@_deep_rule(preset_of="q_learning", head={"name": "categorical"})
def c51(context: RuleContext) -> Backup:
    """Categorical DQN (C51): learns the probabilities of `atoms` fixed returns.

    (Bellemare et al., 2017, https://arxiv.org/abs/1707.06887). Set `low` and `high` of
    the head to the range of discounted returns, as in
    `network: {name: mlp, head: {low: 0, high: 200}}`; the default is that of Atari with
    clipped rewards, −10 to 10.
    """
    return bootstrap_from_best(context)


@_deep_rule(preset_of="q_learning", head={"name": "quantile"})
def qr_dqn(context: RuleContext) -> Backup:
    """Quantile regression DQN (QR-DQN): learns quantiles of the return.

    (Dabney et al., 2018, https://arxiv.org/abs/1710.10044)
    """
    return bootstrap_from_best(context)


@_deep_rule(preset_of="q_learning", head={"name": "implicit_quantile"})
def iqn(context: RuleContext) -> Backup:
    """Implicit quantile network (IQN): learns the return's quantile at any fraction.

    (Dabney et al., 2018, https://arxiv.org/abs/1806.06923)
    """
    return bootstrap_from_best(context)


@_deep_rule(
    preset_of="double_q_learning",
    policy={"name": "epsilon_greedy", "epsilon": 0.0},
    tracer={"name": "n_step", "n": 3, "gamma": 0.99},
    replay={"name": "prioritized", "alpha": 0.5, "beta": {"from": 0.4, "to": 1.0}},
    head={"name": "categorical", "dueling": True, "noisy": True},
    priority="loss",
)
def rainbow(context: RuleContext) -> Backup:
    """Rainbow: double, dueling, noisy, categorical, prioritized and n-step Q-learning.

    (Hessel et al., 2018, https://arxiv.org/abs/1710.02298). The priority of a row is
    its loss, the KL divergence of prediction and target. Options without a `name`
    change these defaults: `tracer: {gamma: 0.9}` keeps the three steps. Set `low` and
    `high` of the head to the range of discounted returns, as for `c51`.
    `rlcli show rainbow_cartpole` is a complete recipe.
    """
    return bootstrap_from_online_best(context)
