"""Implicit Q-learning (IQL): values of the best actions that a data set contains."""

import functools
from typing import Annotated

import gymnasium
import jax
import jax.numpy as jnp
from annotated_types import Gt, Lt
from jaxtyping import Float

from rlcli.networks.functions import SHARED
from rlcli.networks.heads import distribution_head
from rlcli.networks.memory import is_recurrent
from rlcli.networks.predictions import IDENTITY, LOSSES, Loss, Particles
from rlcli.policies import DistributionOffer
from rlcli.registry import register
from rlcli.types import (
    Array,
    ArrayTree,
    Count,
    Estimates,
    Key,
    NonNegative,
    Params,
    PerRow,
    Positive,
    Report,
    Transition,
    Updater,
)
from rlcli.updaters import Parts, default_distribution, refuse_recurrence
from rlcli.updaters.advantage_weights import exponential_weight
from rlcli.updaters.critics import (
    Backup,
    Critic,
    all_actions_critic,
    bootstrap_target,
    one_action_critic,
    regression_losses,
    state_critic,
)
from rlcli.updaters.learner import (
    POLYAK_TARGET,
    Losses,
    Target,
    Term,
    learner,
    select_groups,
)
from rlcli.updaters.regularizers import POLICY_GROUPS


@register(
    "updater", policy="sampled", tracer="n_step", replay={"name": "dataset"}, unroll=1
)
def iql(
    parts: Parts,
    *,
    expectile: Annotated[float, Gt(0.0), Lt(1.0)] = 0.7,
    beta: NonNegative = 3.0,
    weight_clip: Positive = 100.0,
    critics: Count = 2,
    target: Target | None = POLYAK_TARGET,
    loss: Loss = "mse",
) -> Updater:
    """Implicit Q-learning (IQL): learns without values of actions outside the data.

        q:  L(R + I v(s′) − q(s, a))
        v:  |τ − 1[u < 0]| u²,  u = min q⁻(s, a) − v(s)
        π:  −min(exp(β u), w) log π(a|s)

    (Kostrikov et al., 2021, https://arxiv.org/abs/2110.06169). τ is `expectile`: 0.5
    gives the value of the policy that collected the data, and towards 1 that of its
    best actions. w is `weight_clip`. Any action space that has a distribution.
    """
    spaces, networks, policies, optimizer = parts
    family = default_distribution(spaces.action, "iql")
    network = networks("policy", functools.partial(distribution_head, family))
    value = state_critic(networks, "value")
    if isinstance(spaces.action, gymnasium.spaces.Discrete):
        critic = all_actions_critic(networks, "critic", spaces.action, critics)
    else:
        critic = one_action_critic(networks, "critic", spaces.action, critics)
    refuse_recurrence("iql", is_recurrent(network) or is_recurrent(critic))
    policy = policies(
        distribution=DistributionOffer(network, family), space=spaces.action
    )

    def init_params(key: Key) -> Params:
        return {**network.init(key), **critic.init(key), **value.init(key)}

    # Only the critics' loss trains a shared torso.
    init, step = learner(
        init_params,
        optimizer,
        target,
        turns=[("critic", SHARED), ("value",), ("policy",)],
        target_groups=("critic", SHARED),
    )

    def update(state, batch, weight, clock, key):
        target_params = {**state.params, **(state.target or {})}
        v_t = state_value(value, state.params, batch.next_obs, batch.first)
        bootstrap_value = Particles(v_t[..., None, None], jnp.ones((*v_t.shape, 1, 1)))
        y = bootstrap_target(batch, Backup(bootstrap_value))
        q = action_value(critic, target_params, batch)

        def critic_losses(params: Params) -> Losses:
            prediction = critic.predict_action(
                "learn", params, key, batch.obs, batch.action, batch.first
            )
            return regression_losses(prediction, y, LOSSES[loss], IDENTITY)

        def value_losses(params: Params) -> Losses:
            v = state_value(value, params, batch.obs, batch.first)
            term = expectile_loss(q - v, expectile)
            return _one_term("value_loss", term, {"v": v})

        def policy_losses(params: Params) -> Losses:
            outputs, _ = network.apply(params, None, batch.obs, (), batch.first)
            log_prob = family.log_prob(outputs, batch.action)
            v = state_value(value, params, batch.obs, batch.first)
            advantage = jax.lax.stop_gradient(q - v)
            term = -exponential_weight(advantage, beta, weight_clip) * log_prob
            metrics = {"advantage": advantage, "entropy": family.entropy(outputs)}
            return _one_term("policy_loss", term, metrics)

        losses = [critic_losses, value_losses, policy_losses]
        state, priority, metrics = step(state, losses, weight, clock)
        return state, Report(priority, metrics)

    def estimate(state, steps, key):
        del key  # nothing is sampled
        params = state.params
        outputs, _ = network.apply(params, None, steps.obs, (), steps.first)
        return Estimates(
            v_tm1=state_value(value, params, steps.obs, steps.first),
            v_t=state_value(value, params, steps.next_obs, steps.first),
            log_prob=family.log_prob(outputs, steps.action),
            q_tm1=action_value(critic, params, steps),
        )

    return Updater(
        init=init,
        acting=lambda state: select_groups(state.params, POLICY_GROUPS),
        policy=policy,
        update=update,
        estimate=estimate,
    )


def expectile_loss(
    error: Float[Array, "..."], expectile: Array | float
) -> Float[Array, "..."]:
    """|τ − 1[u < 0]| u², whose minimum is the expectile τ."""
    return jnp.abs(expectile - (error < 0)) * jnp.square(error)


def state_value(critic: Critic, params: Params, obs: ArrayTree, first: Array) -> PerRow:
    """v(s) of a critic of states."""
    prediction = critic.predict_action("learn", params, None, obs, (), first)
    return prediction.particles().min_over_critics().mean()


def action_value(critic: Critic, params: Params, rows: Transition) -> Array:
    """The minimum over critics of q(s, a)."""
    prediction = critic.predict_action(
        "act", params, None, rows.obs, rows.action, rows.first
    )
    return prediction.particles().min_over_critics().mean()


def _one_term(name: str, term: PerRow, row_metrics: dict[str, Array]) -> Losses:
    """Losses of one term, also a metric, which weights of a replay only mask."""
    terms, zeros = [Term(term, is_weighted=False, name=name)], jnp.zeros(term.shape[1:])
    return Losses(terms, zeros, {name: term, **row_metrics})
