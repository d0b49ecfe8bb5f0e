"""Policies over a finite number of actions."""

from __future__ import annotations

import gymnasium
import jax
import jax.numpy as jnp

from rlcli.policies import Values, outputs_of
from rlcli.registry import register
from rlcli.types import Array, ArrayTree, Decision, Key, Policy, Probability


@register("policy")
def epsilon_greedy(
    values: Values, space: gymnasium.spaces.Discrete, *, epsilon: Probability = 0.05
) -> Policy:
    """The best action, or with probability ε one at random; ties broken at random.

    π(a|s) = ε/|A| + (1 − ε) 1[a is best] / (number of best actions)
    """
    actions, start = int(space.n), int(space.start)
    outputs = outputs_of(values)

    def draw(key: Key, batch: int) -> tuple[Array, Array]:
        uniform = jax.random.uniform(key, (batch, 1 + actions))
        return uniform[:, 0], uniform[:, 1:]

    def log_prob(q: Array, action: Array) -> Array:
        best = q == jnp.max(q, axis=-1, keepdims=True)
        greedy = best / jnp.sum(best, axis=-1, keepdims=True)
        probabilities = epsilon / actions + (1 - epsilon) * greedy
        index = (action - start)[..., None]
        return jnp.log(jnp.take_along_axis(probabilities, index, axis=-1)[..., 0])

    def choose(q: Array, wander: Array, order: Array) -> Array:
        # One random order serves both: it picks among the best, and among all.
        best = q == jnp.max(q, axis=-1, keepdims=True)
        candidates = best | wander[:, None]
        return start + jnp.argmax(jnp.where(candidates, order, -1.0), axis=-1)

    def explore(acting, obs, state, first, noise):
        memory, process = state
        q, memory = outputs(acting, obs, memory, first)
        action = choose(q, noise[0] < epsilon, noise[1])
        return Decision(action, {"log_prob": log_prob(q, action)}), (memory, process)

    def exploit(acting, obs, state, first, noise):
        memory, process = state
        q, memory = outputs(acting, obs, memory, first)
        action = choose(q, jnp.zeros_like(noise[0], bool), noise[1])
        sure = {"log_prob": jnp.zeros(action.shape)}
        return Decision(action, sure), (memory, process)

    def initial(batch: int) -> ArrayTree:
        return values.network.initial(batch), ()

    return Policy(initial, draw, explore, exploit, log_prob)
