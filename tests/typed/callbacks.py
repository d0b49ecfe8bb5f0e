"""Parts of a user, whose functions are annotated as JAX does it."""

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np

from rlcli.types import (
    Core,
    Decision,
    Environment,
    Estimates,
    Inspection,
    Network,
    Policy,
    Replay,
    TimeStep,
    Tracer,
    Transition,
)


def walk() -> Core:
    def reset(key: jax.Array) -> tuple[jax.Array, jax.Array]:
        position = jax.random.uniform(key)
        return position, position

    def step(state: jax.Array, action: jax.Array, noise: jax.Array) -> tuple:
        position = state + jax.random.normal(noise) + action
        done = jnp.abs(position) > 5
        discount = jnp.where(done, 0.0, 1.0)
        return position, TimeStep(position, position, position, discount, done, {})

    def draw(key: jax.Array) -> jax.Array:
        return key

    def goal_reward(
        achieved: jax.Array, goal: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        return -jnp.abs(achieved - goal), jnp.ones(())

    space = gymnasium.spaces.Box(-10.0, 10.0, ())
    return Core(
        reset,
        step,
        space,
        gymnasium.spaces.Discrete(2),
        draw=draw,
        goal_reward=goal_reward,
    )


def scale(values: jax.Array, factor: jax.Array | float) -> jax.Array:
    return values.at[0].set(0.0) * factor


def one_step(*, gamma: float = 0.9) -> Tracer:
    def trace(steps: Transition, estimates: Estimates) -> Transition:
        # Fields of records are arrays of JAX wherever a function takes such.
        discount: jax.Array = scale(steps.discount, gamma)
        reward = steps.reward.at[-1].add(estimates.v_t[-1])
        log_prob = scale(estimates.log_prob, steps.extras["log_prob"])
        return steps._replace(discount=discount, reward=scale(reward, log_prob))

    return Tracer(1, trace, gamma)


def first_reward(env: Environment, key: jax.Array) -> jax.Array:
    state, _ = env.reset(key)
    _, timestep = env.step(state, jnp.zeros(env.num_envs), env.draw(key))
    return scale(timestep.reward, scale(timestep.discount, timestep.info["energy"]))


def on_host(obs: np.ndarray) -> TimeStep:
    reward = np.zeros(len(obs), np.float32)
    return TimeStep(obs, obs, reward, reward + 1, reward > 0, {})


def replay() -> Replay:
    def draw(key: jax.Array) -> jax.Array:
        return jax.random.uniform(key)

    def add(state: Transition, steps: Transition, count: jax.Array) -> Transition:
        return jax.tree.map(
            lambda old, new: jnp.where(count < 1, old, new), state, steps
        )

    def sample(state: Transition, count: jax.Array, noise: jax.Array) -> tuple:
        return state, jnp.ones_like(state.reward), ()

    def reweigh(state: Transition, index: jax.Array, priority: jax.Array) -> Transition:
        return state

    return Replay(lambda example: example, draw, add, sample, reweigh)


def network() -> Network:
    def init(key: jax.Array) -> dict[str, jax.Array]:
        return {"value": jax.random.normal(key)}

    def apply(
        params: dict[str, jax.Array],
        key: jax.Array | None,
        obs: jax.Array,
        carry: tuple[()],
        first: jax.Array,
    ) -> tuple[jax.Array, tuple[()]]:
        return params["value"] * obs, carry

    return Network(init, apply, lambda batch: ())


def policy() -> Policy:
    def draw(key: jax.Array, batch: int) -> jax.Array:
        return jax.random.uniform(key, (batch,))

    def explore(
        acting: dict, obs: jax.Array, state: tuple, first: jax.Array, noise: jax.Array
    ) -> tuple[Decision, tuple]:
        return Decision(noise > 0.5, {"log_prob": jnp.log(0.5)}), state

    def log_prob(outputs: jax.Array, action: jax.Array) -> jax.Array:
        return jnp.log(0.5)

    def value(
        acting: dict, obs: jax.Array, state: tuple, first: jax.Array
    ) -> jax.Array:
        return obs

    return Policy(lambda batch: (), draw, explore, explore, log_prob, Inspection(value))
