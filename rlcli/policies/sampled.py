"""Policies that sample their action."""

from __future__ import annotations

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np

from rlcli import spaces
from rlcli.policies import Parameters, outputs_of
from rlcli.registry import register
from rlcli.types import Array, ArrayTree, Decision, Key, Policy


@register("policy")
def sampled(distribution: Parameters) -> Policy:
    """An action drawn from the distribution; its mode for evaluation."""
    family = distribution.distribution
    outputs = outputs_of(distribution)

    def explore(acting, obs, state, first, noise):
        memory, process = state
        parameters, memory = outputs(acting, obs, memory, first)
        action = family.sample(parameters, noise)
        log_prob = family.log_prob(parameters, action)
        return Decision(action, {"log_prob": log_prob}), (memory, process)

    def exploit(acting, obs, state, first, noise):
        del noise
        memory, process = state
        parameters, memory = outputs(acting, obs, memory, first)
        action = family.mode(parameters)
        log_prob = family.log_prob(parameters, action)
        return Decision(action, {"log_prob": log_prob}), (memory, process)

    def initial(batch: int) -> ArrayTree:
        return distribution.network.initial(batch), ()

    return Policy(initial, family.draw, explore, exploit, family.log_prob)


@register("policy")
def random(space: gymnasium.Space) -> Policy:
    """Any action of the space, whatever the observation."""

    def draw(key: Key, batch: int) -> Array:
        sample = jax.vmap(lambda each: spaces.sample(space, each))
        return sample(jax.random.split(key, batch))

    def log_prob(outputs: ArrayTree, action: Array) -> Array:
        del outputs
        return jnp.full(action.shape[: action.ndim - len(space.shape or ())], density)

    density = _log_density(space)

    def act(acting, obs, state, first, noise):
        del acting, obs, first
        return Decision(noise, {"log_prob": log_prob((), noise)}), state

    return Policy(lambda batch: ((), ()), draw, act, act, log_prob)


def _log_density(space: gymnasium.Space) -> float:
    """The log-density of `spaces.sample`; that of an unbounded Box counts as 0."""
    box = isinstance(space, gymnasium.spaces.Box)
    if box and not space.is_bounded():
        return 0.0
    low, high = (each.astype(np.float64) for each in spaces.bounds(space))
    counted = not np.issubdtype(spaces.dtype(space), np.floating)
    return -float(np.sum(np.log(high - low + counted)))  # width, or how many there are
