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
from rlcli.networks.memory import recurrent
from rlcli.networks.predictions import (
    LOSSES,
    Loss,
    Particles,
    Transform,
    Transforms,
    least,
    transform,
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
    all_actions,
    bootstrapped,
    one_action,
    regression,
    remembers,
)
from rlcli.updaters.learner import Learner, Losses, Target, in_turns
from rlcli.updaters.off_policy.actors import Actor, Choice, valued
from rlcli.updaters.regularizers import penalties

Believed = Callable[[Particles], Particles]  # of several critics the one that counts


def first_of(copies: Particles) -> Particles:
    """What the first critic says, whatever the others do."""
    return jax.tree.map(lambda leaf: leaf[0], copies)


class Temperature(NamedTuple):
    """How much to be undecided is worth: τ, in units of reward for each nat."""

    params: Params  # what is learnt of it: {} if nothing is
    value: Callable[[Params], Array | float]
    goal: float = 0.0  # the entropy at which it stays


COLD = Temperature({}, lambda params: 0.0)


class Settings(NamedTuple):
    """What an updater sets, and a recipe through it."""

    critics: Count = 1
    target: Target | None = None
    loss: Loss = "mse"
    transform: Transforms | None = None
    delay: Count = 1
    climbed: Believed = least  # what the policy climbs, of several critics
    followed: bool = False  # whether the policy has a target, to bootstrap from
    regularizers: Sequence[Mapping[str, Any]] = ()  # with their defaults


class Parts(NamedTuple):
    """What losses and backups are made of."""

    actor: Actor
    critic: Critic
    temperature: Temperature
    scale: Transform
    settings: Settings

    def soft(self, params: Params, choice: Choice, q: Array) -> Array:
        """Σ π(a|s) (q(s, a) − τ log π(a|s)), `[T, B]`."""
        worth = q - self.temperature.value(params) * choice.log_prob
        return jnp.sum(choice.probability * worth, axis=-1)


def climbing(
    name: str,
    spaces: Spaces,
    networks: Callable[..., Network],
    policies: Callable[..., Policy],
    optimizer: optax.GradientTransformation,
    actor: Actor,
    temperature: Temperature,
    settings: Settings,
) -> Updater:
    """The updater of this actor, its critics and its temperature."""
    _without_memory(name, recurrent(actor.network))
    if isinstance(spaces.action, gymnasium.spaces.Discrete):
        critic = all_actions(networks, "critic", spaces.action, settings.critics)
    else:
        critic = one_action(networks, "critic", spaces.action, settings.critics)
    _without_memory(name, remembers(critic))
    scale = transform(settings.transform)
    _fits(name, actor, settings.regularizers)
    policy = policies(**actor.offers, space=spaces.action)
    parts = Parts(actor, critic, temperature, scale, settings)

    def init(key: Key) -> Params:
        return {**actor.network.init(key), **critic.init(key), **temperature.params}

    # A torso that both share is the critics': the policy reads it, and leaves it alone.
    begin, step = in_turns(
        init,
        optimizer,
        [("critic", SHARED), ("policy", *temperature.params)],
        target=settings.target,
        followed=("critic", SHARED, *(["policy"] if settings.followed else [])),
        delay=settings.delay,
    )

    def update(
        state: Learner, batch: Transition, weight: Array, clock: Clock, key: Key
    ) -> tuple[Learner, Report]:
        goal_key, critic_key, policy_key = jax.random.split(key, 3)
        follower = state.params if settings.target is None else state.target
        follower = {**state.params, **follower}
        goal = _goal(parts, state.params, follower, batch, goal_key)

        def critics(params: Params) -> Losses:
            asked = (critic_key, batch.obs, batch.action, batch.first)
            found = critic.taken("learn", params, *asked)
            return regression(found, goal, LOSSES[settings.loss], scale)

        def climb(params: Params) -> Losses:
            return _climb(parts, params, batch, policy_key)

        state, priority, metrics = step(state, [critics, climb], weight, clock)
        return state, Report(priority, metrics)

    return Updater(
        init=begin,
        acting=lambda state: _acting(state.params),
        policy=policy,
        update=update,
        estimate=lambda state, steps: _estimate(parts, policy, state.params, steps),
        failed=lambda state: state.failed,
    )


def _goal(
    parts: Parts, online: Params, follower: Params, rows: Transition, key: Key
) -> Particles:
    """What the critics are to predict of rows `[T, B]`."""
    choice_key, critic_key = jax.random.split(key)
    # Of soft values it is the policy as it is now whose entropy is worth something, at
    # the states that follow: the target parameters have their say in what follows.
    whose = follower if parts.settings.followed else online
    choice = parts.actor.follow(whose, rows.next_obs, rows.first, choice_key)
    found = valued(
        *(parts.critic, "bootstrap", follower, critic_key),
        *(rows.next_obs, choice, rows.first),
    )
    bonus = -parts.temperature.value(online) * choice.log_prob
    following = least(found.particles(parts.scale))
    return bootstrapped(rows, Backup(following, choice.probability, bonus))


def _climb(parts: Parts, params: Params, rows: Transition, key: Key) -> Losses:
    """What the policy is to make small, and what the temperature is to."""
    choice_key, critic_key = jax.random.split(key)
    held = jax.lax.stop_gradient(params)
    choice = parts.actor.choose(params, rows.obs, rows.first, choice_key)
    found = valued(parts.critic, "act", held, critic_key, rows.obs, choice, rows.first)
    q = parts.settings.climbed(found.particles(parts.scale)).mean()
    terms = {"policy": -parts.soft(held, choice, q)}
    metrics = {"policy_loss": terms["policy"]}
    entropy = -jnp.sum(choice.probability * choice.log_prob, axis=-1)
    if parts.actor.family is not None:
        terms |= penalties(
            parts.settings.regularizers, parts.actor.family, choice.outputs, None
        )
        metrics["entropy"] = entropy
    if parts.temperature.params:
        above = jax.lax.stop_gradient(entropy) - parts.temperature.goal
        value = parts.temperature.value(params)
        terms["temperature"] = value * above
        metrics["temperature"] = value
    return Losses(terms, jnp.zeros(rows.reward.shape[1:]), metrics)


def _estimate(
    parts: Parts, policy: Policy, params: Params, steps: Transition
) -> Estimates:
    """What the parameters say of raw steps."""
    # An estimate is given no key. What has to be drawn is the same each time.
    key = jax.random.key(0)
    first = steps.first

    def value(obs: ArrayTree) -> tuple[Array, Choice]:
        choice = parts.actor.choose(params, obs, first, key)
        found = valued(parts.critic, "act", params, None, obs, choice, first)
        return parts.soft(params, choice, least(found.particles(parts.scale)).mean()), (
            choice
        )

    v_tm1, choice = value(steps.obs)
    taken = parts.critic.taken("act", params, None, steps.obs, steps.action, first)
    family = parts.actor.family
    # Of the policy that is learnt; one that leaves nothing to chance as it explores.
    log_prob = policy.log_prob if family is None else family.log_prob
    return Estimates(
        v_tm1=v_tm1,
        v_t=value(steps.next_obs)[0],
        log_prob=log_prob(choice.outputs, steps.action),
        q_tm1=least(taken.particles(parts.scale)).mean(),
    )


def _acting(params: Params) -> Params:
    """What acting needs: no critics."""
    return {name: params[name] for name in ("policy", SHARED) if name in params}


def _without_memory(name: str, remembering: bool) -> None:
    if remembering:
        raise RlcliError(
            f"updater `{name}` learns from single steps, which take no memory",
            "leave `memory` out of the network",
        )


def _fits(name: str, actor: Actor, regularizers: Sequence[Mapping[str, Any]]) -> None:
    """Refuses regularizers of what is not there."""
    for each in regularizers:
        if each["name"] == "n_step_entropy" or each.get("to") == "old":
            raise RlcliError(
                f"updater `{name}` learns from single steps, one at a time: "
                f"`regularizers` has {dict(each)}",
                "it takes `entropy`, and `kl` to the prior",
            )
        if actor.family is None:
            raise RlcliError(
                f"the policy of updater `{name}` leaves nothing to chance, and "
                "`regularizers` are about distributions",
                "leave `regularizers` out",
            )
