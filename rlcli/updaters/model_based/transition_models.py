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
from rlcli.distributions.normals import join_parameters, split_parameters
from rlcli.errors import RlcliError
from rlcli.networks.heads import Role, action_head, state_value_head
from rlcli.networks.memory import is_recurrent
from rlcli.networks.predictions import Particles, Transform
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
    family, scalar = _observation_distribution(observation), distributions.normal(())
    make = functools.partial(_prediction_network, networks, actions, stochastic)
    functions = {
        "transition": make("transition", family, predicts_change=True),
        "reward": make("reward", scalar),
        "continuation": networks("continuation", state_value_head, action=actions),
    }

    def outputs(
        params: Params, obs: ArrayTree, action: Array, first: Array
    ) -> dict[str, Array]:
        """The outputs of each function."""
        return {
            name: network.apply(params, None, (obs, action), (), first)[0]
            for name, network in functions.items()
        }

    def init(key: Key) -> Params:
        groups = (network.init(key) for network in functions.values())
        return {name: params for group in groups for name, params in group.items()}

    def outcomes(
        params: Params, key: Key | None, obs: ArrayTree, action: Array, first: Array
    ) -> Outcomes:
        predicted = outputs(params, obs, action, first)
        next_obs, probability = _possible_states(
            family,
            observation,
            predicted["transition"],
            key,
            samples if stochastic else None,
        )
        reward_mean, discount = (
            jnp.broadcast_to(leaf[..., None], probability.shape)
            for leaf in (
                scalar.mean(predicted["reward"]),
                gamma * jax.nn.sigmoid(predicted["continuation"]),
            )
        )
        return Outcomes(reward_mean, discount, next_obs, probability)

    def errors(params: Params, rows: Transition) -> dict[str, Array]:
        predicted = outputs(params, rows.obs, rows.action, rows.first)
        transition_loss = -family.log_prob(predicted["transition"], rows.next_obs)
        is_continued = rows.discount > 0
        return {
            "transition": jnp.where(is_continued, transition_loss, 0.0),
            "reward": -scalar.log_prob(predicted["reward"], rows.reward),
            "continuation": optax.sigmoid_binary_cross_entropy(
                predicted["continuation"], is_continued
            ),
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
        bootstrap_value = prediction.particles(transform).min_over_critics()
        reward, discount = after.reward[..., None], after.discount[..., None]
        outcome_value = bootstrap_value._replace(
            value=reward + discount * bootstrap_value.value
        )
        q_values = outcome_value.mix(after.probability)
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
    if isinstance(space, gymnasium.spaces.Box) and space.dtype.kind == "f":
        return distributions.normal(space.shape, space.dtype)  # also of constants
    try:
        return distributions.distribution_for(space)
    except TypeError as error:
        raise refusal from error


def _prediction_network(
    networks: Networks,
    actions: gymnasium.spaces.Discrete,
    stochastic: bool,
    name: str,
    family: distributions.Distribution,
    predicts_change: bool = False,
) -> Network:
    """The network `name`, whose outputs are the parameters of p(·|s, a).

    For normal distributions without `stochastic` it predicts only means, and the scale
    is 1. With `stochastic`, scales are at least e⁻⁵. With `predicts_change` the mean of
    a normal distribution is the observation plus the predicted change.
    """
    is_normal = family.name == "normal"
    known_scale = is_normal and not stochastic
    size = family.size // 2 if known_scale else family.size
    network = networks(name, functools.partial(action_head, size), action=actions)
    if is_recurrent(network):
        raise RlcliError(
            "a transition model does not support recurrent networks", "remove `memory`"
        )
    if not is_normal:
        return network

    def apply(params, key, pair, carry, first):
        outputs, carry = network.apply(params, key, pair, carry, first)
        if known_scale:
            mean, log_scale = outputs, jnp.zeros_like(outputs)
        else:
            mean, log_scale = split_parameters(outputs)
            log_scale = MIN_LOG_SCALE + jax.nn.softplus(log_scale - MIN_LOG_SCALE)
        if predicts_change:
            mean = pair[0].reshape(mean.shape) + mean
        return join_parameters(mean, log_scale), carry

    return network._replace(apply=apply)


def _possible_states(
    family: distributions.Distribution,
    space: gymnasium.Space,
    parameters: Array,
    key: Key | None,
    samples: int | None,
) -> tuple[Array, Array]:
    """K next observations, `[..., K, *shape]`, and their probabilities, `[..., K]`.

    The mode if `samples` is None; else all states of a Discrete space, or samples.
    """
    lead = parameters.shape[:-1]
    if samples is None:
        next_obs = jnp.expand_dims(family.mode(parameters), len(lead))
        return next_obs, jnp.ones((*lead, 1))
    if isinstance(space, gymnasium.spaces.Discrete):
        states = int(space.start) + jnp.arange(int(space.n))
        probabilities = jax.nn.softmax(parameters)
        return jnp.broadcast_to(states, probabilities.shape), probabilities
    # The same noise for all actions, so that sampling does not change their order.
    noise = family.draw(_default_key(key), samples)
    next_obs = family.sample(parameters[..., None, :], noise)
    return next_obs, jnp.full((*lead, samples), 1 / samples)


def _default_key(key: Key | None) -> Key:
    return jax.random.key(_FIXED_SEED) if key is None else key
