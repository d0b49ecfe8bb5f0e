"""Policies: how to act, given what a network says of the observation.

A factory's first positional parameter names what the policy acts upon, and an updater
offers it: `values` (one per action) or `distribution` (a family and its parameters).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

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
        found, memory = offer.network.apply(
            params, None, obs[None], memory, first[None]
        )
        return found[0], memory

    return outputs
