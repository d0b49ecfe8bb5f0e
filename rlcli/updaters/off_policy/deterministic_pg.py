"""The deterministic policy gradient (DPG), DDPG and TD3."""

from typing import NamedTuple

import gymnasium

from rlcli.networks.predictions import Loss, TransformName
from rlcli.registry import register
from rlcli.types import Count, NonNegative, Updater
from rlcli.updaters import Parts, default_distribution
from rlcli.updaters.learner import POLYAK_TARGET, Target
from rlcli.updaters.off_policy.actors import categorical_actor, deterministic_actor
from rlcli.updaters.off_policy.off_policy_actor_critic import (
    ZERO_TEMPERATURE,
    OffPolicyOptions,
    first_critic,
    off_policy_actor_critic,
)
from rlcli.updaters.regularizers import Regularizer, fill_defaults

_SECTIONS = {
    "policy": "deterministic",
    "tracer": "n_step",
    "replay": "uniform",
    "unroll": 1,
}


class DeterministicOptions(NamedTuple):
    """The options of every deterministic policy gradient."""

    critics: Count = 1
    target: Target | None = None
    smoothing: NonNegative = 0.0
    smoothing_clip: NonNegative = 0.5
    delay: Count = 1
    loss: Loss = "mse"
    transform: TransformName | None = None
    regularizers: list[Regularizer] = []  # noqa: RUF012 - never mutated


@register("updater", **_SECTIONS)
def deterministic_pg(
    parts: Parts, *, options: DeterministicOptions = DeterministicOptions()
) -> Updater:
    """Deterministic policy gradient (DPG): maximizes action values through a = μ(s).

        −q₁(s, μ(s))        y = R + I min q⁻(s′, a′)
        a′ = clip(μ⁻(s′) + clip(σ ε, −c, c), low, high),  ε ~ N(0, 1)

    (Silver et al., 2014, https://proceedings.mlr.press/v32/silver14.html). The policy
    maximizes the first of `critics`; the target uses the one with the smallest mean. σ
    is `smoothing`, c `smoothing_clip`, both in half-widths of the Box. The policy and
    the target are updated once every `delay` updates (Fujimoto et al., 2018,
    https://arxiv.org/abs/1802.09477).

    With Discrete actions, μ(s) is the softmax of the network's outputs, a mixture of
    actions in which values are linear,

        −Σ π(a|s) q₁(s, a)        y = R + I Σ π⁻(a|s′) min q⁻(s′, a)

    (Sutton et al., 2001, "Comparing policy-gradient algorithms"; Ciosek & Whiteson,
    2020, https://arxiv.org/abs/1801.03326). The sum over all actions is smooth, so σ
    is not used. Only this case supports `regularizers`: `entropy`, and `kl` to the
    prior. To explore, use the policy `sampled` or `epsilon_greedy`.
    """
    return _actor_critic("deterministic_pg", parts, options)


@register("updater", preset_of="deterministic_pg", **_SECTIONS)
def ddpg(
    parts: Parts,
    *,
    options: DeterministicOptions = DeterministicOptions(target=POLYAK_TARGET),
) -> Updater:
    """Deep deterministic policy gradient (DDPG): with target parameters.

    (Lillicrap et al., 2016, https://arxiv.org/abs/1509.02971). The noise of the paper
    is the policy `ornstein_uhlenbeck`.
    """
    return _actor_critic("ddpg", parts, options)


@register("updater", preset_of="deterministic_pg", **_SECTIONS)
def td3(
    parts: Parts,
    *,
    options: DeterministicOptions = DeterministicOptions(
        critics=2, target=POLYAK_TARGET, smoothing=0.2, delay=2
    ),
) -> Updater:
    """Twin delayed DDPG (TD3): two critics, smoothed targets, delayed policy updates.

    (Fujimoto et al., 2018, https://arxiv.org/abs/1802.09477). With the head
    `implicit_quantile` and `loss: huber` it is TD4.
    """
    return _actor_critic("td3", parts, options)


def _actor_critic(name: str, parts: Parts, options: DeterministicOptions) -> Updater:
    """With a deterministic actor over a Box, or a categorical one over Discrete."""
    spaces, networks, *_ = parts
    space = spaces.action
    if isinstance(space, gymnasium.spaces.Discrete):
        actor = categorical_actor(networks, default_distribution(space, name))
    elif isinstance(space, gymnasium.spaces.Box) and space.dtype.kind == "f":
        smoothing, clip = options.smoothing, options.smoothing_clip
        actor = deterministic_actor(networks, space, smoothing, clip)
    else:
        raise spaces.refuse_action(
            f"`{name}` needs a Discrete action space or a Box of floats",
            "`ppo` and `a2c` support any action space",
        )
    return off_policy_actor_critic(
        name,
        parts,
        actor,
        ZERO_TEMPERATURE,
        OffPolicyOptions(
            critics=options.critics,
            target=options.target,
            loss=options.loss,
            transform=options.transform,
            delay=options.delay,
            actor_reduction=first_critic,
            has_target_policy=True,
            regularizers=fill_defaults(options.regularizers),
        ),
    )
