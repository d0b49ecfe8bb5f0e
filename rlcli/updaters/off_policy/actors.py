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
from rlcli.distributions.family import shaped, size_of
from rlcli.distributions.squashed import squashing
from rlcli.networks.heads import action, parameters
from rlcli.networks.predictions import Prediction
from rlcli.policies import Action, Offer, Parameters, Values
from rlcli.types import Array, ArrayTree, Key, Network, Params
from rlcli.updaters.critics import Critic


class Choice(NamedTuple):
    """What a policy may do in each of `[T, B]` states."""

    action: ArrayTree  # `[T, B, *shape]`: the only one; None: all that there are
    probability: Array  # `[T, B, M]`
    log_prob: Array  # `[T, B, M]`: or density; 0 of what leaves nothing to chance
    outputs: Array  # `[T, B, size]`: of the policy's network


class Actor(NamedTuple):
    """A policy to be improved; what it offers is what recipes' policies act upon."""

    network: Network
    # (params, obs, first, key) -> Choice
    choose: Callable[[Params, ArrayTree, Array, Key], Choice]
    # the same of what is bootstrapped from
    follow: Callable[[Params, ArrayTree, Array, Key], Choice]
    offers: Mapping[str, Offer]
    family: Distribution | None  # of the network's outputs; None: there is none


def counted(networks: Callable[..., Network], family: Distribution) -> Actor:
    """π(·|s) over actions that can be counted, by its logits.

    All of them are weighed, and none is drawn: gradients of expectations are exact.
    """
    logits = networks("policy", functools.partial(parameters, family))

    def choose(params, obs, first, key):
        del key  # nothing is drawn
        found, _ = logits.apply(params, None, obs, (), first)
        log_prob = jax.nn.log_softmax(found)
        return Choice(None, jnp.exp(log_prob), log_prob, found)

    offers = {"distribution": Parameters(logits, family), "values": Values(logits)}
    return Actor(logits, choose, choose, offers, family)


def drawn(networks: Callable[..., Network], family: Distribution) -> Actor:
    """π(·|s) over numbers, of which one action is drawn, with its gradient."""
    found = networks("policy", functools.partial(parameters, family))
    sample = family.differentiable
    if sample is None:
        raise ValueError(
            f"expected samples with gradients, and `{family.name}` has none"
        )

    def choose(params, obs, first, key):
        outputs, _ = found.apply(params, None, obs, (), first)
        noise = jax.tree.map(
            lambda leaf: leaf.reshape((*first.shape, *leaf.shape[1:])),
            family.draw(key, first.size),
        )
        chosen, log_prob = sample(outputs, noise)
        return Choice(chosen, jnp.ones((*first.shape, 1)), log_prob[..., None], outputs)

    def mode(params, key, obs, carry, first):
        outputs, carry = found.apply(params, key, obs, carry, first)
        return family.mode(outputs), carry

    offers = {
        "distribution": Parameters(found, family),
        "action": Action(Network(found.init, mode, found.initial)),
    }
    return Actor(found, choose, choose, offers, family)


def deterministic(
    networks: Callable[..., Network],
    space: gymnasium.spaces.Box,
    smoothing: Array | float,
    clip: Array | float,
) -> Actor:
    """One action, pressed into the Box: a = μ(s); noise where it is bootstrapped from.

        a′ = clip(μ(s) + h clip(σ ε, −c, c), low, high),  ε ~ N(0, 1)

    σ is `smoothing`, c `clip`, h half the width of the Box (1 where it has none).
    """
    size, shape = size_of(space.shape), space.shape
    low, high = (each.astype(np.float32).ravel() for each in spaces.bounds(space))
    half, squash = spaces.half_width(space).ravel(), squashing(low, high)
    numbers = networks("policy", functools.partial(action, size))

    def flat(params, key, obs, carry, first):
        found, carry = numbers.apply(params, key, obs, carry, first)
        return squash.forward(found), carry

    def chosen(entries: Array) -> Choice:
        nothing = jnp.zeros((*entries.shape[:-1], 1))
        return Choice(
            shaped(entries, shape).astype(spaces.dtype(space)),
            nothing + 1,
            nothing,
            entries,
        )

    def choose(params, obs, first, key):
        del key  # it is always the same
        return chosen(flat(params, None, obs, (), first)[0])

    def follow(params, obs, first, key):
        mean = flat(params, None, obs, (), first)[0]
        noise = smoothing * jax.random.normal(key, mean.shape)
        moved = mean + half * jnp.clip(noise, -clip, clip)
        return chosen(jnp.clip(moved, low, high))

    acting = Network(numbers.init, flat, numbers.initial)
    return Actor(acting, choose, follow, {"action": Action(acting)}, None)


def valued(
    critic: Critic,
    role: str,
    params: Params,
    key: Key | None,
    obs: ArrayTree,
    choice: Choice,
    first: Array,
) -> Prediction:
    """What the critic says of each of the actions, `[C, T, B, M, K]`."""
    if choice.action is None:
        return critic.every(role, params, key, obs, first)
    found = critic.taken(role, params, key, obs, choice.action, first)
    return jax.tree.map(lambda leaf: leaf[..., None, :], found)
