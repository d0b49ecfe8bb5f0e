"""Policies that add noise to the action of a network, in a Box."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np

from rlcli import spaces
from rlcli.distributions.family import event_size, flatten_event, unflatten_event
from rlcli.errors import RlcliError
from rlcli.policies import ActionOffer, single_step, single_step_outputs
from rlcli.registry import register
from rlcli.types import (
    Array,
    ArrayTree,
    Count,
    Decision,
    Key,
    NonNegative,
    Policy,
    Positive,
)

_MIN_DEVIATION = 1e-6  # a deviation of 0 has no density: this one stands for it


class _NoiseProcess(NamedTuple):
    """What is added to an action, in half-widths of its Box."""

    draw: Callable[[Key, int], Array]
    initial: Callable[[int], ArrayTree]  # batch -> the state of the process
    # (process, noise, first, features) -> process, what is added `[B, entries]`
    step: Callable[..., tuple[ArrayTree, Array]]
    deviation: Array  # of what is added, seen on its own


@register("policy")
def deterministic(
    action: ActionOffer,
    space: gymnasium.spaces.Box,
    *,
    noise: Literal["gaussian", "ornstein_uhlenbeck", "state_dependent"] = "gaussian",
    scale: NonNegative = 0.1,
) -> Policy:
    """The action of the network, and while exploring noise, clipped to the Box.

    Short for the policies `gaussian_noise`, `ornstein_uhlenbeck` and
    `state_dependent`, which have options of their own.
    """
    noisy = {
        "gaussian": gaussian_noise,
        "ornstein_uhlenbeck": ornstein_uhlenbeck,
        "state_dependent": state_dependent,
    }
    return noisy[noise](action, space, scale=scale)


@register("policy")
def gaussian_noise(
    action: ActionOffer, space: gymnasium.spaces.Box, *, scale: NonNegative = 0.1
) -> Policy:
    """The action of the network and, while exploring, noise that has no memory.

        a = clip(μ(s) + h σ ε, low, high),  ε ~ N(0, 1)

    σ is `scale`, h half the width of the Box (1 where it has none), as in TD3
    (Fujimoto et al., 2018, https://arxiv.org/abs/1802.09477). `log_prob` is exact:
    a density within the bounds, at a bound the probability of what was clipped to it.
    """

    def step(process, noise, first, features):
        del first, features
        return process, scale * noise

    noise = _NoiseProcess(_normal_noise(space), lambda batch: (), step, scale)
    return _noisy_policy(action, space, noise)


@register("policy")
def ornstein_uhlenbeck(
    action: ActionOffer,
    space: gymnasium.spaces.Box,
    *,
    theta: Positive = 0.15,
    scale: NonNegative = 0.2,
    dt: Positive = 1.0,
) -> Policy:
    """The action of the network and, while exploring, noise that drifts.

        dx = −θ x dt + σ dW            a = clip(μ(s) + h x, low, high)
        x′ = e^(−θ dt) x + σ √((1 − e^(−2 θ dt)) / 2θ) ε,  ε ~ N(0, 1)

    The process of Ornstein & Uhlenbeck (1930), as DDPG explores (Lillicrap et al.,
    2016, https://arxiv.org/abs/1509.02971), in its exact steps for any `dt`: its
    correlation over k steps is e^(−θ k dt), its deviation comes to σ/√2θ. σ is
    `scale`, h half the width of the Box (1 where it has none); x is 0 before the first
    step of an episode. `log_prob` does not know x: it is that of a process that has
    gone on for long.
    """
    entries = event_size(space.shape)
    decay = jnp.exp(-theta * dt)
    deviation = scale / jnp.sqrt(2 * theta)
    spread = deviation * jnp.sqrt(1 - decay**2)

    def step(process, noise, first, features):
        del features
        process = decay * jnp.where(first[:, None], 0.0, process) + spread * noise
        return process, process

    def initial(batch: int) -> Array:
        return jnp.zeros((batch, entries))

    noise = _NoiseProcess(_normal_noise(space), initial, step, deviation)
    return _noisy_policy(action, space, noise)


def _normal_noise(space: gymnasium.spaces.Box) -> Callable[[Key, int], Array]:
    """Draws a standard normal number for each entry of an action."""
    entries = event_size(space.shape)
    return lambda key, batch: jax.random.normal(key, (batch, entries))


class _MatrixState(NamedTuple):
    """The noise matrix of each environment."""

    seed: Array  # uint32 [B, 2]: what it is drawn from
    age: Array  # int32 [B]: steps it was used for


@register("policy")
def state_dependent(
    action: ActionOffer,
    space: gymnasium.spaces.Box,
    *,
    scale: NonNegative = 0.1,
    every: Count = 8,
) -> Policy:
    """The action of the network and, while exploring, a random function of the state.

        a = clip(μ(s) + h W z(s), low, high),  Wᵢⱼ ~ N(0, σ²)
        z(s) = (1, f(s)) / ‖(1, f(s))‖

    Generalized state-dependent exploration (Raffin et al., 2021,
    https://arxiv.org/abs/2005.05719): the same state gets the same noise until W is
    drawn anew, every so many steps and with each episode. f are the features that the
    updater offers, or the observation; their length is taken out, so that σ, `scale`,
    is the deviation of the noise whatever they are, in units of h, half the width of
    the Box (1 where it has none). `log_prob` does not know W: it is that of a new one.
    """
    entries = event_size(space.shape)

    def draw(key: Key, batch: int) -> Array:
        return jax.random.bits(key, (batch, 2), jnp.uint32)

    def step(process, noise, first, features):
        anew = first | (process.age >= every)
        seed = jnp.where(anew[:, None], noise, process.seed)
        age = jnp.where(anew, 0, process.age) + 1
        ones = jnp.ones((features.shape[0], 1))
        z = jnp.concatenate([ones, features], axis=-1)
        z = z / jnp.linalg.norm(z, axis=-1, keepdims=True)

        def add_noise(seed: Array, z: Array) -> Array:
            key = jax.random.wrap_key_data(seed, impl="threefry2x32")
            return jax.random.normal(key, (entries, z.shape[-1])) @ z

        return _MatrixState(seed, age), scale * jax.vmap(add_noise)(seed, z)

    def initial(batch: int) -> _MatrixState:
        age = jnp.full(batch, every, jnp.int32)
        return _MatrixState(jnp.zeros((batch, 2), jnp.uint32), age)

    return _noisy_policy(action, space, _NoiseProcess(draw, initial, step, scale))


def _noisy_policy(
    action: ActionOffer, space: gymnasium.spaces.Box, noise: _NoiseProcess
) -> Policy:
    """The policy that adds this noise, in half-widths of the Box."""
    if not isinstance(space, gymnasium.spaces.Box) or space.dtype.kind != "f":
        raise RlcliError(
            f"noise cannot be added to actions of {spaces.describe(space)}",
            "it takes a Box of floats",
        )
    shape, dtype = space.shape, spaces.dtype(space)
    low, high = (bound.astype(np.float32).ravel() for bound in spaces.bounds(space))
    half = spaces.half_width(space).ravel()
    outputs, features = single_step_outputs(action), _feature_function(action)

    def flat(outputs: Array, like: Array) -> Array:
        return outputs.reshape((*like.shape[: like.ndim - len(shape)], len(low)))

    def to_action(entries: Array) -> Array:
        return unflatten_event(jnp.clip(entries, low, high), shape).astype(dtype)

    def log_prob(outputs: Array, action: Array) -> Array:
        mean = flat(outputs, action)
        flat_action = flatten_event(jnp.asarray(action).astype(jnp.float32), shape)
        deviation = half * jnp.maximum(noise.deviation, _MIN_DEVIATION)
        z = (flat_action - mean) / deviation
        density = jax.scipy.stats.norm.logpdf(z) - jnp.log(deviation)
        log_lower, log_upper = (jax.scipy.stats.norm.logcdf(value) for value in (z, -z))
        upper_or_inside = jnp.where(flat_action >= high, log_upper, density)
        return jnp.sum(
            jnp.where(flat_action <= low, log_lower, upper_or_inside), axis=-1
        )

    def explore(acting, obs, state, first, sample_noise):
        carry, process = state
        mean, carry = outputs(acting, obs, carry, first)
        feature_values = features(acting, obs, first)
        process, noise_added = noise.step(process, sample_noise, first, feature_values)
        action = to_action(mean.reshape(noise_added.shape) + half * noise_added)
        return Decision(action, {"log_prob": log_prob(mean, action)}), (carry, process)

    def exploit(acting, obs, state, first, sample_noise):
        del sample_noise
        carry, process = state
        mean, carry = outputs(acting, obs, carry, first)
        action = to_action(mean.reshape((first.shape[0], len(low))))
        sure = {"log_prob": jnp.zeros(first.shape)}
        return Decision(action, sure), (carry, process)

    def initial(batch: int) -> ArrayTree:
        return action.network.initial(batch), noise.initial(batch)

    return Policy(initial, noise.draw, explore, exploit, log_prob)


def _feature_function(
    action: ActionOffer,
) -> Callable[[ArrayTree, ArrayTree, Array], Array]:
    """`(acting, obs[B], first[B]) -> [B, features]`, float32."""

    def observe_features(acting, obs, first):
        del acting
        leaves = [leaf.reshape((len(first), -1)) for leaf in jax.tree.leaves(obs)]
        return jnp.concatenate([leaf.astype(jnp.float32) for leaf in leaves], axis=-1)

    if action.features is None:
        return observe_features
    outputs = single_step(action.features)
    return lambda acting, obs, first: outputs(acting, obs, (), first)[0]
