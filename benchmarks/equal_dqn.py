"""A plain JAX loop of DQN on CartPole that does the same work as rlcli.

The reference of `benchmarks.loop` for equal work. In addition to the bare algorithm of
`plain_dqn` it discards steps with non-finite losses, breaks ties at random, and stores
where episodes begin and end, their statistics, and the metrics of the last update. It
is written for this case only, and for speed: a row of the ring is three arrays. It is
written twice, the second time at the next position, because XLA would copy the ring
otherwise.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import haiku as hk
import jax
import jax.numpy as jnp
import optax

from benchmarks.plain_dqn import (
    BLOCK,
    CAPACITY,
    GAMMA,
    LAYERS,
    LIMIT,
    TARGET_EVERY,
    parts,
    physics,
)

SLOTS = CAPACITY + 1
NOT_FAILED = -1


class State(NamedTuple):
    """The carry of the loop."""

    key: jax.Array
    steps: jax.Array
    params: Any
    target: Any
    moments: Any
    failed: jax.Array
    ring: tuple[jax.Array, ...]  # of floats [·, 10], actions, flags [·, 2]
    obs: jax.Array
    first: jax.Array
    numbers: jax.Array  # running, last and average return, last length; metrics
    counts: jax.Array  # running length, episodes


def make() -> tuple[Callable[[int], State], Callable[[State, int], State]]:
    """`begin(seed)` and the compiled `advance(state, blocks)`."""

    def forward(obs: jax.Array) -> jax.Array:
        return hk.nets.MLP([*LAYERS, 2])(obs)

    network = hk.without_apply_rng(hk.transform(forward))
    optimizer = optax.adam(1e-3)
    draw = parts().draw

    def begin(seed: int) -> State:
        key = jax.random.key(seed)
        params = network.init(key, jnp.zeros((1, 4)))
        state = State(
            key=key,
            steps=jnp.int32(0),
            params=params,
            target=params,
            moments=optimizer.init(params),
            failed=jnp.int32(NOT_FAILED),
            ring=(
                jnp.zeros((SLOTS + 1, 10)),
                jnp.zeros(SLOTS + 1, jnp.int32),
                jnp.zeros((SLOTS + 1, 2), bool),
            ),
            obs=jax.random.uniform(key, (4,), minval=-0.05, maxval=0.05),
            first=jnp.bool_(True),
            numbers=jnp.zeros(8),
            counts=jnp.zeros(2, jnp.int32),
        )
        # Copied: the state is donated, and a buffer cannot be donated twice.
        return jax.tree.map(jnp.copy, state)

    def act(params: Any, obs: jax.Array, steps: jax.Array, uniform: jax.Array) -> Any:
        q = network.apply(params, obs[None])[0]
        epsilon = jnp.maximum(0.02, 1 - steps / 8_000)
        is_candidate = (q == q.max()) | (uniform[0] < epsilon)
        return jnp.argmax(jnp.where(is_candidate, uniform[1:], -1))

    def learn(
        state: State, ring: tuple, bits: jax.Array, with_metrics: jax.Array
    ) -> tuple[Any, Any, Any, jax.Array, jax.Array]:
        count = state.steps + 1
        age = (bits % jnp.minimum(count, CAPACITY).astype(jnp.uint32)).astype(int)
        index = (state.steps - age) % SLOTS
        floats, action = ring[0][index], ring[1][index]
        reward, discount = floats[:, 8], floats[:, 9]
        next_q = network.apply(state.target, floats[:, 4:8]).max(-1)
        target_q = reward + GAMMA * discount * next_q

        def loss(params: Any) -> tuple[jax.Array, tuple]:
            all_q = network.apply(params, floats[:, :4])
            q = jnp.where(action[:, None] == jnp.arange(2), all_q, 0).sum(-1)
            return optax.huber_loss(q, target_q).mean(), (q, target_q - q)

        (value, (q, error)), gradient = jax.value_and_grad(loss, has_aux=True)(
            state.params
        )
        updates, moments = optimizer.update(gradient, state.moments)
        is_finite = jnp.isfinite(value)
        has_no_failure = is_finite & (state.failed == NOT_FAILED)
        had_failure = state.failed != NOT_FAILED
        failed = jnp.where(is_finite | had_failure, state.failed, state.steps)
        updates = jax.tree.map(lambda x: jnp.where(has_no_failure, x, 0), updates)
        params = optax.apply_updates(state.params, updates)

        def report() -> jax.Array:
            norm = optax.tree.norm(gradient)
            return jnp.stack([value, jnp.abs(error).mean(), q.mean(), norm])

        metrics = jax.lax.cond(with_metrics, report, lambda: jnp.zeros(4))
        target = optax.periodic_update(params, state.target, count, TARGET_EVERY)
        return params, target, moments, failed, metrics

    def step(state: State, noise: tuple[jax.Array, ...], end: jax.Array) -> State:
        reset_obs, uniform, bits = noise
        action = act(state.params, state.obs, state.steps, uniform)
        obs, fallen = physics(state.obs, action)
        elapsed = state.counts[0] + 1
        last = fallen | (elapsed >= LIMIT)
        outcome = jnp.stack([1.0, 1.0 - fallen])
        row = (
            jnp.concatenate([state.obs, obs, outcome]),
            action,
            jnp.stack([state.first, last]),
        )

        def write(rows: jax.Array, new: jax.Array) -> jax.Array:
            twice = jnp.stack([new, new])
            head = state.steps % SLOTS
            return jax.lax.dynamic_update_slice_in_dim(rows, twice, head, 0)

        ring = tuple(map(write, state.ring, row))
        with_metrics = state.steps + 1 == end
        params, target, moments, failed, metrics = learn(
            state, ring, bits, with_metrics
        )
        running, last_return, average, length = state.numbers[:4]
        total = running + 1
        statistics = [
            jnp.where(last, 0, total),
            jnp.where(last, total, last_return),
            jnp.where(last, 0.9 * average + 0.1 * total, average),
            jnp.where(last, elapsed, length),
        ]
        metrics = jnp.where(with_metrics, metrics, state.numbers[4:])
        return State(
            key=state.key,
            steps=state.steps + 1,
            params=params,
            target=target,
            moments=moments,
            failed=failed,
            ring=ring,
            obs=jnp.where(last, reset_obs, obs),
            first=last,
            numbers=jnp.concatenate([jnp.stack(statistics), metrics]),
            counts=jnp.stack([jnp.where(last, 0, elapsed), state.counts[1] + last]),
        )

    def advance(state: State, blocks: jax.Array) -> State:
        end = state.steps + blocks * BLOCK

        def block(_: jax.Array, state: State) -> State:
            times = state.steps + jnp.arange(BLOCK)
            keys = jax.vmap(lambda t: jax.random.fold_in(state.key, t))(times)
            noise = jax.vmap(draw)(keys)
            return jax.lax.scan(lambda s, n: (step(s, n, end), None), state, noise)[0]

        return jax.lax.fori_loop(0, blocks, block, state)

    return begin, jax.jit(advance, donate_argnums=0)
