"""A plain JAX loop of PPO on CartPole, without any generality.

The reference of `benchmarks.ppo`: vectorized environments with a time limit, noise
drawn once per unroll, generalized advantage estimation, shuffled minibatches, separate
networks for policy and value, Adam with a clipped gradient, running returns.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import haiku as hk
import jax
import jax.numpy as jnp
import optax

from benchmarks import plain_dqn

GAMMA, LAMBDA, CLIP, ENTROPY = 0.99, 0.95, 0.2, 0.01


class Sizes(NamedTuple):
    """The sizes of a run."""

    num_envs: int = 4
    unroll: int = 128
    epochs: int = 4
    minibatches: int = 4
    layers: tuple[int, ...] = (64, 64)


class Row(NamedTuple):
    """A step of all environments."""

    obs: jax.Array
    action: jax.Array
    log_prob: jax.Array
    value: jax.Array
    discount: jax.Array
    last: jax.Array
    next_obs: jax.Array


def make(sizes: Sizes) -> tuple[Callable[[int], Any], Callable[[Any, int], Any]]:
    """`begin(seed)` and the compiled `advance(state, iterations)`."""
    policy = _network(sizes.layers, 2)
    value = _network(sizes.layers, 1)
    optimizer = optax.chain(optax.clip_by_global_norm(0.5), optax.adam(2.5e-3))
    rows = sizes.unroll * sizes.num_envs

    def begin(seed: int) -> dict[str, Any]:
        policy_key, value_key, env_key, key = jax.random.split(jax.random.key(seed), 4)
        obs = jnp.zeros((1, 4))
        params = policy.init(policy_key, obs), value.init(value_key, obs)
        shape = (sizes.num_envs, 4)
        return {
            "params": params,
            "optimizer": optimizer.init(params),
            "obs": jax.random.uniform(env_key, shape, minval=-0.05, maxval=0.05),
            "elapsed": jnp.zeros(sizes.num_envs, jnp.int32),
            "return": jnp.zeros(sizes.num_envs),
            "average": jnp.float32(0),
            "key": key,
            "iteration": jnp.int32(0),
        }

    def step(params: Any, carry: tuple, noise: tuple) -> tuple[tuple, Row]:
        obs, elapsed, running, average = carry
        reset_obs, gumbel = noise
        logits = policy.apply(params[0], obs)
        action = jnp.argmax(logits + gumbel, -1)
        log_prob = _log_prob(logits, action)
        next_obs, fallen = jax.vmap(plain_dqn.physics)(obs, action)
        elapsed = elapsed + 1
        last = fallen | (elapsed >= plain_dqn.LIMIT)
        running = running + 1
        ended = jnp.sum(last)
        mean = jnp.sum(jnp.where(last, running, 0)) / jnp.maximum(ended, 1)
        average = jnp.where(ended > 0, 0.9 * average + 0.1 * mean, average)
        v = value.apply(params[1], obs)[:, 0]
        row = Row(obs, action, log_prob, v, 1.0 - fallen, last, next_obs)
        obs = jnp.where(last[:, None], reset_obs, next_obs)
        carry = (
            obs,
            jnp.where(last, 0, elapsed),
            jnp.where(last, 0, running),
            average,
        )
        return carry, row

    def advantages(params: Any, unroll: Row) -> jax.Array:
        next_value = value.apply(params[1], unroll.next_obs)[..., 0]
        delta = 1.0 + GAMMA * unroll.discount * next_value - unroll.value
        decay = GAMMA * LAMBDA * jnp.where(unroll.last, 0.0, 1.0)

        def accumulate(following: jax.Array, row: tuple) -> tuple:
            total = row[0] + row[1] * following
            return total, total

        zero = jnp.zeros(sizes.num_envs)
        return jax.lax.scan(accumulate, zero, (delta, decay), reverse=True)[1]

    def loss(params: Any, batch: tuple) -> jax.Array:
        row, advantage, target = batch
        logits = policy.apply(params[0], row.obs)
        ratio = jnp.exp(_log_prob(logits, row.action) - row.log_prob)
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        clipped = jnp.clip(ratio, 1 - CLIP, 1 + CLIP)
        gain = jnp.minimum(ratio * advantage, clipped * advantage).mean()
        log_probs = jax.nn.log_softmax(logits)
        entropy = -jnp.sum(jnp.exp(log_probs) * log_probs, -1).mean()
        error = value.apply(params[1], row.obs)[:, 0] - target
        return -gain + 0.25 * jnp.mean(error**2) - ENTROPY * entropy

    def learn(carry: tuple, batch: tuple) -> tuple:
        params, moments = carry
        updates, moments = optimizer.update(jax.grad(loss)(params, batch), moments)
        return optax.apply_updates(params, updates), moments

    def iterate(_: jax.Array, state: dict[str, Any]) -> dict[str, Any]:
        key = jax.random.fold_in(state["key"], state["iteration"])
        reset_key, act_key, order_key = jax.random.split(key, 3)
        shape = (sizes.unroll, sizes.num_envs)
        noise = (
            jax.random.uniform(reset_key, (*shape, 4), minval=-0.05, maxval=0.05),
            jax.random.gumbel(act_key, (*shape, 2)),
        )
        params = state["params"]
        carry = state["obs"], state["elapsed"], state["return"], state["average"]
        carry, unroll = jax.lax.scan(
            lambda carry, noise: step(params, carry, noise), carry, noise
        )
        advantage = advantages(params, unroll)
        data = unroll, advantage, advantage + unroll.value
        data = jax.tree.map(lambda x: x.reshape((rows, *x.shape[2:])), data)
        keys = jax.random.split(order_key, sizes.epochs)
        orders = jax.vmap(lambda key: jax.random.permutation(key, rows))(keys)
        orders = orders.reshape((sizes.epochs * sizes.minibatches, -1))

        def learn_from(carry: tuple, order: jax.Array) -> tuple[tuple, None]:
            return learn(carry, jax.tree.map(lambda x: x[order], data)), None

        carry_of_learning = params, state["optimizer"]
        (params, moments), _ = jax.lax.scan(learn_from, carry_of_learning, orders)
        obs, elapsed, running, average = carry
        return {
            "params": params,
            "optimizer": moments,
            "obs": obs,
            "elapsed": elapsed,
            "return": running,
            "average": average,
            "key": state["key"],
            "iteration": state["iteration"] + 1,
        }

    def advance(state: dict[str, Any], iterations: jax.Array) -> dict[str, Any]:
        return jax.lax.fori_loop(0, iterations, iterate, state)

    return jax.jit(begin), jax.jit(advance, donate_argnums=0)


def _network(layers: tuple[int, ...], size: int) -> hk.Transformed:
    def forward(obs: jax.Array) -> jax.Array:
        return hk.nets.MLP([*layers, size], activation=jnp.tanh)(obs)

    return hk.without_apply_rng(hk.transform(forward))


def _log_prob(logits: jax.Array, action: jax.Array) -> jax.Array:
    chosen = jnp.take_along_axis(jax.nn.log_softmax(logits), action[..., None], -1)
    return chosen[..., 0]
