"""Deep Q-learning (DQN) and its distributional variants: presets of TD rules."""

from typing import Any

from rlcli.updaters.presets import preset
from rlcli.updaters.td.q_learning import POLYAK_TARGET, double_q_learning, q_learning


def _facts(**changes: Any) -> dict[str, Any]:
    """The defaults of DQN for other sections of a recipe, with changes."""
    facts = {"policy": "epsilon_greedy", "tracer": "n_step", "replay": "uniform"}
    return {**facts, "unroll": 1, **changes}


@preset(q_learning, _facts(), target=POLYAK_TARGET)
def dqn() -> None:
    """Deep Q-network (DQN): Q-learning with a uniform replay and target parameters.

    (Mnih et al., 2015, https://doi.org/10.1038/nature14236). The target parameters are
    an exponential moving average; `target: {every: 1_000}` copies them, as in the
    paper. `rlcli show dqn_cartpole_rlax` is a complete recipe.
    """


@preset(double_q_learning, _facts())
def double_dqn() -> None:
    """Double DQN: double Q-learning with a uniform replay and target parameters.

    (van Hasselt et al., 2016, https://arxiv.org/abs/1509.06461)
    """


@preset(double_q_learning, _facts(head={"dueling": True}))
def dueling_dqn() -> None:
    """Dueling double DQN: a state value plus an advantage for each action.

    (Wang et al., 2016, https://arxiv.org/abs/1511.06581)
    """


@preset(q_learning, _facts(head={"name": "categorical"}), target=POLYAK_TARGET)
def c51() -> None:
    """Categorical DQN (C51): learns the probabilities of `atoms` fixed returns.

    (Bellemare et al., 2017, https://arxiv.org/abs/1707.06887). Set `low` and `high` of
    the head to the range of discounted returns, as in
    `network: {name: mlp, head: {low: 0, high: 200}}`; the default is that of Atari with
    clipped rewards, −10 to 10.
    """


@preset(q_learning, _facts(head={"name": "quantile"}), target=POLYAK_TARGET)
def qr_dqn() -> None:
    """Quantile regression DQN (QR-DQN): learns quantiles of the return.

    (Dabney et al., 2018, https://arxiv.org/abs/1710.10044)
    """


@preset(q_learning, _facts(head={"name": "implicit_quantile"}), target=POLYAK_TARGET)
def iqn() -> None:
    """Implicit quantile network (IQN): learns the return's quantile at any fraction.

    (Dabney et al., 2018, https://arxiv.org/abs/1806.06923)
    """


_RAINBOW = _facts(
    policy={"name": "epsilon_greedy", "epsilon": 0.0},
    tracer={"name": "n_step", "n": 3, "gamma": 0.99},
    replay={"name": "prioritized", "alpha": 0.5, "beta": {"from": 0.4, "to": 1.0}},
    head={"name": "categorical", "dueling": True, "noisy": True},
)


@preset(double_q_learning, _RAINBOW, priority="loss")
def rainbow() -> None:
    """Rainbow: double, dueling, noisy, categorical, prioritized and n-step Q-learning.

    (Hessel et al., 2018, https://arxiv.org/abs/1710.02298). The priority of a row is
    its loss, the KL divergence of prediction and target. Options without a `name`
    change these defaults: `tracer: {gamma: 0.9}` keeps the three steps. Set `low` and
    `high` of the head to the range of discounted returns, as for `c51`.
    `rlcli show rainbow_cartpole` is a complete recipe.
    """
