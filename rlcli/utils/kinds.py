"""Kinds: what an object of rlcli's is.

A policy is the record `rlcli.types.Policy`. Other functions are a `Network`, or a
record with one as `network` (`rlcli.q_function` makes such a one). A network does not
say what it estimates, but its parameters do: they stand under the name that the
function has in a recipe, beside `shared` if there is a shared torso (see
`rlcli.types.Network`). So the name tells:

    q, critic      action values        (with a number behind it for one of several)
    value          state values
    transition     the next observation: a transition model
    reward         the reward: a reward function
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax

from rlcli.policies import ValuesOffer
from rlcli.types import Network, Policy

_SHARED = "shared"


def is_policy(obj: Any) -> bool:
    """Whether it is a policy, the record that explores and exploits."""
    return isinstance(obj, Policy)


def is_qfunction(obj: Any) -> bool:
    """Whether it gives action values: named `q` or `critic`, or offered as
    `ValuesOffer`.
    """
    return isinstance(obj, ValuesOffer) or _is_named(obj, "q", "critic")


def is_vfunction(obj: Any) -> bool:
    """Whether it gives state values: a network named `value`, or a record with one."""
    return _is_named(obj, "value")


def is_transition_model(obj: Any) -> bool:
    """Whether it foretells the next observation: a network named `transition`."""
    return _is_named(obj, "transition")


def is_reward_function(obj: Any) -> bool:
    """Whether it foretells the reward: a network named `reward`."""
    return _is_named(obj, "reward")


def is_stochastic(obj: Any) -> bool:
    """Whether it gives a distribution: a policy, or a network with a `distribution`.

    The latter is a record with both, such as `rlcli.policies.Parameters`.
    """
    if is_policy(obj):
        return True
    return _network(obj) is not None and hasattr(obj, "distribution")


def _is_named(obj: Any, *names: str) -> bool:
    names_found = {_strip_number(name) for name in _function_names(obj)}
    return bool(names_found) and names_found <= {*names}


def _function_names(obj: Any) -> set[str]:
    """The names that its parameters stand under; none if it is no network."""
    network = _network(obj)
    if network is None:
        return set()
    params = jax.eval_shape(network.init, jax.random.key(0))
    return {*params} - {_SHARED} if isinstance(params, Mapping) else set()


def _network(obj: Any) -> Network | None:
    network = obj if isinstance(obj, Network) else getattr(obj, "network", None)
    return network if isinstance(network, Network) else None


def _strip_number(name: str) -> str:
    """A name without its number: `critic_2` is a `critic`."""
    return name.rstrip("0123456789").rstrip("_")
