"""Policies: how to act, given what a network says of the observation.

Belongs here: exploration and exploitation; the part `policy`.
May import: distributions, and the ground.

A factory's first positional parameter names what the policy acts upon, and an updater
offers it: `values` (one per action), `distribution` (a family and its parameters),
`action` (the action itself), or `model` (what actions lead to). `build` itself offers
`observation`, the space of what is shown, and `gamma`, the tracer's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import gymnasium
import jax

from rlcli.distributions import Distribution
from rlcli.types import Array, ArrayTree, Network, Policy


class ValuesOffer(NamedTuple):
    """Action values to act upon: `network` gives `[..., actions]`."""

    network: Network


class DistributionOffer(NamedTuple):
    """A distribution to act upon: `network` gives its parameters."""

    network: Network
    distribution: Distribution


class ActionOffer(NamedTuple):
    """An action to act upon: `network` gives it, `[..., *shape]` or flat, in a Box.

    `features`, a feed-forward network on the same parameters, gives what noise that
    depends on the state depends on, `[..., features]`; without it that is the
    observation.
    """

    network: Network
    features: Network | None = None


Offer = ValuesOffer | DistributionOffer | ActionOffer


class SearchState(NamedTuple):
    """A state as a model has it, and what there is to be said of it."""

    hidden: ArrayTree  # `[B, ...]`: what the model goes on from
    logits: Array  # `[B, actions]`: how likely each action is to be a good one
    value: Array  # `[B]`


class PlanningModel(NamedTuple):
    """What actions lead to, to plan with."""

    root: Callable[[ArrayTree, ArrayTree], SearchState]  # params, obs[B]
    # (params, hidden[B], action[B]) -> the reward `[B]`, and what follows
    predict: Callable[[ArrayTree, ArrayTree, Array], tuple[Array, SearchState]]
    actions: gymnasium.spaces.Discrete


def single_step_outputs(offer: Offer) -> Callable[..., tuple[ArrayTree, ArrayTree]]:
    """`(params, obs[B], memory, first[B]) -> outputs[B], memory`: one step in time."""
    return single_step(offer.network)


def single_step(network: Network) -> Callable[..., tuple[ArrayTree, ArrayTree]]:
    """A network for one step in time, `[B, ...]` instead of `[T, B, ...]`."""

    def outputs(params, obs, carry, first):
        inputs = jax.tree.map(lambda leaf: leaf[None], (obs, first))
        outputs_batch = network.apply(params, None, inputs[0], carry, inputs[1])
        return jax.tree.map(lambda leaf: leaf[0], outputs_batch)

    return outputs


def policy_from_outputs(
    offer: Offer,
    draw: Callable,
    explore: Callable,
    exploit: Callable,
    log_prob: Callable,
) -> Policy:
    """A policy without a noise process of its own, of what it does with the outputs.

    `explore` and `exploit` are `(outputs[B, ...], noise) -> Decision`.
    """
    outputs = single_step_outputs(offer)

    def deciding(decide: Callable) -> Callable:
        def act(acting, obs, state, first, noise):
            carry, process = state
            values, carry = outputs(acting, obs, carry, first)
            return decide(values, noise), (carry, process)

        return act

    def initial(batch: int) -> ArrayTree:
        return offer.network.initial(batch), ()

    return Policy(initial, draw, deciding(explore), deciding(exploit), log_prob)
