"""The soft policy gradient and soft actor-critic (SAC)."""

from collections.abc import Callable
from typing import Annotated, Literal, NamedTuple

import gymnasium
import jax.numpy as jnp
import numpy as np
from annotated_types import Gt
from gymnasium import spaces as kinds
from jaxtyping import Float

from rlcli.distributions.action_masks import count_allowed
from rlcli.errors import RlcliError
from rlcli.networks.predictions import Loss, TransformName
from rlcli.registry import register
from rlcli.spaces import bounds, members
from rlcli.types import Array, Count, PerRow, Positive, Structural, Updater
from rlcli.updaters import Parts
from rlcli.updaters.learner import POLYAK_TARGET, Target
from rlcli.updaters.off_policy.actors import distribution_actor
from rlcli.updaters.off_policy.off_policy_actor_critic import (
    OffPolicyOptions,
    Temperature,
    off_policy_actor_critic,
)
from rlcli.updaters.regularizers import Regularizer, fill_defaults

SECTIONS = {"policy": "sampled", "tracer": "n_step", "replay": "uniform", "unroll": 1}
Learned = Literal["learned"]
_ENTROPY_SHARE = 0.98  # fraction of log |A| (Christodoulou, 2019)


class SoftOptions(NamedTuple):
    """The options of every soft actor-critic."""

    temperature: Positive | Learned = 0.2
    initial_temperature: Annotated[Structural, Gt(0.0)] = 1.0
    target_entropy: Structural | None = None
    critics: Count = 1
    loss: Loss = "mse"
    transform: TransformName | None = None
    delay: Count = 1
    regularizers: list[Regularizer] = []  # noqa: RUF012 - never mutated


@register("updater", **SECTIONS)
def soft_pg(
    parts: Parts, *, target: Target | None = None, options: SoftOptions = SoftOptions()
) -> Updater:
    """Soft policy gradient: maximizes action values plus entropy, by sampled actions.

        E[τ log π(a|s) − min q(s, a)],  a ~ π(·|s)
        y = R + I (min q⁻(s′, a′) − τ log π(a′|s′)),  a′ ~ π(·|s′)

    (Haarnoja et al., 2018a, https://arxiv.org/abs/1801.01290). In a Box, π is a normal
    distribution squashed into the Box. For Discrete actions π is categorical, and both
    expressions are sums over all actions (Christodoulou, 2019,
    https://arxiv.org/abs/1910.07207). The minimum is over `critics`, by mean. A
    distributional head learns the distribution of soft returns (Ma et al., 2020,
    https://arxiv.org/abs/2004.14547; Duan et al., 2021,
    https://arxiv.org/abs/2001.02811).

    `temperature: learned` starts at `initial_temperature` and minimizes

        τ (H(π(·|s)) − H̄)

    (Haarnoja et al., 2018b, https://arxiv.org/abs/1812.05905): it falls while the
    policy's entropy is above `target_entropy` H̄, and rises while it is below. H̄ is in
    nats, of actions in half-widths of the Box; null: −1 for each entry, or
    0.98 log |A|. Where only k actions are legal, it is H̄ log k / log |A|. The policy,
    its temperature and the target are updated once every `delay` updates. There is no
    entropy bonus between the steps of an n-step return.
    """
    return soft_actor_critic("soft_pg", parts, options, OffPolicyOptions(target=target))


@register("updater", preset_of="soft_pg", **SECTIONS)
def sac(
    parts: Parts,
    *,
    target: Target | None = POLYAK_TARGET,
    options: SoftOptions = SoftOptions("learned", critics=2),
) -> Updater:
    """Soft actor-critic (SAC): with a learned temperature and two critics.

    (Haarnoja et al., 2018b, https://arxiv.org/abs/1812.05905). With Discrete actions
    this is discrete SAC (Christodoulou, 2019, https://arxiv.org/abs/1910.07207), with a
    quantile head and `loss: huber` DSAC (Ma et al., 2020,
    https://arxiv.org/abs/2004.14547).
    """
    return soft_actor_critic("sac", parts, options, OffPolicyOptions(target=target))


def soft_actor_critic(
    name: str, parts: Parts, options: SoftOptions, algorithm: OffPolicyOptions
) -> Updater:
    """The updater of a soft actor-critic; `options` go before those of `algorithm`."""
    return off_policy_actor_critic(
        name,
        parts,
        distribution_actor(name, parts, box="squashed_normal"),
        build_temperature(
            parts.spaces.action,
            options.temperature,
            options.initial_temperature,
            options.target_entropy,
        ),
        algorithm._replace(
            critics=options.critics,
            loss=options.loss,
            transform=options.transform,
            delay=options.delay,
            regularizers=fill_defaults(options.regularizers),
        ),
    )


def build_temperature(
    space: gymnasium.Space,
    temperature: float | Literal["learned"],
    initial: float,
    target_entropy: float | None,
) -> Temperature:
    """A fixed temperature, or one learned by its logarithm so that it stays above 0."""
    if not isinstance(temperature, str):
        return Temperature({}, lambda params: temperature)
    target = (
        _default_target_entropy(space) if target_entropy is None else target_entropy
    )
    return Temperature(
        {"temperature": {"temperature": {"log": jnp.log(jnp.float32(initial))}}},
        lambda params: jnp.exp(params["temperature"]["temperature"]["log"]),
        _legal_target_entropy(int(space.n), target)
        if isinstance(space, kinds.Discrete)
        else lambda outputs: target,
    )


def _legal_target_entropy(
    actions: int, target: float
) -> Callable[[Float[Array, "T B A"]], PerRow]:
    """The target of each state, with k legal actions: H̄ log k / log |A|.

    No policy could have the target for |A| actions where few are legal, and the
    temperature would grow without bound.
    """
    largest = float(np.log(actions))
    if target >= largest > 0:
        raise RlcliError(
            f"`target_entropy` is {target:g}, but no policy over {actions} actions has "
            f"more than log {actions} = {largest:.3g} nats",
            "set a lower one, or the temperature would grow without bound",
        )
    share = target / largest if largest else 0.0

    def target_of(outputs: Float[Array, "T B A"]) -> PerRow:
        count = count_allowed(outputs)
        # Without illegal actions exactly the target.
        return jnp.where(count == actions, target, share * jnp.log(count))

    return target_of


def _default_target_entropy(space: gymnasium.Space) -> float:
    match space:
        case kinds.Discrete():
            return _ENTROPY_SHARE * float(np.log(space.n))
        case kinds.Tuple() | kinds.Dict():
            return sum(map(_default_target_entropy, members(space).values()))
        case kinds.Box():
            low, high = bounds(space)
            return -float(np.sum(low != high))
    raise TypeError(f"expected Discrete, Box, Tuple or Dict, got {space}")
