"""Truncated quantile critics (TQC)."""

from typing import Annotated

from annotated_types import Ge

from rlcli.errors import RlcliError
from rlcli.networks.predictions import Particles
from rlcli.registry import register
from rlcli.types import Updater
from rlcli.updaters import Parts
from rlcli.updaters.learner import POLYAK_TARGET, Target
from rlcli.updaters.off_policy.off_policy_actor_critic import OffPolicyOptions
from rlcli.updaters.off_policy.soft_pg import SECTIONS, SoftOptions, soft_actor_critic


@register(
    "updater", **SECTIONS, heads={"critic": {"name": "quantile", "quantiles": 25}}
)
def tqc(
    parts: Parts,
    *,
    drop: Annotated[int, Ge(0)] = 2,
    target: Target | None = POLYAK_TARGET,
    options: SoftOptions = SoftOptions("learned", critics=5, loss="huber"),
) -> Updater:
    """Truncated quantile critics (TQC): SAC whose targets lack the highest quantiles.

        E[τ log π(a|s) − mean q(s, a)],  a ~ π(·|s)
        y = R + I (z − τ log π(a′|s′)),  z ~ lowest (K − d) C of the K C quantiles⁻

    (Kuznetsov et al., 2020, https://arxiv.org/abs/2005.04269). The target is the
    mixture of the C `critics`, of K quantiles each, without its d C highest quantiles,
    where d is `drop`; d = 0 keeps all. The policy maximizes the mean of all quantiles.
    The loss of a critic is the mean over its quantiles, and the losses of the critics
    are summed.
    For a head whose K values are not equally likely, the target lacks the highest
    values of probability d / K.
    """

    def reduce_to_target(particles: Particles) -> Particles:
        quantiles = particles.value.shape[-1]
        if drop >= quantiles:
            raise RlcliError(
                f"updater `tqc` drops {drop} quantiles of each critic, but the head of "
                f"the critics has {quantiles}",
                "lower `drop`, or use the head `quantile` with more `quantiles`",
            )
        return particles.mix_critics().truncate(drop / quantiles)

    algorithm = OffPolicyOptions(
        target=target,
        target_reduction=reduce_to_target,
        actor_reduction=Particles.mix_critics,
        averages_quantiles=True,
    )
    return soft_actor_critic("tqc", parts, options, algorithm)
