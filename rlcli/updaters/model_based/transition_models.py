"""Transition models, learned or known, and action values by one-step lookahead.

A model predicts the outcomes of (observation, action). Action values follow from the
values of the next states, so policies for action values can act on state values.
"""

import functools
from collections.abc import Callable, Mapping
from typing import NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Float

from rlcli import distributions
from rlcli.distributions import action_masks
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
from rlcli.types import Array, ArrayTree, Core, Key, Network, Params, PerRow, Transition
from rlcli.updaters import Networks
from rlcli.updaters.critics import Critic, repeat_for_actions

# Without a bound, the density of a deterministic outcome grows without limit.
MIN_LOG_SCALE = -5.0
_FIXED_SEED = 0  # for samples without a key, of a policy that does not explore


class Outcomes(NamedTuple):
    """K possible outcomes of an action with probabilities."""

    reward: Float[Array, "*batch K"]
    # Factor of the value of `next_obs`: 0 at termination.
    discount: Float[Array, "*batch K"]
    next_obs: ArrayTree  # `[..., K, *shape]`
    probability: Float[Array, "*batch K"]


class TransitionModel(NamedTuple):
    """Predicts the outcomes of actions."""

    init: Callable[[Key], Params]
    # (params, key, obs, action, first) -> Outcomes; without a key, a fixed seed
    predict: Callable[..., Outcomes]
    # (params, rows) -> losses by name
    losses: Callable[[Params, Transition], Mapping[str, PerRow]]


def learned_model(
    networks: Networks,
    observation: gymnasium.Space,
    actions: gymnasium.spaces.Discrete,
    *,
    gamma: Array | float,
    stochastic: bool,
    samples: int,
) -> TransitionModel:
    """A model of three functions of (observation, action), fitted to rows.

        p(s′|s, a)  `transition`: if the episode continues; the loss is −log p
        r(s, a)     `reward`: the mean of R; the loss is −log p(R|s, a)
        c(s, a)     `continuation`: the probability that the episode continues; the loss
                    is −log c if it did, else −log(1 − c)

    `transition` is not trained on terminated rows, so γ c(s, a) Σ p(s′|s, a) v(s′) is
    correct for stochastic termination. Over a Box of floats p is a normal distribution
    with mean s + d(s, a), where the network predicts d. Without `stochastic`, its scale
    is 1 and the only outcome is its mode. With `stochastic`, the outcomes are all
    states if they are discrete, else `samples` samples.
    """
    family = _observation_distribution(observation)
    transition = _prediction_network(
        networks, "transition", family, actions, stochastic
    )
    if family.name == "normal":
        transition = _add_observation(transition, observation.shape or ())
    scalar = distributions.normal(())
    reward = _prediction_network(networks, "reward", scalar, actions, stochastic)
    continuation = networks("continuation", state_value_head, action=actions)
    networks_by_name = {"transition": transition.network, "reward": reward.network}
    outcome_function = _outcome_function(family, observation, stochastic, samples)

    def apply(network: Network, params: Params, rows: tuple, first: Array) -> Array:
        return network.apply(params, None, rows, (), first)[0]

    def init(key: Key) -> Params:
        all_networks = [*networks_by_name.values(), continuation]
        return {
            name: params
            for network in all_networks
            for name, params in network.init(key).items()
        }

    def outcomes(
        params: Params, key: Key | None, obs: ArrayTree, action: Array, first: Array
    ) -> Outcomes:
        pair = (obs, action)
        outputs = apply(transition.network, params, pair, first)
        next_obs, probability = outcome_function(outputs, key)
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
            name: apply(network, params, pair, rows.first)
            for name, network in networks_by_name.items()
        }
        transition_loss = -family.log_prob(outputs["transition"], rows.next_obs)
        logit = apply(continuation, params, pair, rows.first)
        is_continued = rows.discount > 0
        return {
            "transition": jnp.where(is_continued, transition_loss, 0.0),
            "reward": -scalar.log_prob(outputs["reward"], rows.reward),
            "continuation": optax.sigmoid_binary_cross_entropy(logit, is_continued),
        }

    return TransitionModel(init, outcomes, errors)


def known_model(
    environment: Core, gamma: Array | float, samples: int
) -> TransitionModel:
    """The environment's own step function as a model, without parameters.

        (s′, R, 1 − terminated) = step(s, a, noise),  for `samples` samples of noise

    The discount is γ, or 0 where the step terminates. Observations must contain the
    state, as with the wrapper `expose_state`.
    """
    key = jax.eval_shape(lambda: jax.random.key(_FIXED_SEED))
    state = jax.eval_shape(environment.reset, key)[0]
    tree = jax.tree.structure(state)
    number = samples if jax.tree.leaves(jax.eval_shape(environment.draw, key)) else 1

    def outcomes(
        params: Params, key: Key | None, obs: ArrayTree, action: Array, first: Array
    ) -> Outcomes:
        noise = jax.vmap(environment.draw)(jax.random.split(_default_key(key), number))

        def step_once(leaves: tuple[Array, ...], action: Array):
            state = jax.tree.unflatten(tree, leaves)
            step = functools.partial(environment.step, state, action)
            return jax.vmap(lambda step_noise: step(step_noise)[1], axis_size=number)(
                noise
            )

        for _ in range(action.ndim):
            step_once = jax.vmap(step_once)
        after = step_once(obs["state"], action)
        shape = after.reward.shape
        discount, probability = gamma * after.discount, jnp.full(shape, 1 / number)
        return Outcomes(after.reward, discount, after.next_obs, probability)

    return TransitionModel(lambda key: {}, outcomes, lambda params, rows: {})


def model_action_values(
    model: TransitionModel,
    critic: Critic,
    actions: gymnasium.spaces.Discrete,
    transform: Transform,
) -> Callable[..., Particles]:
    """Action values from the values of the next states, as coax's SuccessorStateQ.

        q(s, a) = Σₖ pₖ (rₖ + Iₖ v(s′ₖ)),  k over the outcomes of (s, a)

    Returns `(role, params, key, obs[T, B], first) -> Particles [T, B, A, K]`; the
    `Role` states the purpose of the values.
    """

    def q(
        role: Role, params: Params, key: Key | None, obs: ArrayTree, first: Array
    ) -> Particles:
        keys = (None, None) if key is None else jax.random.split(key)
        action, repeated_obs = repeat_for_actions(actions, obs, first)
        after = model.predict(params, keys[0], repeated_obs, action, first)
        prediction = critic.predict_action(
            role, params, keys[1], after.next_obs, None, first
        )
        bootstrap_value = min_over_critics(prediction.particles(transform))
        reward, discount = after.reward[..., None], after.discount[..., None]
        outcome_value = bootstrap_value._replace(
            value=reward + discount * bootstrap_value.value
        )
        q_values = mix_particles(outcome_value, after.probability)
        q_values = jax.tree.map(lambda leaf: jnp.moveaxis(leaf, 0, -2), q_values)
        if action_masks.get_mask(obs) is None:
            return q_values
        mask = action_masks.allowed_actions(obs)[..., None]
        return q_values._replace(value=action_masks.mask_outputs(q_values.value, mask))

    return q


def _observation_distribution(space: gymnasium.Space) -> distributions.Distribution:
    """The distribution family of predicted observations."""
    refusal = RlcliError(
        f"a model cannot predict observations of {describe(space)}",
        "use a Box or a discrete space; the wrapper `flatten` converts any to a Box",
    )
    if isinstance(space, gymnasium.spaces.Tuple | gymnasium.spaces.Dict):
        raise refusal
    try:
        return distributions.distribution_for(space)
    except TypeError as error:
        raise refusal from error


def _prediction_network(
    networks: Networks,
    name: str,
    family: distributions.Distribution,
    actions: gymnasium.spaces.Discrete,
    stochastic: bool,
) -> DistributionOffer:
    """The distribution p(·|s, a) predicted by the network `name`.

    For normal distributions without `stochastic` the network predicts only means, and
    the scale is 1. With `stochastic`, scales are at least e⁻⁵.
    """
    known_scale = family.name == "normal" and not stochastic
    size = family.size // 2 if known_scale else family.size
    network = networks(name, functools.partial(action_head, size), action=actions)
    if is_recurrent(network):
        raise RlcliError(
            "a transition model does not support recurrent networks", "remove `memory`"
        )
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


def _add_observation(
    offer: DistributionOffer, shape: tuple[int, ...]
) -> DistributionOffer:
    """The same distribution, with the observation added to the mean.

    The network predicts the change.
    """
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
    """Returns `(parameters[..., size], key) -> next_obs[..., K, ...], probability`."""

    def mode(parameters: Array, key: Key | None) -> tuple[Array, Array]:
        lead = parameters.shape[:-1]
        next_obs = jnp.expand_dims(family.mode(parameters), len(lead))
        return next_obs, jnp.ones((*lead, 1))

    def enumerate_outcomes(parameters: Array, key: Key | None) -> tuple[Array, Array]:
        assert isinstance(space, gymnasium.spaces.Discrete)
        states = int(space.start) + jnp.arange(int(space.n))
        probabilities = jax.nn.softmax(parameters)
        return jnp.broadcast_to(states, probabilities.shape), probabilities

    def sample_outcomes(parameters: Array, key: Key | None) -> tuple[Array, Array]:
        # The same noise for all actions, so that sampling does not change their order.
        noise = family.draw(_default_key(key), samples)
        next_obs = family.sample(parameters[..., None, :], noise)
        return next_obs, jnp.full((*parameters.shape[:-1], samples), 1 / samples)

    if not stochastic:
        return mode
    return (
        enumerate_outcomes
        if isinstance(space, gymnasium.spaces.Discrete)
        else sample_outcomes
    )


def _default_key(key: Key | None) -> Key:
    return jax.random.key(_FIXED_SEED) if key is None else key
