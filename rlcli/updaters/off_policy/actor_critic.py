"""Climbing: what updaters share whose policy goes where action values are high.

Critics learn what actions are worth, q(s, a), from what a replay remembers, with any
head; the policy climbs them (Degris et al., 2012, https://arxiv.org/abs/1205.4839).
Where the policy goes is one objective,

    Σ π(a|s) (τ log π(a|s) − q(s, a))        y = R + I Σ π(a′|s′) (z⁻ − τ log π(a′|s′))

with τ the temperature, 0 if to be undecided is worth nothing, and z⁻ what the target
parameters say follows. The sum is over all actions where they can be counted; else it
is what one action says that was drawn, and through which the gradient goes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
import optax

from rlcli.errors import RlcliError
from rlcli.networks.functions import SHARED
from rlcli.networks.memory import is_recurrent
from rlcli.networks.predictions import (
    LOSSES,
    Loss,
    Particles,
    Transform,
    TransformName,
    min_over_critics,
    value_transform,
)
from rlcli.types import (
    Array,
    ArrayTree,
    Clock,
    Count,
    Estimates,
    Key,
    Network,
    Params,
    Policy,
    Report,
    Transition,
    Updater,
)
from rlcli.updaters import Spaces
from rlcli.updaters.critics import (
    Backup,
    Critic,
    all_actions_critic,
    bootstrap_target,
    is_recurrent_critic,
    one_action_critic,
    regression_losses,
)
from rlcli.updaters.learner import Learner, Losses, Target, alternating_learner
from rlcli.updaters.off_policy.actors import ActionChoices, Actor, evaluate_choices
from rlcli.updaters.regularizers import penalties

CriticReduction = Callable[
    [Particles], Particles
]  # of several critics the one that counts


def first_critic(particles: Particles) -> Particles:
    """What the first critic says, whatever the others do."""
    return jax.tree.map(lambda leaf: leaf[0], particles)


class Temperature(NamedTuple):
    """How much to be undecided is worth: τ, in units of reward for each nat."""

    params: Params  # what is learnt of it: {} if nothing is
    value: Callable[[Params], Array | float]
    target_entropy: float = 0.0  # the entropy at which it stays


ZERO_TEMPERATURE = Temperature({}, lambda params: 0.0)


class OffPolicyOptions(NamedTuple):
    """What an updater sets, and a recipe through it."""

    critics: Count = 1
    target: Target | None = None
    loss: Loss = "mse"
    transform: TransformName | None = None
    delay: Count = 1
    actor_reduction: CriticReduction = (
        min_over_critics  # what the policy climbs, of several critics
    )
    has_target_policy: bool = (
        False  # whether the policy has a target, to bootstrap from
    )
    regularizers: Sequence[Mapping[str, Any]] = ()  # with their defaults


class OffPolicyParts(NamedTuple):
    """What losses and backups are made of."""

    actor: Actor
    critic: Critic
    temperature: Temperature
    scale: Transform
    settings: OffPolicyOptions

    def soft(self, params: Params, choice: ActionChoices, q: Array) -> Array:
        """Σ π(a|s) (q(s, a) − τ log π(a|s)), `[T, B]`."""
        worth = q - self.temperature.value(params) * choice.log_prob
        return jnp.sum(choice.probability * worth, axis=-1)


def off_policy_actor_critic(
    name: str,
    spaces: Spaces,
    networks: Callable[..., Network],
    policies: Callable[..., Policy],
    optimizer: optax.GradientTransformation,
    actor: Actor,
    temperature: Temperature,
    settings: OffPolicyOptions,
) -> Updater:
    """The updater of this actor, its critics and its temperature."""
    _refuse_memory(name, is_recurrent(actor.network))
    if isinstance(spaces.action, gymnasium.spaces.Discrete):
        critic = all_actions_critic(networks, "critic", spaces.action, settings.critics)
    else:
        critic = one_action_critic(networks, "critic", spaces.action, settings.critics)
    _refuse_memory(name, is_recurrent_critic(critic))
    scale = value_transform(settings.transform)
    _check_regularizers(name, actor, settings.regularizers)
    policy = policies(**actor.offers, space=spaces.action)
    parts = OffPolicyParts(actor, critic, temperature, scale, settings)

    def init(key: Key) -> Params:
        return {**actor.network.init(key), **critic.init(key), **temperature.params}

    # A torso that both share is the critics': the policy reads it, and leaves it alone.
    begin, step = alternating_learner(
        init,
        optimizer,
        [("critic", SHARED), ("policy", *temperature.params)],
        target=settings.target,
        target_groups=(
            "critic",
            SHARED,
            *(["policy"] if settings.has_target_policy else []),
        ),
        delay=settings.delay,
    )

    def update(
        state: Learner, batch: Transition, weight: Array, clock: Clock, key: Key
    ) -> tuple[Learner, Report]:
        goal_key, critic_key, policy_key = jax.random.split(key, 3)
        target_params = state.params if settings.target is None else state.target
        target_params = {**state.params, **target_params}
        goal = _critic_target(parts, state.params, target_params, batch, goal_key)

        def critics(params: Params) -> Losses:
            inputs = (critic_key, batch.obs, batch.action, batch.first)
            prediction = critic.predict_action("learn", params, *inputs)
            return regression_losses(prediction, goal, LOSSES[settings.loss], scale)

        def climb(params: Params) -> Losses:
            return _actor_losses(parts, params, batch, policy_key)

        state, priority, metrics = step(state, [critics, climb], weight, clock)
        return state, Report(priority, metrics)

    return Updater(
        init=begin,
        acting=lambda state: _acting_params(state.params),
        policy=policy,
        update=update,
        estimate=lambda state, steps: _estimate(parts, policy, state.params, steps),
        failed_at=lambda state: state.failed,
    )


def _critic_target(
    parts: OffPolicyParts,
    online: Params,
    target_params: Params,
    rows: Transition,
    key: Key,
) -> Particles:
    """What the critics are to predict of rows `[T, B]`."""
    choice_key, critic_key = jax.random.split(key)
    # Of soft values it is the policy as it is now whose entropy is worth something, at
    # the states that follow: the target parameters have their say in what follows.
    policy_params = target_params if parts.settings.has_target_policy else online
    choice = parts.actor.choose_target(
        policy_params, rows.next_obs, rows.first, choice_key
    )
    prediction = evaluate_choices(
        *(parts.critic, "bootstrap", target_params, critic_key),
        *(rows.next_obs, choice, rows.first),
    )
    bonus = -parts.temperature.value(online) * choice.log_prob
    bootstrap_value = min_over_critics(prediction.particles(parts.scale))
    return bootstrap_target(rows, Backup(bootstrap_value, choice.probability, bonus))


def _actor_losses(
    parts: OffPolicyParts, params: Params, rows: Transition, key: Key
) -> Losses:
    """What the policy is to make small, and what the temperature is to."""
    choice_key, critic_key = jax.random.split(key)
    fixed_params = jax.lax.stop_gradient(params)
    choice = parts.actor.choose(params, rows.obs, rows.first, choice_key)
    prediction = evaluate_choices(
        parts.critic, "act", fixed_params, critic_key, rows.obs, choice, rows.first
    )
    q = parts.settings.actor_reduction(prediction.particles(parts.scale)).mean()
    terms = {"policy": -parts.soft(fixed_params, choice, q)}
    metrics = {"policy_loss": terms["policy"]}
    entropy = -jnp.sum(choice.probability * choice.log_prob, axis=-1)
    if parts.actor.family is not None:
        terms |= penalties(
            parts.settings.regularizers, parts.actor.family, choice.outputs, None
        )
        metrics["entropy"] = entropy
    if parts.temperature.params:
        excess_entropy = (
            jax.lax.stop_gradient(entropy) - parts.temperature.target_entropy
        )
        value = parts.temperature.value(params)
        terms["temperature"] = value * excess_entropy
        metrics["temperature"] = value
    return Losses(terms, jnp.zeros(rows.reward.shape[1:]), metrics)


def _estimate(
    parts: OffPolicyParts, policy: Policy, params: Params, steps: Transition
) -> Estimates:
    """What the parameters say of raw steps."""
    # An estimate is given no key. What has to be drawn is the same each time.
    key = jax.random.key(0)
    first = steps.first

    def value(obs: ArrayTree) -> tuple[Array, ActionChoices]:
        choice = parts.actor.choose(params, obs, first, key)
        prediction = evaluate_choices(
            parts.critic, "act", params, None, obs, choice, first
        )
        return parts.soft(
            params, choice, min_over_critics(prediction.particles(parts.scale)).mean()
        ), (choice)

    v_tm1, choice = value(steps.obs)
    prediction = parts.critic.predict_action(
        "act", params, None, steps.obs, steps.action, first
    )
    family = parts.actor.family
    # Of the policy that is learnt; one that leaves nothing to chance as it explores.
    log_prob = policy.log_prob if family is None else family.log_prob
    return Estimates(
        v_tm1=v_tm1,
        v_t=value(steps.next_obs)[0],
        log_prob=log_prob(choice.outputs, steps.action),
        q_tm1=min_over_critics(prediction.particles(parts.scale)).mean(),
    )


def _acting_params(params: Params) -> Params:
    """What acting needs: no critics."""
    return {name: params[name] for name in ("policy", SHARED) if name in params}


def _refuse_memory(name: str, has_memory: bool) -> None:
    if has_memory:
        raise RlcliError(
            f"updater `{name}` learns from single steps, which take no memory",
            "leave `memory` out of the network",
        )


def _check_regularizers(
    name: str, actor: Actor, regularizers: Sequence[Mapping[str, Any]]
) -> None:
    """Refuses regularizers of what is not there."""
    for regularizer in regularizers:
        if regularizer["name"] == "n_step_entropy" or regularizer.get("to") == "old":
            raise RlcliError(
                f"updater `{name}` learns from single steps, one at a time: "
                f"`regularizers` has {dict(regularizer)}",
                "it takes `entropy`, and `kl` to the prior",
            )
        if actor.family is None:
            raise RlcliError(
                f"the policy of updater `{name}` leaves nothing to chance, and "
                "`regularizers` are about distributions",
                "leave `regularizers` out",
            )
