"""Policies that add exploration noise to the action of a network, in a Box."""

import math
from collections.abc import Callable
from typing import Literal, NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int32, UInt32

from rlcli import spaces
from rlcli.distributions.family import Event
from rlcli.errors import RlcliError
from rlcli.policies import ActionOffer, single_step
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

_MIN_DEVIATION = 1e-6  # replaces a standard deviation of 0, which has no density


class _NoiseProcess(NamedTuple):
    """A noise process added to the action."""

    draw: Callable[[Key, int], Array]  # (key, batch) -> noise
    initial: Callable[[int], ArrayTree]  # batch -> the state of the process
    # (process, noise, first, features) -> process, action noise
    step: Callable[..., tuple[ArrayTree, Float[Array, "B entries"]]]
    deviation: (
        Float[Array, ""] | float
    )  # marginal standard deviation of the action noise


@register("policy")
def deterministic(
    action: ActionOffer,
    space: gymnasium.spaces.Box,
    *,
    noise: Literal["gaussian", "ornstein_uhlenbeck", "state_dependent"] = "gaussian",
    scale: NonNegative = 0.1,
) -> Policy:
    """Deterministic policy with exploration noise, clipped to the Box.

    A shorthand for the policies `gaussian_noise`, `ornstein_uhlenbeck` and
    `state_dependent`, which have further options.
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
    """Deterministic policy with Gaussian exploration noise.

        a = clip(μ(s) + σ ε, low, high),  ε ~ N(0, 1)

    σ is `scale`, in half-widths of the Box, as in TD3 (Fujimoto et al., 2018,
    https://arxiv.org/abs/1802.09477). `log_prob` is exact: a density within the bounds,
    the probability of clipping at a bound.
    """

    def step(process, noise, first, features):
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
    """Deterministic policy with Ornstein-Uhlenbeck exploration noise.

        dx = −θ x dt + σ dW            a = clip(μ(s) + x, low, high)
        x′ = e^(−θ dt) x + σ √((1 − e^(−2 θ dt)) / 2θ) ε,  ε ~ N(0, 1)

    The process of Ornstein & Uhlenbeck (1930), as in DDPG (Lillicrap et al., 2016,
    https://arxiv.org/abs/1509.02971), with the exact transition for any `dt`: the
    correlation over k steps is e^(−θ k dt), the stationary standard deviation σ/√2θ.
    σ is `scale`, in half-widths of the Box. x is 0 before the first step of an episode.
    `log_prob` does not condition on x: it uses the stationary distribution.
    """
    entries = Event(space.shape).size
    decay = jnp.exp(-theta * dt)
    deviation = scale / jnp.sqrt(2 * theta)
    spread = deviation * jnp.sqrt(1 - decay**2)

    def step(process, noise, first, features):
        process = decay * jnp.where(first[:, None], 0.0, process) + spread * noise
        return process, process

    def initial(batch: int) -> Float[Array, "{batch} entries"]:
        return jnp.zeros((batch, entries))

    noise = _NoiseProcess(_normal_noise(space), initial, step, deviation)
    return _noisy_policy(action, space, noise)


def _normal_noise(space: gymnasium.spaces.Box) -> Callable[[Key, int], Array]:
    """Returns a function that draws standard normal noise for each action entry."""
    entries = Event(space.shape).size
    return lambda key, batch: jax.random.normal(key, (batch, entries))


class _MatrixState(NamedTuple):
    """The noise matrix of each environment, stored as its seed."""

    seed: UInt32[Array, "B 2"]  # generates the matrix
    age: Int32[Array, "B"]  # steps since the matrix was sampled


@register("policy")
def state_dependent(
    action: ActionOffer,
    space: gymnasium.spaces.Box,
    *,
    scale: NonNegative = 0.1,
    every: Count = 8,
) -> Policy:
    """Generalized state-dependent exploration (gSDE).

        a = clip(μ(s) + W z(s), low, high),  Wᵢⱼ ~ N(0, σ²)
        z(s) = (1, f(s)) / ‖(1, f(s))‖

    (Raffin et al., 2021, https://arxiv.org/abs/2005.05719) The noise is a function of
    the state until W is resampled, after `every` steps and at the start of each
    episode. f are the features that the updater offers, or else the observation. They
    are normalized, so that σ, `scale`, is the standard deviation of the noise, in
    half-widths of the Box. `log_prob` does not condition on W: it uses the distribution
    over a newly sampled W.
    """
    entries = Event(space.shape).size

    def draw(key: Key, batch: int) -> UInt32[Array, "{batch} 2"]:
        return jax.random.bits(key, (batch, 2), jnp.uint32)

    def step(process, noise, first, features):
        resample = first | (process.age >= every)
        seed = jnp.where(resample[:, None], noise, process.seed)
        age = jnp.where(resample, 0, process.age) + 1
        ones = jnp.ones((features.shape[0], 1))
        z = jnp.concatenate([ones, features], axis=-1)
        z = z / jnp.linalg.norm(z, axis=-1, keepdims=True)

        def add_noise(
            seed: UInt32[jax.Array, "2"], z: Float[Array, "F"]
        ) -> Float[Array, "entries"]:
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
    """Returns the policy that adds the noise process to the action of the network."""
    if not isinstance(space, gymnasium.spaces.Box) or space.dtype.kind != "f":
        raise RlcliError(
            f"noise cannot be added to actions of {spaces.describe(space)}",
            "use an environment whose action space is a Box of floats",
        )
    shape, dtype, event = space.shape, spaces.dtype(space), Event(space.shape)
    low, high = (bound.astype(np.float32).ravel() for bound in spaces.bounds(space))
    outputs, features = single_step(action.network), _feature_function(action)

    def flatten_outputs(outputs: Array, like: Array) -> Float[Array, "*batch entries"]:
        return outputs.reshape((*like.shape[: like.ndim - len(shape)], len(low)))

    def to_action(entries: Float[Array, "*batch entries"]) -> Array:
        return event.unflatten(jnp.clip(entries, low, high)).astype(dtype)

    def log_prob(outputs: Array, action: Array) -> Float[Array, "..."]:
        mean = flatten_outputs(outputs, action)
        flat_action = event.flatten(jnp.asarray(action).astype(jnp.float32))
        deviation = jnp.maximum(noise.deviation, _MIN_DEVIATION)
        z = (flat_action - mean) / deviation
        density = jax.scipy.stats.norm.logpdf(z) - jnp.log(deviation)
        log_lower, log_upper = (jax.scipy.stats.norm.logcdf(value) for value in (z, -z))
        upper_or_inside = jnp.where(flat_action >= high, log_upper, density)
        entries = jnp.where(flat_action <= low, log_lower, upper_or_inside)
        # An entry with equal bounds is clipped to them with probability 1.
        return jnp.sum(jnp.where(low == high, 0.0, entries), axis=-1)

    def explore(acting, obs, state, first, sample_noise):
        carry, process = state
        mean, carry = outputs(acting, obs, carry, first)
        feature_values = features(acting, obs, first)
        process, noise_added = noise.step(process, sample_noise, first, feature_values)
        action = to_action(mean.reshape(noise_added.shape) + noise_added)
        return Decision(action, {"log_prob": log_prob(mean, action)}), (carry, process)

    def exploit(acting, obs, state, first, sample_noise):
        carry, process = state
        mean, carry = outputs(acting, obs, carry, first)
        action = to_action(mean.reshape((first.shape[0], len(low))))
        extras = {"log_prob": jnp.zeros(first.shape)}
        return Decision(action, extras), (carry, process)

    def initial(batch: int) -> ArrayTree:
        return action.network.initial(batch), noise.initial(batch)

    return Policy(initial, noise.draw, explore, exploit, log_prob)


def _feature_function(
    action: ActionOffer,
) -> Callable[[ArrayTree, ArrayTree, Bool[Array, "B"]], Float[Array, "B F"]]:
    """Returns `(acting, obs, first) -> features`."""

    def observe_features(acting, obs, first):
        leaves = [
            leaf.reshape((len(first), math.prod(leaf.shape[1:]))).astype(jnp.float32)
            for leaf in jax.tree.leaves(obs)
        ]
        return jnp.concatenate(leaves, axis=-1)

    if action.features is None:
        return observe_features
    outputs = single_step(action.features)
    return lambda acting, obs, first: outputs(acting, obs, (), first)[0]
