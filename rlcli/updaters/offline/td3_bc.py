"""TD3+BC: TD3 with a policy that stays close to the actions of a data set."""

import gymnasium
import jax
import jax.numpy as jnp

from rlcli.networks.predictions import Loss
from rlcli.registry import register
from rlcli.types import Array, Count, NonNegative, PerRow, Transition, Updater
from rlcli.updaters import Parts
from rlcli.updaters.learner import POLYAK_TARGET, Target
from rlcli.updaters.off_policy.actors import ActionChoices, deterministic_actor
from rlcli.updaters.off_policy.off_policy_actor_critic import (
    ZERO_TEMPERATURE,
    OffPolicyOptions,
    first_critic,
    off_policy_actor_critic,
)
from rlcli.updaters.offline.behaviour_cloning import squared_error
from rlcli.xla.data_axis import mean_over_devices


@register(
    "updater",
    policy="deterministic",
    tracer="n_step",
    replay={"name": "dataset"},
    unroll=1,
)
def td3_bc(
    parts: Parts,
    *,
    alpha: NonNegative = 2.5,
    critics: Count = 2,
    target: Target | None = POLYAK_TARGET,
    smoothing: NonNegative = 0.2,
    smoothing_clip: NonNegative = 0.5,
    delay: Count = 2,
    loss: Loss = "mse",
) -> Updater:
    """TD3+BC: maximizes action values, and imitates the actions of the data set.

        −α q₁(s, μ(s)) / mean |q₁(s, μ(s))| + mean (μ(s) − a)²

    (Fujimoto & Gu, 2021, https://arxiv.org/abs/2106.06860). The critics and their
    targets are those of `td3`. The first mean is over the batch, the second over the
    entries of the action, in half-widths of the Box. With α = 0 it is behaviour
    cloning. The paper normalizes observations: `normalize: {observation: true}` uses
    the mean and the variance of the data set.
    """
    spaces = parts.spaces
    space = spaces.action
    if not isinstance(space, gymnasium.spaces.Box) or space.dtype.kind != "f":
        raise spaces.refuse_action(
            "`td3_bc` needs a Box of floats as its action space",
            "`cql`, `iql` and `behaviour_cloning` support Discrete actions",
        )
    return off_policy_actor_critic(
        "td3_bc",
        parts,
        deterministic_actor(parts.networks, space, smoothing, smoothing_clip),
        ZERO_TEMPERATURE,
        OffPolicyOptions(
            critics=critics,
            target=target,
            loss=loss,
            delay=delay,
            actor_reduction=first_critic,
            has_target_policy=True,
            change_policy_loss=lambda _, __, *rest: td3_bc_loss(alpha, *rest),
        ),
    )


def td3_bc_loss(
    alpha: Array | float, policy_loss: PerRow, choice: ActionChoices, rows: Transition
) -> PerRow:
    """The loss of the policy; `policy_loss` is −q₁(s, μ(s))."""
    size = jnp.abs(jax.lax.stop_gradient(policy_loss))
    scale = jnp.maximum(mean_over_devices(jnp.mean(size)), 1e-6)
    return alpha * policy_loss / scale + squared_error(choice.action, rows.action)
