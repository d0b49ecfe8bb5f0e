"""Policies: how to act, given what a network says of the observation.

A factory's first positional parameter names what the policy acts upon, and an updater
offers it: `values` (one per action) or `distribution` (a family and its parameters).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax

from rlcli.distributions import Distribution
from rlcli.types import ArrayTree, Network


class Values(NamedTuple):
    """Action values to act upon: `network` gives `[..., actions]`."""

    network: Network


class Parameters(NamedTuple):
    """A distribution to act upon: `network` gives its parameters."""

    network: Network
    distribution: Distribution


Offer = Values | Parameters


def outputs_of(offer: Offer) -> Callable[..., tuple[ArrayTree, ArrayTree]]:
    """`(params, obs[B], memory, first[B]) -> outputs[B], memory`: one step in time."""

    def outputs(params, obs, memory, first):
        inputs = jax.tree.map(lambda leaf: leaf[None], (obs, first))
        found = offer.network.apply(params, None, inputs[0], memory, inputs[1])
        return jax.tree.map(lambda leaf: leaf[0], found)

    return outputs
