"""Critics: functions that predict returns, as rules and losses ask for them.

A critic is one or several functions that learn the same thing; what they say is
`[C, T, B, …, K]`, a record of `rlcli.networks.predictions`, for C of them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import gymnasium
import jax
import jax.numpy as jnp

from rlcli.errors import RlcliError
from rlcli.networks.heads import Actions, Role, prediction
from rlcli.networks.memory import recurrent
from rlcli.networks.predictions import Particles, Prediction, Transform, mixed, picked
from rlcli.types import Array, ArrayTree, Key, Network, Params, Transition
from rlcli.updaters.learner import Losses

ROLES: tuple[Role, ...] = ("learn", "bootstrap", "act")


class Critic(NamedTuple):
    """What the value of an action is, or of all of them.

    A `Role` says what for; without a key nothing is drawn, and there is no noise. One
    with a memory begins from `carry` `[B, ...]`, and forgets where `first`.
    """

    init: Callable[[Key], Params]
    # (role, params, key, obs, action, first, carry) -> of that action, `[C, T, B, K]`
    taken: Callable[..., Prediction]
    # (role, params, key, obs, first, carry) -> of every action, `[C, T, B, A, K]`
    every: Callable[..., Prediction]
    initial: Callable[[int], ArrayTree] = lambda batch: ()  # batch -> carry
    # (params, obs, first, carry) -> the carry after each step, `[T, B, ...]`
    carries: Callable[..., ArrayTree] = lambda *_: ()


class Backup(NamedTuple):
    """What a row bootstraps: M distributions of returns, one of which follows.

    What is added to them costs nothing to leave out: zeros, and a probability of one.
    """

    following: Particles  # `[T, B, M, K]`
    probability: Array | float = 1.0  # `[T, B, M]`
    bonus: Array | float = 0.0  # `[T, B, M]`: beside what follows
    reward: Array | float = 0.0  # `[T, B]`: at once


def states(networks: Callable[..., Network], name: str, critics: int = 1) -> Critic:
    """v(s): the same whatever the action, and the only one of "every action"."""
    apply, network = _applied(networks, name, (), critics)
    _forgetful(network, "the value of states")

    def every(role, params, key, obs, first, carry=()):
        found = apply(role, params, key, obs, first, carry)
        return jax.tree.map(lambda leaf: leaf[..., None, :], found)

    def taken(role, params, key, obs, action, first, carry=()):
        del action
        return apply(role, params, key, obs, first, carry)

    return Critic(network.init, taken, every)


def all_actions(
    networks: Callable[..., Network],
    name: str,
    space: gymnasium.spaces.Discrete,
    critics: int = 1,
) -> Critic:
    """q(s, ·): a function of the observation that gives a value for every action.

    The only critic that may have a memory.
    """
    every, network = _applied(networks, name, (int(space.n),), critics)

    def taken(role, params, key, obs, action, first, carry=()):
        found = every(role, params, key, obs, first, carry)
        return picked(found, action - int(space.start))

    def carries(params, obs, first, carry):
        return network.apply(params, None, obs, carry, first)[1]

    if not recurrent(network):
        return Critic(network.init, taken, every)
    return Critic(network.init, taken, every, network.initial, carries)


def one_action(
    networks: Callable[..., Network],
    name: str,
    space: gymnasium.Space,
    critics: int = 1,
) -> Critic:
    """q(s, a): a function of observation and action, in any space of actions.

    It is asked for every action where they can be counted.
    """
    apply, network = _applied(networks, name, (), critics, action=space)
    _forgetful(network, "a function of observation and action")

    def taken(role, params, key, obs, action, first, carry=()):
        return apply(role, params, key, (obs, action), first, carry)

    def every(role, params, key, obs, first, carry=()):
        if not isinstance(space, gymnasium.spaces.Discrete):
            raise ValueError(f"expected actions that can be counted, got {space}")
        count, dtype = int(space.n), jax.dtypes.canonicalize_dtype(space.dtype)
        numbers = int(space.start) + jnp.arange(count, dtype=dtype)
        action = jnp.broadcast_to(
            numbers.reshape((count,) + (1,) * first.ndim), (count, *first.shape)
        )
        repeated = jax.tree.map(
            lambda leaf: jnp.broadcast_to(leaf, (count, *leaf.shape)), obs
        )
        found = apply(role, params, key, (repeated, action), first, carry)
        return jax.tree.map(lambda leaf: jnp.moveaxis(leaf, 1, -2), found)

    return Critic(network.init, taken, every)


def _applied(
    networks: Callable[..., Network],
    name: str,
    actions: Actions,
    critics: int,
    **more: Any,
) -> tuple[Callable[..., Prediction], Network]:
    """`(role, params, key, inputs, first, carry) -> [C, …]`, and the network."""
    if critics > 1:
        more["copies"] = critics
    by_role = {
        role: networks(name, functools.partial(prediction, actions, role), **more)
        for role in ROLES
    }

    def apply(role, params, key, inputs, first, carry=()):
        found, _ = by_role[role].apply(params, key, inputs, carry, first)
        if critics > 1:
            return found
        return jax.tree.map(lambda leaf: leaf[None], found)

    return apply, by_role["learn"]


def _forgetful(network: Network, what: str) -> None:
    """Refuses a memory where no updater would carry it."""
    if recurrent(network):
        raise RlcliError(
            f"temporal differences cannot learn {what} with a memory",
            "leave out `memory`, or choose a rule of actions with `q: all`",
        )


def remembers(critic: Critic) -> bool:
    """Whether a critic carries anything."""
    return bool(jax.tree.leaves(jax.eval_shape(lambda: critic.initial(1))))


def carried(critic: Critic, steps: Transition) -> ArrayTree:
    """What a critic carries into the first of the steps."""
    if not remembers(critic):
        return ()
    return jax.tree.map(lambda leaf: leaf[0], steps.extras["carry"])


def alone(
    function: Callable[..., Prediction],
    rows: tuple[ArrayTree, ...],
    shape: tuple[int, int],
    carries: ArrayTree,
) -> Prediction:
    """What a critic says of rows that follow upon nothing: each has its own carry.

    `function(*rows, first, carry)` of rows and carries `[T, B, ...]`, whose `shape` is
    (T, B), as one step of T · B environments that forget nothing.
    """

    def joined(leaf: Array) -> Array:
        return leaf.reshape((-1, *leaf.shape[2:]))

    going = jnp.zeros((1, shape[0] * shape[1]), bool)
    step = jax.tree.map(lambda leaf: joined(leaf)[None], rows)
    found = function(*step, going, jax.tree.map(joined, carries))
    return jax.tree.map(
        lambda leaf: leaf.reshape((leaf.shape[0], *shape, *leaf.shape[3:])), found
    )


def bootstrapped(rows: Transition, backup: Backup) -> Particles:
    """The target of rows `[T, B]`: the distribution of y, `[T, B, M · K]`.

        y = R + r + I (z + b)

    z is what follows, b its bonus, r the backup's own reward.
    """
    following = backup.following
    every = following.value.shape[:-1]
    bonus, probability = (
        jnp.broadcast_to(each, every) for each in (backup.bonus, backup.probability)
    )
    reward = (rows.reward + backup.reward)[..., None, None]
    value = reward + rows.discount[..., None, None] * (
        following.value + bonus[..., None]
    )
    return mixed(following._replace(value=value), probability)


def regression(
    found: Prediction,
    target: Particles,
    loss: Callable[[Array], Array],
    scale: Transform,
) -> Losses:
    """The loss of a critic `[C, T, B, K]` that is to predict the target `[T, B, K′]`.

    Every one of the C learns it; their losses are summed. The priority is the mean
    error |E[y] − E[z]|: of each row, where there are several.
    """
    error = jnp.abs(found.error(target, scale))
    term = jnp.sum(found.loss(target, loss, scale), axis=0)
    metrics = {"td_error": error, "q": found.particles(scale).mean()}
    priority = jnp.mean(error, axis=0)
    several = priority.shape[0] > 1
    return Losses({"critic": term}, priority if several else priority[0], metrics)


def value(backup: Backup) -> Array:
    """What a backup is worth on average, `[T, B]`."""
    mean = backup.following.mean() + backup.bonus
    return jnp.sum(mean * backup.probability, axis=-1)
