"""The soft policy gradient: climb the action values, and stay undecided."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import gymnasium
import jax.numpy as jnp
import numpy as np
import optax
from gymnasium import spaces as kinds

from rlcli import distributions
from rlcli.errors import RlcliError
from rlcli.networks.predictions import Loss, TransformName
from rlcli.registry import register
from rlcli.spaces import describe, half_width
from rlcli.types import Count, Network, Policy, Positive, Structural, Updater
from rlcli.updaters import Spaces, default_distribution
from rlcli.updaters.learner import Target
from rlcli.updaters.off_policy.actor_critic import (
    OffPolicyOptions,
    Temperature,
    off_policy_actor_critic,
)
from rlcli.updaters.off_policy.actors import Actor, categorical_actor, stochastic_actor
from rlcli.updaters.presets import preset
from rlcli.updaters.regularizers import Regularizer, fill_defaults

_DEFAULTS = {"policy": "sampled", "tracer": "n_step", "replay": "uniform", "unroll": 1}
_ENTROPY_SHARE = 0.98  # of log |A|, as Christodoulou has it


@register("updater", **_DEFAULTS)
def soft_pg(
    spaces: Spaces,
    networks: Callable[..., Network],
    policies: Callable[..., Policy],
    optimizer: optax.GradientTransformation,
    *,
    temperature: Positive | Literal["learnt"] = 0.2,
    initial_temperature: Structural = 1.0,
    target_entropy: Structural | None = None,
    critics: Count = 1,
    target: Target | None = None,
    loss: Loss = "mse",
    transform: TransformName | None = None,
    delay: Count = 1,
    regularizers: list[Regularizer] = [],  # noqa: B006 - never mutated
) -> Updater:
    """Follows the values' gradient through actions that it draws, and pays for entropy.

        E[τ log π(a|s) − min q(s, a)],  a ~ π(·|s)
        y = R + I (min q⁻(s′, a′) − τ log π(a′|s′)),  a′ ~ π(·|s′)

    (Haarnoja et al., 2018a, https://arxiv.org/abs/1801.01290), with π a normal
    distribution pressed into the Box, or categorical: then both are sums over all
    actions (Christodoulou, 2019, https://arxiv.org/abs/1910.07207). Of so many
    `critics` the one with the least mean counts. A head that is a distribution learns
    that of the soft returns (Ma et al., 2020, https://arxiv.org/abs/2004.14547; Duan et
    al., 2021, https://arxiv.org/abs/2001.02811).

    A `temperature` that is `learnt` begins as `initial_temperature`, and goes down
    where the policy's entropy is above `target_entropy` H̄, up where it is below,

        τ (H(π(·|s)) − H̄)

    (Haarnoja et al., 2018b, https://arxiv.org/abs/1812.05905). In nats of the action
    as it is; null: −1 + log h for each entry, h half the width of its Box (1 where it
    has none), or 0.98 log |A|. With `delay` the policy, its temperature and the target
    move in one of so many updates. Between the steps of an n-step return nobody is
    paid for entropy.
    """
    return off_policy_actor_critic(
        "soft_pg",
        spaces,
        networks,
        policies,
        optimizer,
        _build_actor(spaces, networks),
        _build_temperature(
            spaces.action, temperature, initial_temperature, target_entropy
        ),
        OffPolicyOptions(
            critics=critics,
            target=target,
            loss=loss,
            transform=transform,
            delay=delay,
            regularizers=fill_defaults(regularizers),
        ),
    )


@preset(soft_pg, _DEFAULTS, temperature="learnt", critics=2, target={"polyak": 0.005})
def sac() -> None:
    """Soft actor-critic: `soft_pg` with a temperature that is learnt, and two critics.

    (Haarnoja et al., 2018b, https://arxiv.org/abs/1812.05905). Where actions are
    Discrete it is discrete SAC (Christodoulou, 2019, https://arxiv.org/abs/1910.07207),
    with a head of quantiles DSAC (Ma et al., 2020, https://arxiv.org/abs/2004.14547).
    """


def _build_actor(spaces: Spaces, networks: Callable[..., Network]) -> Actor:
    """The actor over that space, if its samples have gradients or can be counted."""
    if isinstance(spaces.action, kinds.Discrete):
        family = default_distribution(spaces.action, "soft_pg")
        return categorical_actor(networks, family)
    family = distributions.distribution_for(spaces.action, box="squashed_normal")
    if family.differentiable is None:
        raise RlcliError(
            "`soft_pg` needs a Discrete action space or a Box of floats, and "
            f"{spaces.owner} has {describe(spaces.action)}",
            "`ppo` and `a2c` act in any space",
        )
    return stochastic_actor(networks, family)


def _build_temperature(
    space: gymnasium.Space,
    temperature: float | Literal["learnt"],
    initial: float,
    goal: float | None,
) -> Temperature:
    """What it is, or how it is learnt: by its logarithm, so that it stays above 0."""
    if not isinstance(temperature, str):
        return Temperature({}, lambda params: temperature)
    return Temperature(
        {"temperature": {"temperature": {"log": jnp.log(jnp.float32(initial))}}},
        lambda params: jnp.exp(params["temperature"]["temperature"]["log"]),
        _default_target_entropy(space) if goal is None else goal,
    )


def _default_target_entropy(space: gymnasium.Space) -> float:
    match space:
        case kinds.Discrete():
            return _ENTROPY_SHARE * float(np.log(space.n))
        case kinds.Tuple():
            return sum(map(_default_target_entropy, space.spaces))
        case kinds.Dict():
            return sum(map(_default_target_entropy, space.spaces.values()))
        case kinds.Box():
            return float(np.sum(np.log(half_width(space)) - 1))
    raise TypeError(f"expected Discrete, Box, Tuple or Dict, got {space}")
