"""Kinds: tests for the kind of a policy or function.

A policy is an instance of `rlcli.types.Policy`. Other functions are a `Network`, or a
record with a field `network`, such as the result of `rlcli.q_function`. The kind of a
network is the name of its parameter group, which is the name of the function in a
recipe. A shared torso has the group `shared` (see `rlcli.types.Network`).

    q, critic      action values        (with a number suffix for one of several)
    value          state values
    transition     the next observation: a transition model
    reward         the reward: a reward function
"""

from collections.abc import Mapping
from typing import Any

import jax

from rlcli.policies import ValuesOffer
from rlcli.types import Network, Policy

_SHARED = "shared"


def is_policy(obj: Any) -> bool:
    """Whether an object is a policy."""
    return isinstance(obj, Policy)


def is_qfunction(obj: Any) -> bool:
    """Whether an object is an action-value function.

    That is a network named `q` or `critic`, or a `ValuesOffer`.
    """
    return isinstance(obj, ValuesOffer) or _is_named(obj, "q", "critic")


def is_vfunction(obj: Any) -> bool:
    """Whether an object is a state-value function: a network named `value`."""
    return _is_named(obj, "value")


def is_transition_model(obj: Any) -> bool:
    """Whether an object is a transition model: a network named `transition`."""
    return _is_named(obj, "transition")


def is_reward_function(obj: Any) -> bool:
    """Whether an object is a reward function: a network named `reward`."""
    return _is_named(obj, "reward")


def is_stochastic(obj: Any) -> bool:
    """Whether an object returns a distribution.

    That is a policy, or a record with `network` and `distribution`, such as
    `rlcli.policies.Parameters`.
    """
    if is_policy(obj):
        return True
    return _network(obj) is not None and hasattr(obj, "distribution")


def _is_named(obj: Any, *names: str) -> bool:
    # Without their numbers: `critic_2` is a `critic`.
    found = {name.rstrip("0123456789").rstrip("_") for name in _function_names(obj)}
    return bool(found) and found <= {*names}


def _function_names(obj: Any) -> set[str]:
    """The names of the parameter groups; empty if there is no network."""
    network = _network(obj)
    if network is None:
        return set()
    params = jax.eval_shape(network.init, jax.random.key(0))
    return {*params} - {_SHARED} if isinstance(params, Mapping) else set()


def _network(obj: Any) -> Network | None:
    network = obj if isinstance(obj, Network) else getattr(obj, "network", None)
    return network if isinstance(network, Network) else None
