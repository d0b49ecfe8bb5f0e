"""Models: what an action may lead to, learnt or known, and its value one step ahead.

A model says of (observation, action) which outcomes there may be; what the action is
worth follows from what the states are worth that it may lead to. So policies act on
the values of states as they would on those of actions.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
import optax

from rlcli import action_masks, distributions
from rlcli.distributions.family import flattened
from rlcli.distributions.normals import joined, split
from rlcli.errors import RlcliError
from rlcli.networks.heads import Role, action, state_value
from rlcli.networks.memory import recurrent
from rlcli.networks.predictions import Particles, Transform, least, mixed
from rlcli.policies import Parameters
from rlcli.spaces import describe
from rlcli.types import Array, ArrayTree, Environment, Key, Network, Params, Transition
from rlcli.updaters.critics import Critic

LEAST = -5.0  # of log-scales: where nothing is random a density has no upper bound
_FIXED = 0  # the seed of what is drawn without a key, the same each time


class Outcomes(NamedTuple):
    """What may come of an action: one of K outcomes, `[..., K]` each."""

    reward: Array
    discount: Array  # what multiplies the value of `next_obs`: 0 at an end
    next_obs: ArrayTree  # `[..., K, *shape]`
    probability: Array


class Model(NamedTuple):
    """What actions lead to."""

    init: Callable[[Key], Params]
    # (params, key, obs, action, first) -> Outcomes; without a key the same each time
    outcomes: Callable[..., Outcomes]
    # (params, rows) -> what there is to be learnt, by name, `[T, B]` each
    errors: Callable[[Params, Transition], Mapping[str, Array]]


def learnt(
    networks: Callable[..., Network],
    observation: gymnasium.Space,
    actions: gymnasium.spaces.Discrete,
    *,
    gamma: Array | float,
    stochastic: bool,
    samples: int,
) -> Model:
    """A model made of three functions of (observation, action), fitted to rows.

        p(s′|s, a)  `transition`: if the episode goes on; its error is −log p
        r(s, a)     `reward`: the mean of R; its error is −log p(R|s, a)
        c(s, a)     `continuation`: how likely the episode goes on; its error is −log c
                    where it did, else −log(1 − c)

    Rows that ended teach `transition` nothing, so that γ c(s, a) Σ p(s′|s, a) v(s′) is
    right where endings hang on chance.
    Over a Box of floats p is a normal distribution about s + d(s, a); one of one's own
    network gives d. Not `stochastic`: of scale 1, and its mode alone is looked at.
    Otherwise all states where they can be counted, else so many `samples` of them.
    """
    family = _over(observation)
    transition = _foretelling(networks, "transition", family, actions, stochastic)
    if family.name == "normal":
        transition = _about(transition, observation.shape or ())
    scalar = distributions.normal(())
    reward = _foretelling(networks, "reward", scalar, actions, stochastic)
    continuation = networks("continuation", state_value, action=actions)
    each = {"transition": transition.network, "reward": reward.network}
    ahead = _ahead(family, observation, stochastic, samples)

    def said(network: Network, params: Params, rows: tuple, first: Array) -> Array:
        return network.apply(params, None, rows, (), first)[0]

    def init(key: Key) -> Params:
        every = [*each.values(), continuation]
        return {name: e for made in every for name, e in made.init(key).items()}

    def outcomes(
        params: Params, key: Key | None, obs: ArrayTree, action: Array, first: Array
    ) -> Outcomes:
        pair = (obs, action)
        found = said(transition.network, params, pair, first)
        next_obs, probability = ahead(found, key)
        paid = scalar.mean(said(reward.network, params, pair, first))
        going = gamma * jax.nn.sigmoid(said(continuation, params, pair, first))
        paid, going = (
            jnp.broadcast_to(leaf[..., None], probability.shape)
            for leaf in (paid, going)
        )
        return Outcomes(paid, going, next_obs, probability)

    def errors(params: Params, rows: Transition) -> dict[str, Array]:
        pair = (rows.obs, rows.action)
        found = {name: said(e, params, pair, rows.first) for name, e in each.items()}
        surprise = -family.log_prob(found["transition"], rows.next_obs)
        logit = said(continuation, params, pair, rows.first)
        went_on = rows.discount > 0
        return {
            "transition": jnp.where(went_on, surprise, 0.0),
            "reward": -scalar.log_prob(found["reward"], rows.reward),
            "continuation": optax.sigmoid_binary_cross_entropy(logit, went_on),
        }

    return Model(init, outcomes, errors)


def known(rules: Environment, gamma: Array | float, samples: int) -> Model:
    """The environment's own step as a model, which has nothing to learn.

        (s′, R, 1 − terminated) = step(s, a, noise),  so many `samples` of noise

    The discount is γ, or 0 where the step terminates. What is observed has to show the
    state, as the wrapper `expose_state` does.
    """
    key = jax.eval_shape(lambda: jax.random.key(_FIXED))
    state = jax.eval_shape(rules.reset, key)[0]
    tree = jax.tree.structure(state)
    number = samples if jax.tree.leaves(jax.eval_shape(rules.draw, key)) else 1

    def outcomes(
        params: Params, key: Key | None, obs: ArrayTree, action: Array, first: Array
    ) -> Outcomes:
        del params, first
        noise = jax.vmap(rules.draw)(jax.random.split(_given(key), number))

        def one(leaves: tuple[Array, ...], action: Array):
            begun = jax.tree.unflatten(tree, leaves)
            step = functools.partial(rules.step, begun, action)
            return jax.vmap(lambda each: step(each)[1], axis_size=number)(noise)

        for _ in range(action.ndim):
            one = jax.vmap(one)
        after = one(obs["state"], action)
        shape = after.reward.shape
        discount, even = gamma * after.discount, jnp.full(shape, 1 / number)
        return Outcomes(after.reward, discount, after.next_obs, even)

    return Model(lambda key: {}, outcomes, lambda params, rows: {})


def successor(
    model: Model, critic: Critic, actions: gymnasium.spaces.Discrete, scale: Transform
) -> Callable[..., Particles]:
    """Action values by the values of the states that follow: coax's SuccessorStateQ.

        q(s, a) = Σₖ pₖ (rₖ + Iₖ v(s′ₖ)),  k over the outcomes of (s, a)

    `(role, params, key, obs[T, B], first) -> Particles [T, B, A, K]`; a `Role` says
    what the value is asked for.
    """
    count, start = int(actions.n), int(actions.start)

    def q(
        role: Role, params: Params, key: Key | None, obs: ArrayTree, first: Array
    ) -> Particles:
        keys = (None, None) if key is None else jax.random.split(key)
        shape = (count, *first.shape)
        numbers = (start + jnp.arange(count)).reshape((count,) + (1,) * first.ndim)
        repeated = jax.tree.map(
            lambda leaf: jnp.broadcast_to(leaf, (count, *leaf.shape)), obs
        )
        action = jnp.broadcast_to(numbers, shape)
        after = model.outcomes(params, keys[0], repeated, action, first)
        found = critic.taken(role, params, keys[1], after.next_obs, None, first)
        following = least(found.particles(scale))
        reward, discount = after.reward[..., None], after.discount[..., None]
        worth = following._replace(value=reward + discount * following.value)
        every = mixed(worth, after.probability)
        every = jax.tree.map(lambda leaf: jnp.moveaxis(leaf, 0, -2), every)
        if action_masks.carried(obs) is None:
            return every
        allowed = action_masks.of(obs)[..., None]
        return every._replace(value=action_masks.forbidding(every.value, allowed))

    return q


def _over(space: gymnasium.Space) -> distributions.Distribution:
    """The family that observations are foretold with."""
    refusal = RlcliError(
        f"a model cannot foretell observations of {describe(space)}",
        "it foretells a Box, and choices; the wrapper `flatten` makes a Box of any",
    )
    if isinstance(space, gymnasium.spaces.Tuple | gymnasium.spaces.Dict):
        raise refusal
    try:
        return distributions.over(space)
    except TypeError as error:
        raise refusal from error


def _foretelling(
    networks: Callable[..., Network],
    name: str,
    family: distributions.Distribution,
    actions: gymnasium.spaces.Discrete,
    stochastic: bool,
) -> Parameters:
    """p(·|s, a) by a network of that name: a distribution, and its parameters.

    Of normal distributions the network gives means alone where nothing is
    `stochastic`: their scale is 1. Otherwise scales are never below e⁻⁵.
    """
    known_scale = family.name == "normal" and not stochastic
    size = family.size // 2 if known_scale else family.size
    network = networks(name, functools.partial(action, size), action=actions)
    if recurrent(network):
        raise RlcliError("a model cannot have a memory", "leave out `memory`")
    if family.name != "normal":
        return Parameters(network, family)

    def apply(params, key, pair, carry, first):
        found, carry = network.apply(params, key, pair, carry, first)
        if known_scale:
            return joined(found, jnp.zeros_like(found)), carry
        mean, log_scale = split(found)
        return joined(mean, LEAST + jax.nn.softplus(log_scale - LEAST)), carry

    return Parameters(network._replace(apply=apply), family)


def _about(foretold: Parameters, shape: tuple[int, ...]) -> Parameters:
    """The same distribution about where one is: means are changes."""
    network = foretold.network

    def apply(params, key, pair, carry, first):
        found, carry = network.apply(params, key, pair, carry, first)
        mean, log_scale = split(found)
        return joined(flattened(pair[0], shape) + mean, log_scale), carry

    return foretold._replace(network=network._replace(apply=apply))


def _ahead(
    family: distributions.Distribution,
    space: gymnasium.Space,
    stochastic: bool,
    samples: int,
) -> Callable[[Array, Key | None], tuple[Array, Array]]:
    """`(parameters[..., size], key) -> next_obs[..., K, *shape], their probability`."""

    def mode(parameters: Array, key: Key | None) -> tuple[Array, Array]:
        del key
        lead = parameters.shape[:-1]
        found = jnp.expand_dims(family.mode(parameters), len(lead))
        return found, jnp.ones((*lead, 1))

    def counted(parameters: Array, key: Key | None) -> tuple[Array, Array]:
        del key
        assert isinstance(space, gymnasium.spaces.Discrete)
        every = int(space.start) + jnp.arange(int(space.n))
        likely = jax.nn.softmax(parameters)
        return jnp.broadcast_to(every, likely.shape), likely

    def drawn(parameters: Array, key: Key | None) -> tuple[Array, Array]:
        # The same noise for all: what tells two actions apart is not what was drawn.
        noise = family.draw(_given(key), samples)
        found = family.sample(parameters[..., None, :], noise)
        return found, jnp.full((*parameters.shape[:-1], samples), 1 / samples)

    if not stochastic:
        return mode
    return counted if isinstance(space, gymnasium.spaces.Discrete) else drawn


def _given(key: Key | None) -> Key:
    return jax.random.key(_FIXED) if key is None else key
