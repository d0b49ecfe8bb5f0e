"""The policy gradient, REINFORCE and advantage actor-critic (A2C)."""

from rlcli.updaters.policy_gradient.actor_critic import ObjectiveContext, PolicyLoss
from rlcli.updaters.policy_gradient.objective_updater import objective
from rlcli.updaters.presets import preset

_ADVANTAGES = {
    "policy": "sampled",
    "tracer": {"name": "lambda_return", "gamma": 0.99, "lambda": 0.95},
    "unroll": 16,
}
_RETURNS = {
    "policy": "sampled",
    "tracer": {"name": "lambda_return", "gamma": 0.99, "lambda": 1.0},
    "unroll": 128,
}


@objective(**_ADVANTAGES, baseline=True)
def vanilla_pg(context: ObjectiveContext) -> PolicyLoss:
    """Policy gradient: one gradient step on each unroll, with an optional baseline.

        −Â log π(a|s)        Â = G − v(s)

    Â is held fixed; the value loss is `value_weight` · ½ (v(s) − G)². The tracer
    computes G: with λ-returns this is A2C (Mnih et al., 2016,
    https://arxiv.org/abs/1602.01783). Without a `baseline` there is no value function,
    so Â = G; with whole returns this is REINFORCE (Williams, 1992,
    https://doi.org/10.1007/BF00992696). `normalize_advantage` scales Â to mean 0 and
    standard deviation 1 over the unroll.
    """
    return PolicyLoss(-context.advantage * context.log_prob)


@preset(vanilla_pg, _ADVANTAGES)
def a2c() -> None:
    """Advantage actor-critic (A2C): policy gradient with a baseline and λ-returns.

    (Mnih et al., 2016, https://arxiv.org/abs/1602.01783)
    """


@preset(vanilla_pg, _RETURNS, baseline=False, value_weight=0.0, regularizers=[])
def reinforce() -> None:
    """REINFORCE: policy gradient with whole returns and without a baseline.

    (Williams, 1992, https://doi.org/10.1007/BF00992696). Returns truncated by the end
    of the unroll or by a time limit sum only the observed rewards.
    """
