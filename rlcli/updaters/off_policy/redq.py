"""Randomized ensembled double Q-learning (REDQ), and DroQ."""

from rlcli.errors import RlcliError
from rlcli.networks.predictions import mix_critics
from rlcli.types import Count
from rlcli.updaters.off_policy.off_policy_actor_critic import OffPolicyOptions
from rlcli.updaters.off_policy.soft_pg import soft_actor_critic


@soft_actor_critic(temperature="learned", critics=10, target={"polyak": 0.005})
def redq(options: OffPolicyOptions, *, subset: Count = 2) -> OffPolicyOptions:
    """Randomized ensembled double Q-learning (REDQ): SAC for many updates per step.

        E[τ log π(a|s) − mean q(s, a)],  a ~ π(·|s)
        y = R + I (min q⁻(s′, a′) − τ log π(a′|s′)),  a′ ~ π(·|s′)

    (Chen et al., 2021, https://arxiv.org/abs/2101.05982). The minimum is over `subset`
    randomly chosen `critics`, the same for a whole batch and others in each update, and
    the policy maximizes the mean of all. With `train.updates: 20` the critics are
    updated 20 times in each step, and with `delay: 20` the policy once, as in the
    paper. `delay` does not apply to the target parameters.

    Two critics with `subset: 2`, dropout and layer normalization are DroQ (Hiraoka et
    al., 2022, https://arxiv.org/abs/2110.02034).
    """
    if subset > options.critics:
        raise RlcliError(
            f"updater `redq` takes the minimum over a `subset` of {subset} critics, "
            f"but has {options.critics}",
            "lower `subset`, or raise `critics`",
        )
    return options._replace(
        subset=subset, actor_reduction=mix_critics, delays_target=False
    )
