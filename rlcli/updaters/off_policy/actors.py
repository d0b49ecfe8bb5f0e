"""Actors: policies that climb action values, as objectives and backups ask for them.

Whatever the space of actions, what a policy may do is a set of M actions with their
probabilities: all of them where they can be counted, else one that was drawn, whose
probability is one and through which gradients go.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np

from rlcli import spaces
from rlcli.distributions import Distribution
from rlcli.distributions.family import event_size, unflatten_event
from rlcli.distributions.squashed import box_bijector
from rlcli.networks.heads import action_head, distribution_head
from rlcli.networks.predictions import Prediction
from rlcli.policies import ActionOffer, DistributionOffer, Offer, ValuesOffer
from rlcli.types import Array, ArrayTree, Key, Network, Params
from rlcli.updaters.critics import Critic


class ActionChoices(NamedTuple):
    """What a policy may do in each of `[T, B]` states."""

    action: ArrayTree  # `[T, B, *shape]`: the only one; None: all that there are
    probability: Array  # `[T, B, M]`
    log_prob: Array  # `[T, B, M]`: or density; 0 of what leaves nothing to chance
    outputs: Array  # `[T, B, size]`: of the policy's network


class Actor(NamedTuple):
    """A policy to be improved; what it offers is what recipes' policies act upon."""

    network: Network
    # (params, obs, first, key) -> Choice
    choose: Callable[[Params, ArrayTree, Array, Key], ActionChoices]
    # the same of what is bootstrapped from
    choose_target: Callable[[Params, ArrayTree, Array, Key], ActionChoices]
    offers: Mapping[str, Offer]
    family: Distribution | None  # of the network's outputs; None: there is none


def categorical_actor(networks: Callable[..., Network], family: Distribution) -> Actor:
    """π(·|s) over actions that can be counted, by its logits.

    All of them are weighed, and none is drawn: gradients of expectations are exact.
    """
    logits = networks("policy", functools.partial(distribution_head, family))

    def choose(params, obs, first, key):
        del key  # nothing is drawn
        outputs, _ = logits.apply(params, None, obs, (), first)
        log_prob = jax.nn.log_softmax(outputs)
        return ActionChoices(None, jnp.exp(log_prob), log_prob, outputs)

    offers = {
        "distribution": DistributionOffer(logits, family),
        "values": ValuesOffer(logits),
    }
    return Actor(logits, choose, choose, offers, family)


def stochastic_actor(networks: Callable[..., Network], family: Distribution) -> Actor:
    """π(·|s) over numbers, of which one action is drawn, with its gradient."""
    network = networks("policy", functools.partial(distribution_head, family))
    sample = family.differentiable
    if sample is None:
        raise ValueError(
            f"expected samples with gradients, and `{family.name}` has none"
        )

    def choose(params, obs, first, key):
        outputs, _ = network.apply(params, None, obs, (), first)
        noise = jax.tree.map(
            lambda leaf: leaf.reshape((*first.shape, *leaf.shape[1:])),
            family.draw(key, first.size),
        )
        action, log_prob = sample(outputs, noise)
        return ActionChoices(
            action, jnp.ones((*first.shape, 1)), log_prob[..., None], outputs
        )

    def mode(params, key, obs, carry, first):
        outputs, carry = network.apply(params, key, obs, carry, first)
        return family.mode(outputs), carry

    offers = {
        "distribution": DistributionOffer(network, family),
        "action": ActionOffer(Network(network.init, mode, network.initial)),
    }
    return Actor(network, choose, choose, offers, family)


def deterministic_actor(
    networks: Callable[..., Network],
    space: gymnasium.spaces.Box,
    smoothing: Array | float,
    clip: Array | float,
) -> Actor:
    """One action, pressed into the Box: a = μ(s); noise where it is bootstrapped from.

        a′ = clip(μ(s) + h clip(σ ε, −c, c), low, high),  ε ~ N(0, 1)

    σ is `smoothing`, c `clip`, h half the width of the Box (1 where it has none).
    """
    size, shape = event_size(space.shape), space.shape
    low, high = (bound.astype(np.float32).ravel() for bound in spaces.bounds(space))
    half, squash = spaces.half_width(space).ravel(), box_bijector(low, high)
    numbers = networks("policy", functools.partial(action_head, size))

    def flat(params, key, obs, carry, first):
        outputs, carry = numbers.apply(params, key, obs, carry, first)
        return squash.forward(outputs), carry

    def to_choice(entries: Array) -> ActionChoices:
        nothing = jnp.zeros((*entries.shape[:-1], 1))
        return ActionChoices(
            unflatten_event(entries, shape).astype(spaces.dtype(space)),
            nothing + 1,
            nothing,
            entries,
        )

    def choose(params, obs, first, key):
        del key  # it is always the same
        return to_choice(flat(params, None, obs, (), first)[0])

    def follow(params, obs, first, key):
        mean = flat(params, None, obs, (), first)[0]
        noise = smoothing * jax.random.normal(key, mean.shape)
        noisy_mean = mean + half * jnp.clip(noise, -clip, clip)
        return to_choice(jnp.clip(noisy_mean, low, high))

    acting = Network(numbers.init, flat, numbers.initial)
    return Actor(acting, choose, follow, {"action": ActionOffer(acting)}, None)


def evaluate_choices(
    critic: Critic,
    role: str,
    params: Params,
    key: Key | None,
    obs: ArrayTree,
    choice: ActionChoices,
    first: Array,
) -> Prediction:
    """What the critic says of each of the actions, `[C, T, B, M, K]`."""
    if choice.action is None:
        return critic.predict_all_actions(role, params, key, obs, first)
    q = critic.predict_action(role, params, key, obs, choice.action, first)
    return jax.tree.map(lambda leaf: leaf[..., None, :], q)
