"""The policy gradient, REINFORCE and advantage actor-critic (A2C)."""

from rlcli.updaters.policy_gradient.actor_critic import ObjectiveContext, PolicyLoss
from rlcli.updaters.policy_gradient.objective_updater import objective


@objective(unroll=16, baseline=True)
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


@objective(preset_of="vanilla_pg", unroll=16, baseline=True)
def a2c(context: ObjectiveContext) -> PolicyLoss:
    """Advantage actor-critic (A2C): policy gradient with a baseline and λ-returns.

    (Mnih et al., 2016, https://arxiv.org/abs/1602.01783)
    """
    return PolicyLoss(-context.advantage * context.log_prob)


@objective(
    preset_of="vanilla_pg",
    tracer={"name": "lambda_return", "gamma": 0.99, "lambda": 1.0},
    baseline=False,
    value_weight=0.0,
    regularizers=[],
)
def reinforce(context: ObjectiveContext) -> PolicyLoss:
    """REINFORCE: policy gradient with whole returns and without a baseline.

    (Williams, 1992, https://doi.org/10.1007/BF00992696). Returns truncated by the end
    of the unroll or by a time limit sum only the observed rewards.
    """
    return PolicyLoss(-context.advantage * context.log_prob)
