"""Plain JAX loops of SAC and TD3 on Pendulum, without any generality.

The references of `benchmarks.continuous`: one environment, a ring of 100 000
transitions, an update per step, noise in blocks, Adam, running returns. The two critics
are separate products, each the size of one network.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import haiku as hk
import jax
import jax.numpy as jnp
import optax

from benchmarks import plain_dqn

CAPACITY, BATCH, LAYERS = 100_000, 256, (256, 256)
GAMMA, POLYAK, LIMIT, HIGH, DELAY = 0.99, 0.005, 200, 2.0, 2

Params = Any


def physics(state: jax.Array, action: jax.Array) -> tuple[jax.Array, jax.Array]:
    """A step of Pendulum: angle and speed `[2]`, and the reward."""
    angle, speed = state
    torque = jnp.clip(action[0], -HIGH, HIGH)
    cost = angle**2 + 0.1 * speed**2 + 0.001 * torque**2
    speed = jnp.clip(speed + 0.05 * (15 * jnp.sin(angle) + 3 * torque), -8.0, 8.0)
    angle = (angle + speed * 0.05 + jnp.pi) % (2 * jnp.pi) - jnp.pi
    return jnp.stack([angle, speed]), -cost


def observe(state: jax.Array) -> jax.Array:
    """Cosine, sine and speed, `[3]`."""
    return jnp.stack([jnp.cos(state[0]), jnp.sin(state[0]), state[1]])


def _network(size: int) -> hk.Transformed:
    def forward(inputs: jax.Array) -> jax.Array:
        return hk.nets.MLP([*LAYERS, size])(inputs)

    return hk.without_apply_rng(hk.transform(forward))


_critic = _network(1)


def _q(critics: tuple, obs: jax.Array, action: jax.Array) -> list[jax.Array]:
    inputs = jnp.concatenate([obs, action], -1)
    return [_critic.apply(critic, inputs)[..., 0] for critic in critics]


def _init_critics(key: jax.Array) -> tuple:
    return tuple(_critic.init(key, jnp.zeros((1, 4))) for key in jax.random.split(key))


def _descend(
    optimizer: optax.GradientTransformation,
    loss: Callable[[Params], jax.Array],
    params: Params,
    moments: Any,
) -> tuple[Params, Any]:
    updates, moments = optimizer.update(jax.grad(loss)(params), moments)
    return optax.apply_updates(params, updates), moments


def _polyak(params: Params, target: Params) -> Params:
    return optax.incremental_update(params, target, POLYAK)


def sac() -> tuple[Callable, Callable, Callable]:
    """`init(key)`, `act(learner, obs, normal)` and `learn(learner, batch, normals)`."""
    actor, optimizer = _network(2), optax.adam(3e-4)

    def sample(
        params: Params, obs: jax.Array, normal: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        mean, log_std = jnp.split(actor.apply(params, obs), 2, -1)
        log_std = jnp.clip(log_std, -20.0, 2.0)
        before = mean + jnp.exp(log_std) * normal
        log_prob = -0.5 * normal**2 - log_std - 0.5 * jnp.log(2 * jnp.pi)
        # log of the derivative of HIGH tanh(x)
        slope = 2 * (jnp.log(2.0) - before - jax.nn.softplus(-2 * before))
        log_prob = log_prob - slope - jnp.log(HIGH)
        return HIGH * jnp.tanh(before), log_prob.sum(-1)

    def init(key: jax.Array) -> dict[str, Any]:
        actor_key, critic_key = jax.random.split(key)
        params = actor.init(actor_key, jnp.zeros((1, 3)))
        critics, log_alpha = _init_critics(critic_key), jnp.float32(0)
        return {
            "actor": params,
            "critics": critics,
            "log_alpha": log_alpha,
            "target": jax.tree.map(jnp.copy, critics),
            "moments": tuple(map(optimizer.init, (critics, params, log_alpha))),
        }

    def act(learner: dict, obs: jax.Array, normal: jax.Array) -> jax.Array:
        return sample(learner["actor"], obs[None], normal[None])[0][0]

    def learn(
        learner: dict, batch: dict, normals: jax.Array, count: jax.Array
    ) -> dict[str, Any]:
        del count
        params, critics, log_alpha = (
            learner[name] for name in ("actor", "critics", "log_alpha")
        )
        alpha = jnp.exp(log_alpha)
        next_action, next_log_prob = sample(params, batch["next_obs"], normals[0])
        next_q = jnp.minimum(*_q(learner["target"], batch["next_obs"], next_action))
        next_value = next_q - alpha * next_log_prob
        y = batch["reward"] + GAMMA * batch["discount"] * next_value

        def critic_loss(critics: Params) -> jax.Array:
            errors = [q - y for q in _q(critics, batch["obs"], batch["action"])]
            return sum(jnp.mean(error**2) for error in errors)

        critic_moments, actor_moments, alpha_moments = learner["moments"]
        critics, critic_moments = _descend(
            optimizer, critic_loss, critics, critic_moments
        )

        def actor_loss(params: Params) -> tuple[jax.Array, jax.Array]:
            action, log_prob = sample(params, batch["obs"], normals[1])
            q = jnp.minimum(*_q(critics, batch["obs"], action))
            return jnp.mean(alpha * log_prob - q), log_prob

        gradient, log_prob = jax.grad(actor_loss, has_aux=True)(params)
        updates, actor_moments = optimizer.update(gradient, actor_moments)
        params = optax.apply_updates(params, updates)
        log_alpha, alpha_moments = _descend(
            optimizer,
            lambda log: -jnp.mean(jnp.exp(log) * (log_prob - 1.0)),
            log_alpha,
            alpha_moments,
        )
        return {
            "actor": params,
            "critics": critics,
            "log_alpha": log_alpha,
            "target": _polyak(critics, learner["target"]),
            "moments": (critic_moments, actor_moments, alpha_moments),
        }

    return init, act, learn


def td3() -> tuple[Callable, Callable, Callable]:
    """`init(key)`, `act(learner, obs, normal)` and `learn(learner, batch, normals)`."""
    actor, optimizer = _network(1), optax.adam(3e-4)

    def mean(params: Params, obs: jax.Array) -> jax.Array:
        return HIGH * jnp.tanh(actor.apply(params, obs))

    def init(key: jax.Array) -> dict[str, Any]:
        actor_key, critic_key = jax.random.split(key)
        params = actor.init(actor_key, jnp.zeros((1, 3))), _init_critics(critic_key)
        return {
            "params": params,
            "target": jax.tree.map(jnp.copy, params),
            "moments": tuple(map(optimizer.init, params)),
        }

    def act(learner: dict, obs: jax.Array, normal: jax.Array) -> jax.Array:
        action = mean(learner["params"][0], obs[None])[0]
        return jnp.clip(action + 0.1 * HIGH * normal, -HIGH, HIGH)

    def learn(
        learner: dict, batch: dict, normals: jax.Array, count: jax.Array
    ) -> dict[str, Any]:
        (params, critics), (target_actor, target_critics) = (
            learner["params"],
            learner["target"],
        )
        noise = jnp.clip(0.2 * HIGH * normals[0], -0.5 * HIGH, 0.5 * HIGH)
        next_action = mean(target_actor, batch["next_obs"]) + noise
        next_action = jnp.clip(next_action, -HIGH, HIGH)
        next_q = jnp.minimum(*_q(target_critics, batch["next_obs"], next_action))
        y = batch["reward"] + GAMMA * batch["discount"] * next_q

        def critic_loss(critics: Params) -> jax.Array:
            errors = [q - y for q in _q(critics, batch["obs"], batch["action"])]
            return sum(jnp.mean(error**2) for error in errors)

        actor_moments, critic_moments = learner["moments"]
        critics, critic_moments = _descend(
            optimizer, critic_loss, critics, critic_moments
        )

        def improve(carry: tuple) -> tuple:
            params, moments, target = carry

            def actor_loss(params: Params) -> jax.Array:
                action = mean(params, batch["obs"])
                return -jnp.mean(_q(critics[:1], batch["obs"], action)[0])

            params, moments = _descend(optimizer, actor_loss, params, moments)
            return params, moments, _polyak((params, critics), target)

        params, actor_moments, target = jax.lax.cond(
            count % DELAY == 0,
            improve,
            lambda carry: carry,
            (params, actor_moments, learner["target"]),
        )
        return {
            "params": (params, critics),
            "target": target,
            "moments": (actor_moments, critic_moments),
        }

    return init, act, learn


def make(
    algorithm: tuple[Callable, Callable, Callable],
) -> tuple[Callable[[int], Any], Callable[[Any, int], Any]]:
    """`begin(seed)` and the compiled `advance(state, blocks)`."""
    init, act, learn = algorithm

    def begin(seed: int) -> dict[str, Any]:
        key, init_key = jax.random.split(jax.random.key(seed))
        ring = {
            "obs": jnp.zeros((CAPACITY, 3)),
            "action": jnp.zeros((CAPACITY, 1)),
            "reward": jnp.zeros(CAPACITY),
            "discount": jnp.zeros(CAPACITY),
            "next_obs": jnp.zeros((CAPACITY, 3)),
        }
        return {
            "learner": init(init_key),
            "env": jnp.array([jnp.pi, 0.0]),
            "elapsed": jnp.int32(0),
            "steps": jnp.int32(0),
            "ring": ring,
            "return": jnp.float32(0),
            "average": jnp.float32(0),
            "key": key,
        }

    def draw(key: jax.Array) -> tuple[jax.Array, ...]:
        reset_key, act_key, sample_key, learn_key = jax.random.split(key, 4)
        limits = jnp.array([jnp.pi, 1.0])
        return (
            jax.random.uniform(reset_key, (2,), minval=-limits, maxval=limits),
            jax.random.normal(act_key, (1,)),
            jax.random.bits(sample_key, (BATCH,)),
            jax.random.normal(learn_key, (2, BATCH, 1)),
        )

    def step(state: dict[str, Any], noise: tuple[jax.Array, ...]) -> dict[str, Any]:
        fresh, normal, bits, normals = noise
        obs = observe(state["env"])
        action = act(state["learner"], obs, normal)
        env, reward = physics(state["env"], action)
        row = {
            "obs": obs,
            "action": action,
            "reward": reward,
            "discount": 1.0,
            "next_obs": observe(env),
        }
        head = state["steps"] % CAPACITY
        ring = {name: x.at[head].set(row[name]) for name, x in state["ring"].items()}
        count, elapsed = state["steps"] + 1, state["elapsed"] + 1
        index = bits % jnp.minimum(count, CAPACITY).astype(jnp.uint32)
        batch = {name: rows[index.astype(jnp.int32)] for name, rows in ring.items()}
        last, total = elapsed >= LIMIT, state["return"] + reward
        average = 0.9 * state["average"] + 0.1 * total
        return {
            "learner": learn(state["learner"], batch, normals, count),
            "env": jnp.where(last, fresh, env),
            "elapsed": jnp.where(last, 0, elapsed),
            "steps": count,
            "ring": ring,
            "return": jnp.where(last, 0, total),
            "average": jnp.where(last, average, state["average"]),
            "key": state["key"],
        }

    return begin, plain_dqn.compile_blocks(step, draw)
