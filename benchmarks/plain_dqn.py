"""A plain JAX loop of DQN on CartPole, without any generality.

The reference of `benchmarks.loop`; `benchmarks.host` uses its parts. It uses the same
techniques as rlcli's loop (noise in blocks, a ring of 50 000 transitions, one update of
32 per step, Adam, a target copied every 200 updates, the time limit, running returns).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import haiku as hk
import jax
import jax.numpy as jnp
import optax

CAPACITY, BATCH, LAYERS, BLOCK = 50_000, 32, (64, 64), 128
GAMMA, TARGET_EVERY, LIMIT = 0.99, 200, 500


def physics(state: jax.Array, action: jax.Array) -> tuple[jax.Array, jax.Array]:
    """A step of CartPole: the state `[4]`, and whether the pole fell."""
    _, v, angle, spin = state
    force = jnp.where(action == 1, 10.0, -10.0)
    cos, sin = jnp.cos(angle), jnp.sin(angle)
    push = (force + 0.05 * spin**2 * sin) / 1.1
    twist = (9.8 * sin - cos * push) / (0.5 * (4 / 3 - 0.1 * cos**2 / 1.1))
    rates = jnp.stack([v, push - 0.05 * twist * cos / 1.1, spin, twist])
    state = state + 0.02 * rates
    return state, (jnp.abs(state[0]) > 2.4) | (jnp.abs(state[2]) > jnp.pi / 15)


def compile_blocks(step: Callable, draw: Callable) -> Callable[[Any, int], Any]:
    """Compiles `advance(state, blocks)`; `draw(key)` is the noise of `step`.

    The noise of `BLOCK` steps is drawn together.
    """

    def block(_: jax.Array, state: dict[str, Any]) -> dict[str, Any]:
        times = state["steps"] + jnp.arange(BLOCK)
        keys = jax.vmap(lambda t: jax.random.fold_in(state["key"], t))(times)
        noise = jax.vmap(draw)(keys)
        return jax.lax.scan(lambda s, n: (step(s, n), None), state, noise)[0]

    def advance(state: dict[str, Any], blocks: jax.Array) -> dict[str, Any]:
        return jax.lax.fori_loop(0, blocks, block, state)

    return jax.jit(advance, donate_argnums=0)


class Parts(NamedTuple):
    """The functions that the compiled and the host loop share."""

    begin: Callable[[int], dict[str, Any]]
    draw: Callable[[jax.Array], tuple[jax.Array, ...]]
    act: Callable[..., jax.Array]
    store: Callable[..., dict[str, jax.Array]]
    learn: Callable[..., tuple]


def parts() -> Parts:
    """Returns the functions of DQN."""

    def forward(obs: jax.Array) -> jax.Array:
        return hk.nets.MLP([*LAYERS, 2])(obs)

    network = hk.without_apply_rng(hk.transform(forward))
    optimizer = optax.adam(1e-3)

    def begin(seed: int) -> dict[str, Any]:
        key = jax.random.key(seed)
        params = network.init(key, jnp.zeros((1, 4)))
        ring = {
            "obs": jnp.zeros((CAPACITY, 4)),
            "action": jnp.zeros(CAPACITY, jnp.int32),
            "reward": jnp.zeros(CAPACITY),
            "discount": jnp.zeros(CAPACITY),
            "next_obs": jnp.zeros((CAPACITY, 4)),
        }
        return {
            "params": params,
            "target": jax.tree.map(jnp.copy, params),
            "optimizer": optimizer.init(params),
            "obs": jax.random.uniform(key, (4,), minval=-0.05, maxval=0.05),
            "elapsed": jnp.int32(0),
            "steps": jnp.int32(0),
            "ring": ring,
            "return": jnp.float32(0),
            "average": jnp.float32(0),
            "key": key,
        }

    def draw(key: jax.Array) -> tuple[jax.Array, ...]:
        fresh_key, act_key, sample_key = jax.random.split(key, 3)
        return (
            jax.random.uniform(fresh_key, (4,), minval=-0.05, maxval=0.05),
            jax.random.uniform(act_key, (3,)),
            jax.random.bits(sample_key, (BATCH,)),
        )

    def learn(carry: tuple, ring: dict, count: jax.Array, bits: jax.Array) -> tuple:
        params, target, moments = carry
        index = bits % jnp.minimum(count, CAPACITY).astype(jnp.uint32)
        batch = {name: rows[index.astype(jnp.int32)] for name, rows in ring.items()}
        next_q = network.apply(target, batch["next_obs"]).max(-1)
        target_q = batch["reward"] + GAMMA * batch["discount"] * next_q

        def loss(params: Any) -> jax.Array:
            q = network.apply(params, batch["obs"])[jnp.arange(BATCH), batch["action"]]
            return optax.huber_loss(q, target_q).mean()

        gradient = jax.grad(loss)(params)
        updates, moments = optimizer.update(gradient, moments)
        params = optax.apply_updates(params, updates)
        target = optax.periodic_update(params, target, count, TARGET_EVERY)
        return params, target, moments

    def act(params: Any, obs: jax.Array, steps: jax.Array, uniform: jax.Array) -> Any:
        epsilon = jnp.maximum(0.02, 1 - steps / 8_000)
        q = network.apply(params, obs[None])[0]
        random_action = (uniform[1] * 2).astype(jnp.int32)
        return jnp.where(uniform[0] < epsilon, random_action, jnp.argmax(q))

    def store(ring: dict, row: dict, steps: jax.Array) -> dict:
        head = steps % CAPACITY
        return {name: rows.at[head].set(row[name]) for name, rows in ring.items()}

    return Parts(begin, draw, act, store, learn)


def make() -> tuple[Callable[[int], Any], Callable[[Any, int], Any]]:
    """`begin(seed)` and the compiled `advance(state, blocks)`."""
    begin, draw, act, store, learn = parts()

    def step(state: dict[str, Any], noise: tuple[jax.Array, ...]) -> dict[str, Any]:
        reset_obs, uniform, bits = noise
        action = act(state["params"], state["obs"], state["steps"], uniform)
        obs, fallen = physics(state["obs"], action)
        elapsed = state["elapsed"] + 1
        last = fallen | (elapsed >= LIMIT)
        row = {
            "obs": state["obs"],
            "action": action,
            "reward": 1.0,
            "discount": 1.0 - fallen,
            "next_obs": obs,
        }
        ring = store(state["ring"], row, state["steps"])
        count = state["steps"] + 1
        carry = (state["params"], state["target"], state["optimizer"])
        params, target, moments = learn(carry, ring, count, bits)
        total = state["return"] + 1
        average = 0.9 * state["average"] + 0.1 * total
        return {
            "params": params,
            "target": target,
            "optimizer": moments,
            "obs": jnp.where(last, reset_obs, obs),
            "elapsed": jnp.where(last, 0, elapsed),
            "steps": count,
            "ring": ring,
            "return": jnp.where(last, 0, total),
            "average": jnp.where(last, average, state["average"]),
            "key": state["key"],
        }

    return begin, compile_blocks(step, draw)
