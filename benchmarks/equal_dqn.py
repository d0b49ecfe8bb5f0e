"""A plain JAX loop of DQN on CartPole that does all that a run of rlcli does.

The reference of `benchmarks.loop` for equal work. Beyond the bare algorithm, as
`plain_dqn` has it, a run is owed: no step on a loss that is not finite, ties broken at
random, where episodes begin and end, their statistics, metrics of the last update.
Written for this one case, and for speed: a row of the ring is three arrays, and is
written twice, the second time where the next one will be, or XLA would copy the ring.
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
GOING = -1


class State(NamedTuple):
    """All that goes around the loop."""

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
            failed=jnp.int32(GOING),
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
        # Copied: all of it is donated, and a buffer cannot be donated twice.
        return jax.tree.map(jnp.copy, state)

    def act(params: Any, obs: jax.Array, steps: jax.Array, uniform: jax.Array) -> Any:
        q = network.apply(params, obs[None])[0]
        epsilon = jnp.maximum(0.02, 1 - steps / 8_000)
        able = (q == q.max()) | (uniform[0] < epsilon)
        return jnp.argmax(jnp.where(able, uniform[1:], -1))

    def learn(
        state: State, ring: tuple, bits: jax.Array, watched: jax.Array
    ) -> tuple[Any, Any, Any, jax.Array, jax.Array]:
        count = state.steps + 1
        back = (bits % jnp.minimum(count, CAPACITY).astype(jnp.uint32)).astype(int)
        index = (state.steps - back) % SLOTS
        floats, action = ring[0][index], ring[1][index]
        reward, discount = floats[:, 8], floats[:, 9]
        best = network.apply(state.target, floats[:, 4:8]).max(-1)
        wanted = reward + GAMMA * discount * best

        def loss(params: Any) -> tuple[jax.Array, tuple]:
            every = network.apply(params, floats[:, :4])
            q = jnp.where(action[:, None] == jnp.arange(2), every, 0).sum(-1)
            return optax.huber_loss(q, wanted).mean(), (q, wanted - q)

        (value, (q, error)), gradient = jax.value_and_grad(loss, has_aux=True)(
            state.params
        )
        change, moments = optimizer.update(gradient, state.moments)
        fine = jnp.isfinite(value)
        going = fine & (state.failed == GOING)
        failed = jnp.where(fine | (state.failed != GOING), state.failed, state.steps)
        change = jax.tree.map(lambda each: jnp.where(going, each, 0), change)
        params = optax.apply_updates(state.params, change)

        def report() -> jax.Array:
            norm = optax.tree.norm(gradient)
            return jnp.stack([value, jnp.abs(error).mean(), q.mean(), norm])

        metrics = jax.lax.cond(watched, report, lambda: jnp.zeros(4))
        target = optax.periodic_update(params, state.target, count, TARGET_EVERY)
        return params, target, moments, failed, metrics

    def step(state: State, noise: tuple[jax.Array, ...], made: jax.Array) -> State:
        fresh, uniform, bits = noise
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

        def written(rows: jax.Array, new: jax.Array) -> jax.Array:
            twice = jnp.stack([new, new])
            head = state.steps % SLOTS
            return jax.lax.dynamic_update_slice_in_dim(rows, twice, head, 0)

        ring = tuple(map(written, state.ring, row))
        watched = state.steps + 1 == made
        params, target, moments, failed, metrics = learn(state, ring, bits, watched)
        running, before, average, length = state.numbers[:4]
        total = running + 1
        statistics = [
            jnp.where(last, 0, total),
            jnp.where(last, total, before),
            jnp.where(last, 0.9 * average + 0.1 * total, average),
            jnp.where(last, elapsed, length),
        ]
        shown = jnp.where(watched, metrics, state.numbers[4:])
        return State(
            key=state.key,
            steps=state.steps + 1,
            params=params,
            target=target,
            moments=moments,
            failed=failed,
            ring=ring,
            obs=jnp.where(last, fresh, obs),
            first=last,
            numbers=jnp.concatenate([jnp.stack(statistics), shown]),
            counts=jnp.stack([jnp.where(last, 0, elapsed), state.counts[1] + last]),
        )

    def advance(state: State, blocks: jax.Array) -> State:
        made = state.steps + blocks * BLOCK

        def block(_: jax.Array, state: State) -> State:
            times = state.steps + jnp.arange(BLOCK)
            keys = jax.vmap(lambda t: jax.random.fold_in(state.key, t))(times)
            noise = jax.vmap(draw)(keys)
            return jax.lax.scan(lambda s, n: (step(s, n, made), None), state, noise)[0]

        return jax.lax.fori_loop(0, blocks, block, state)

    return begin, jax.jit(advance, donate_argnums=0)
