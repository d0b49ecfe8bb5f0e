"""Q-learning and its relatives: temporal differences of action values."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Literal

import gymnasium
import jax
import jax.numpy as jnp
import optax

from rlcli.learning import Learner, Losses, Target, learner
from rlcli.networks.heads import action_values
from rlcli.policies import Values
from rlcli.registry import register
from rlcli.types import (
    Array,
    Clock,
    Estimates,
    Key,
    Network,
    Policy,
    Report,
    Transition,
    Updater,
)
from rlcli.updaters import Spaces, discrete

Loss = Literal["mse", "huber", "logcosh"]
_LOSSES: dict[str, Callable[[Array], Array]] = {
    "mse": optax.squared_error,
    "huber": optax.huber_loss,
    "logcosh": optax.log_cosh,
}
_DEFAULTS = {"policy": "epsilon_greedy", "tracer": "n_step", "unroll": 1}


def _batched(rule: Callable) -> Callable:
    """A rule for one transition, over `[T, B]`."""
    return jax.vmap(jax.vmap(rule))


@register("updater", **_DEFAULTS)
def q_learning(
    spaces: Spaces,
    networks: Callable[..., Network],
    policies: Callable[..., Policy],
    optimizer: optax.GradientTransformation,
    *,
    target: Target | None = None,
    loss: Loss = "huber",
) -> Updater:
    """Moves q(s, a) towards the value of the best next action (Watkins, 1989).

        y = R + I max q⁻(s′, ·)

    With a network, a replay and a target this is DQN (Mnih et al., 2015,
    https://doi.org/10.1038/nature14236).
    """
    import rlax  # here, since importing it takes most of a second

    def error(q_tm1, a_tm1, r_t, discount_t, q_t, selector):
        del selector
        return rlax.q_learning(q_tm1, a_tm1, r_t, discount_t, q_t)

    actions = discrete(spaces, "q_learning")
    return _td(error, actions, networks, policies, optimizer, target, loss)


@register("updater", **_DEFAULTS)
def double_q_learning(
    spaces: Spaces,
    networks: Callable[..., Network],
    policies: Callable[..., Policy],
    optimizer: optax.GradientTransformation,
    *,
    target: Target | None = {"polyak": 0.005},  # noqa: B006 - never mutated
    loss: Loss = "huber",
) -> Updater:
    """The online network chooses the next action, the target network values it.

        y = R + I q⁻(s′, argmax q(s′, ·))

    (van Hasselt et al., 2016, https://arxiv.org/abs/1509.06461)
    """
    import rlax  # here, since importing it takes most of a second

    actions = discrete(spaces, "double_q_learning")
    error = rlax.double_q_learning
    return _td(error, actions, networks, policies, optimizer, target, loss)


def _td(
    error: Callable,
    actions: gymnasium.spaces.Discrete,
    networks: Callable[..., Network],
    policies: Callable[..., Policy],
    optimizer: optax.GradientTransformation,
    target: Target | None,
    loss: Loss,
) -> Updater:
    """Updates by `error(q_tm1, a_tm1, r_t, discount_t, q_t, q_t_selector)`."""
    errors, elementwise = _batched(error), _LOSSES[loss]
    network = networks("q", functools.partial(action_values, int(actions.n)))
    policy = policies(values=Values(network), space=actions)
    begin, step = learner(network.init, optimizer, target)

    def q(params, obs: Array, first: Array) -> Array:
        return network.apply(params, None, obs, (), first)[0]

    def update(
        state: Learner, batch: Transition, weight: Array, clock: Clock, key: Key
    ) -> tuple[Learner, Report]:
        del key
        follower = state.params if target is None else state.target
        q_t = q(follower, batch.next_obs, batch.first)
        selector = q(state.params, batch.next_obs, batch.first)
        index = batch.action - int(actions.start)

        def losses(params) -> Losses:
            q_tm1 = q(params, batch.obs, batch.first)
            td = errors(q_tm1, index, batch.reward, batch.discount, q_t, selector)
            metrics = {"td_error": jnp.abs(td), "q": q_tm1}
            priority = jnp.mean(jnp.abs(td), axis=0)
            return Losses({"critic": elementwise(td)}, priority, metrics)

        state, priority, metrics = step(state, losses, weight, clock)
        return state, Report(priority, metrics)

    def estimate(state: Learner, steps: Transition) -> Estimates:
        q_tm1 = q(state.params, steps.obs, steps.first)
        q_t = q(state.params, steps.next_obs, steps.first)
        index = (steps.action - int(actions.start))[..., None]
        return Estimates(
            v_tm1=jnp.max(q_tm1, axis=-1),
            v_t=jnp.max(q_t, axis=-1),
            log_prob=policy.log_prob(q_tm1, steps.action),
            q_tm1=jnp.take_along_axis(q_tm1, index, axis=-1)[..., 0],
        )

    return Updater(
        init=begin,
        acting=lambda state: state.params,
        policy=policy,
        update=update,
        estimate=estimate,
        failed=lambda state: state.failed,
    )
