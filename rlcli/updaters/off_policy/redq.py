"""Randomized ensembled double Q-learning (REDQ), and DroQ."""

from rlcli.errors import RlcliError
from rlcli.networks.predictions import Particles
from rlcli.registry import register
from rlcli.types import Count, Updater
from rlcli.updaters import Parts
from rlcli.updaters.learner import POLYAK_TARGET, Target
from rlcli.updaters.off_policy.off_policy_actor_critic import OffPolicyOptions
from rlcli.updaters.off_policy.soft_pg import SECTIONS, SoftOptions, soft_actor_critic


@register("updater", **SECTIONS)
def redq(
    parts: Parts,
    *,
    subset: Count = 2,
    target: Target | None = POLYAK_TARGET,
    options: SoftOptions = SoftOptions("learned", critics=10),
) -> Updater:
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
    algorithm = OffPolicyOptions(
        target=target,
        subset=subset,
        actor_reduction=Particles.mix_critics,
        delays_target=False,
    )
    return soft_actor_critic("redq", parts, options, algorithm)
