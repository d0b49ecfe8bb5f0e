"""Conservative Q-learning (CQL): low values for actions that a data set lacks."""

import functools
from typing import Annotated, Literal

import gymnasium
import jax
import jax.numpy as jnp
from annotated_types import Gt
from jaxtyping import Float, Int

from rlcli import spaces as space_functions
from rlcli.networks.predictions import Loss, TransformName
from rlcli.policies.sampled import uniform_log_density
from rlcli.registry import register
from rlcli.types import (
    Array,
    Count,
    Key,
    NonNegative,
    Params,
    PerRow,
    Positive,
    Structural,
    Transition,
    Updater,
)
from rlcli.updaters import Parts, Spaces, default_distribution
from rlcli.updaters.learner import POLYAK_TARGET, Target
from rlcli.updaters.off_policy.actors import distribution_actor
from rlcli.updaters.off_policy.off_policy_actor_critic import (
    OffPolicyOptions,
    OffPolicyParts,
    off_policy_actor_critic,
)
from rlcli.updaters.off_policy.soft_pg import build_temperature
from rlcli.updaters.td.q_learning import bootstrap_from_online_best
from rlcli.updaters.td.rule_context import apply_rule
from rlcli.updaters.td.temporal_difference import TDOptions, action_value_updater
from rlcli.xla.indexing import select_index

_SAMPLES = 10


@register(
    "updater", policy="sampled", tracer="n_step", replay={"name": "dataset"}, unroll=1
)
def cql(
    parts: Parts,
    *,
    alpha: NonNegative = 1.0,
    critics: Count = 2,
    target: Target | None = POLYAK_TARGET,
    loss: Loss = "mse",
    transform: TransformName | None = None,
    temperature: Positive | Literal["learned"] = "learned",
    initial_temperature: Annotated[Structural, Gt(0.0)] = 1.0,
    target_entropy: Structural | None = None,
    samples: Count = _SAMPLES,
) -> Updater:
    """Conservative Q-learning, CQL(H): lowers the values of unseen actions.

        ℓ + α (log Σ exp q(s, ·) − q(s, a))

    (Kumar et al., 2020, https://arxiv.org/abs/2006.04779), summed over `critics`. For
    Discrete actions, ℓ is the loss of double Q-learning, and the policy acts on the
    values. In a Box, ℓ is the critics' loss of `sac`, with a policy of its own, and
    the sum is an integral, estimated by importance sampling from `samples` uniform
    actions and as many of the policy. `temperature`, `initial_temperature`,
    `target_entropy` and `samples` are for a Box only.
    """
    spaces = parts.spaces
    if isinstance(spaces.action, gymnasium.spaces.Discrete):
        _refuse_box_options(
            spaces,
            temperature=not isinstance(temperature, str),
            initial_temperature=initial_temperature != 1.0,
            target_entropy=target_entropy is not None,
            samples=samples != _SAMPLES,
        )
        return action_value_updater(
            functools.partial(
                apply_rule, bootstrap_from_online_best, "`cql`", spaces.action
            ),
            TDOptions("all", critics, target, loss, transform),
            parts,
            penalty=functools.partial(discrete_penalty, alpha),
            family=default_distribution(spaces.action, "cql"),
        )
    if not isinstance(spaces.action, gymnasium.spaces.Box) or (
        not spaces.action.is_bounded()
    ):
        raise spaces.refuse_action(
            "`cql` needs a Discrete action space or a bounded Box of floats",
            "`iql` and `behaviour_cloning` support more action spaces",
        )
    return off_policy_actor_critic(
        "cql",
        parts,
        distribution_actor("cql", parts, box="squashed_normal"),
        build_temperature(
            spaces.action, temperature, initial_temperature, target_entropy
        ),
        OffPolicyOptions(
            critics=critics,
            target=target,
            loss=loss,
            transform=transform,
            critic_penalty=functools.partial(
                continuous_penalty, alpha, samples, spaces.action
            ),
        ),
    )


def _refuse_box_options(spaces: Spaces, **is_set: bool) -> None:
    """Refuses options that have no effect on Discrete actions."""
    names = [name for name, value in is_set.items() if value]
    if names:
        need = f"option `{names[0]}` of `cql` is for actions in a Box"
        raise spaces.refuse_action(need, "remove it")


def discrete_penalty(
    alpha: Array | float, q: Float[Array, "C T B A"], action: Int[Array, "T B"]
) -> PerRow:
    """α Σ (log Σ exp q(s, ·) − q(s, a)), where the first sum is over critics."""
    taken = select_index(q, jnp.broadcast_to(action, q.shape[:-1]))
    return alpha * jnp.sum(jax.nn.logsumexp(q, axis=-1) - taken, axis=0)


def continuous_penalty(
    alpha: Array | float,
    samples: int,
    space: gymnasium.spaces.Box,
    parts: OffPolicyParts,
    params: Params,
    rows: Transition,
    key: Key,
) -> PerRow:
    """The same in a Box, where the inner sum is an integral over actions.

        log ∫ exp q(s, a) da ≈ log mean exp(q(s, aᵢ) − log pᵢ)

    pᵢ is the density from which aᵢ was sampled; half of the actions are uniform.
    """
    uniform_key, policy_key = jax.random.split(key)
    fixed_params = jax.lax.stop_gradient(params)
    uniform = space_functions.sample(space, uniform_key, (samples, *rows.reward.shape))

    def choose(key: Key) -> tuple[Array, Array]:
        choice = parts.actor.choose(fixed_params, rows.obs, rows.first, key)
        return choice.action, choice.log_prob[..., 0]

    chosen, log_prob = jax.vmap(choose)(jax.random.split(policy_key, samples))
    actions = jnp.concatenate([uniform, chosen])
    densities = jnp.concatenate(
        [jnp.full(log_prob.shape, uniform_log_density(space)), log_prob]
    )

    def values(action: Array) -> Float[Array, "C T B"]:
        prediction = parts.critic.predict_action(
            "learn", params, None, rows.obs, action, rows.first
        )
        return prediction.particles(parts.transform).mean()

    q = jax.vmap(values)(actions)
    integral = jax.nn.logsumexp(q - densities[:, None], axis=0, b=1 / (2 * samples))
    return alpha * jnp.sum(integral - values(rows.action), axis=0)
