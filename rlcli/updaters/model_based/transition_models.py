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
from rlcli.distributions.family import flatten_event
from rlcli.distributions.normals import join_parameters, split_parameters
from rlcli.errors import RlcliError
from rlcli.networks.heads import Role, action_head, state_value_head
from rlcli.networks.memory import is_recurrent
from rlcli.networks.predictions import (
    Particles,
    Transform,
    min_over_critics,
    mix_particles,
)
from rlcli.policies import DistributionOffer
from rlcli.spaces import describe
from rlcli.types import Array, ArrayTree, Environment, Key, Network, Params, Transition
from rlcli.updaters.critics import Critic

MIN_LOG_SCALE = (
    -5.0
)  # of log-scales: where nothing is random a density has no upper bound
_FIXED_SEED = 0  # the seed of what is drawn without a key, the same each time


class Outcomes(NamedTuple):
    """What may come of an action: one of K outcomes, `[..., K]` each."""

    reward: Array
    discount: Array  # what multiplies the value of `next_obs`: 0 at an end
    next_obs: ArrayTree  # `[..., K, *shape]`
    probability: Array


class TransitionModel(NamedTuple):
    """What actions lead to."""

    init: Callable[[Key], Params]
    # (params, key, obs, action, first) -> Outcomes; without a key the same each time
    predict: Callable[..., Outcomes]
    # (params, rows) -> what there is to be learnt, by name, `[T, B]` each
    losses: Callable[[Params, Transition], Mapping[str, Array]]


def learned_model(
    networks: Callable[..., Network],
    observation: gymnasium.Space,
    actions: gymnasium.spaces.Discrete,
    *,
    gamma: Array | float,
    stochastic: bool,
    samples: int,
) -> TransitionModel:
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
    family = _observation_distribution(observation)
    transition = _prediction_network(
        networks, "transition", family, actions, stochastic
    )
    if family.name == "normal":
        transition = _relative_to_state(transition, observation.shape or ())
    scalar = distributions.normal(())
    reward = _prediction_network(networks, "reward", scalar, actions, stochastic)
    continuation = networks("continuation", state_value_head, action=actions)
    networks_by_name = {"transition": transition.network, "reward": reward.network}
    outcomes_of = _outcome_function(family, observation, stochastic, samples)

    def apply(network: Network, params: Params, rows: tuple, first: Array) -> Array:
        return network.apply(params, None, rows, (), first)[0]

    def init(key: Key) -> Params:
        all_networks = [*networks_by_name.values(), continuation]
        return {
            name: e for network in all_networks for name, e in network.init(key).items()
        }

    def outcomes(
        params: Params, key: Key | None, obs: ArrayTree, action: Array, first: Array
    ) -> Outcomes:
        pair = (obs, action)
        outputs = apply(transition.network, params, pair, first)
        next_obs, probability = outcomes_of(outputs, key)
        reward_mean = scalar.mean(apply(reward.network, params, pair, first))
        discount = gamma * jax.nn.sigmoid(apply(continuation, params, pair, first))
        reward_mean, discount = (
            jnp.broadcast_to(leaf[..., None], probability.shape)
            for leaf in (reward_mean, discount)
        )
        return Outcomes(reward_mean, discount, next_obs, probability)

    def errors(params: Params, rows: Transition) -> dict[str, Array]:
        pair = (rows.obs, rows.action)
        outputs = {
            name: apply(e, params, pair, rows.first)
            for name, e in networks_by_name.items()
        }
        surprise = -family.log_prob(outputs["transition"], rows.next_obs)
        logit = apply(continuation, params, pair, rows.first)
        went_on = rows.discount > 0
        return {
            "transition": jnp.where(went_on, surprise, 0.0),
            "reward": -scalar.log_prob(outputs["reward"], rows.reward),
            "continuation": optax.sigmoid_binary_cross_entropy(logit, went_on),
        }

    return TransitionModel(init, outcomes, errors)


def known_model(
    rules: Environment, gamma: Array | float, samples: int
) -> TransitionModel:
    """The environment's own step as a model, which has nothing to learn.

        (s′, R, 1 − terminated) = step(s, a, noise),  so many `samples` of noise

    The discount is γ, or 0 where the step terminates. What is observed has to show the
    state, as the wrapper `expose_state` does.
    """
    key = jax.eval_shape(lambda: jax.random.key(_FIXED_SEED))
    state = jax.eval_shape(rules.reset, key)[0]
    tree = jax.tree.structure(state)
    number = samples if jax.tree.leaves(jax.eval_shape(rules.draw, key)) else 1

    def outcomes(
        params: Params, key: Key | None, obs: ArrayTree, action: Array, first: Array
    ) -> Outcomes:
        del params, first
        noise = jax.vmap(rules.draw)(jax.random.split(_key_or_fixed(key), number))

        def step_once(leaves: tuple[Array, ...], action: Array):
            state = jax.tree.unflatten(tree, leaves)
            step = functools.partial(rules.step, state, action)
            return jax.vmap(lambda step_noise: step(step_noise)[1], axis_size=number)(
                noise
            )

        for _ in range(action.ndim):
            step_once = jax.vmap(step_once)
        after = step_once(obs["state"], action)
        shape = after.reward.shape
        discount, even = gamma * after.discount, jnp.full(shape, 1 / number)
        return Outcomes(after.reward, discount, after.next_obs, even)

    return TransitionModel(lambda key: {}, outcomes, lambda params, rows: {})


def model_action_values(
    model: TransitionModel,
    critic: Critic,
    actions: gymnasium.spaces.Discrete,
    scale: Transform,
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
        repeated_obs = jax.tree.map(
            lambda leaf: jnp.broadcast_to(leaf, (count, *leaf.shape)), obs
        )
        action = jnp.broadcast_to(numbers, shape)
        after = model.predict(params, keys[0], repeated_obs, action, first)
        prediction = critic.predict_action(
            role, params, keys[1], after.next_obs, None, first
        )
        bootstrap_value = min_over_critics(prediction.particles(scale))
        reward, discount = after.reward[..., None], after.discount[..., None]
        worth = bootstrap_value._replace(
            value=reward + discount * bootstrap_value.value
        )
        q_values = mix_particles(worth, after.probability)
        q_values = jax.tree.map(lambda leaf: jnp.moveaxis(leaf, 0, -2), q_values)
        if action_masks.get_mask(obs) is None:
            return q_values
        mask = action_masks.allowed_actions(obs)[..., None]
        return q_values._replace(value=action_masks.mask_outputs(q_values.value, mask))

    return q


def _observation_distribution(space: gymnasium.Space) -> distributions.Distribution:
    """The family that observations are foretold with."""
    refusal = RlcliError(
        f"a model cannot foretell observations of {describe(space)}",
        "it foretells a Box, and choices; the wrapper `flatten` makes a Box of any",
    )
    if isinstance(space, gymnasium.spaces.Tuple | gymnasium.spaces.Dict):
        raise refusal
    try:
        return distributions.distribution_for(space)
    except TypeError as error:
        raise refusal from error


def _prediction_network(
    networks: Callable[..., Network],
    name: str,
    family: distributions.Distribution,
    actions: gymnasium.spaces.Discrete,
    stochastic: bool,
) -> DistributionOffer:
    """p(·|s, a) by a network of that name: a distribution, and its parameters.

    Of normal distributions the network gives means alone where nothing is
    `stochastic`: their scale is 1. Otherwise scales are never below e⁻⁵.
    """
    known_scale = family.name == "normal" and not stochastic
    size = family.size // 2 if known_scale else family.size
    network = networks(name, functools.partial(action_head, size), action=actions)
    if is_recurrent(network):
        raise RlcliError("a model cannot have a memory", "leave out `memory`")
    if family.name != "normal":
        return DistributionOffer(network, family)

    def apply(params, key, pair, carry, first):
        outputs, carry = network.apply(params, key, pair, carry, first)
        if known_scale:
            return join_parameters(outputs, jnp.zeros_like(outputs)), carry
        mean, log_scale = split_parameters(outputs)
        return join_parameters(
            mean, MIN_LOG_SCALE + jax.nn.softplus(log_scale - MIN_LOG_SCALE)
        ), carry

    return DistributionOffer(network._replace(apply=apply), family)


def _relative_to_state(
    offer: DistributionOffer, shape: tuple[int, ...]
) -> DistributionOffer:
    """The same distribution about where one is: means are changes."""
    network = offer.network

    def apply(params, key, pair, carry, first):
        outputs, carry = network.apply(params, key, pair, carry, first)
        mean, log_scale = split_parameters(outputs)
        return join_parameters(flatten_event(pair[0], shape) + mean, log_scale), carry

    return offer._replace(network=network._replace(apply=apply))


def _outcome_function(
    family: distributions.Distribution,
    space: gymnasium.Space,
    stochastic: bool,
    samples: int,
) -> Callable[[Array, Key | None], tuple[Array, Array]]:
    """`(parameters[..., size], key) -> next_obs[..., K, *shape], their probability`."""

    def mode(parameters: Array, key: Key | None) -> tuple[Array, Array]:
        del key
        lead = parameters.shape[:-1]
        next_obs = jnp.expand_dims(family.mode(parameters), len(lead))
        return next_obs, jnp.ones((*lead, 1))

    def enumerate_outcomes(parameters: Array, key: Key | None) -> tuple[Array, Array]:
        del key
        assert isinstance(space, gymnasium.spaces.Discrete)
        states = int(space.start) + jnp.arange(int(space.n))
        probabilities = jax.nn.softmax(parameters)
        return jnp.broadcast_to(states, probabilities.shape), probabilities

    def sample_outcomes(parameters: Array, key: Key | None) -> tuple[Array, Array]:
        # The same noise for all: what tells two actions apart is not what was drawn.
        noise = family.draw(_key_or_fixed(key), samples)
        next_obs = family.sample(parameters[..., None, :], noise)
        return next_obs, jnp.full((*parameters.shape[:-1], samples), 1 / samples)

    if not stochastic:
        return mode
    return (
        enumerate_outcomes
        if isinstance(space, gymnasium.spaces.Discrete)
        else sample_outcomes
    )


def _key_or_fixed(key: Key | None) -> Key:
    return jax.random.key(_FIXED_SEED) if key is None else key
