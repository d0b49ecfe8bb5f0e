"""Idle environments: the spaces of another, to learn from a data set without it."""

import jax.numpy as jnp

from rlcli import spaces
from rlcli.types import Array, ArrayTree, Environment, Key, Step, TimeStep


def idle(environment: Environment) -> Environment:
    """An environment that does nothing: a single episode of zeros that never ends.

    A run with an offline replay steps it in place of `environment`, whose spaces it
    has. So such a run is compiled even if its environment runs on the host.
    """
    batch = environment.num_envs
    obs = spaces.zeros(environment.observation, (batch,))

    def reset(key: Key) -> tuple[ArrayTree, ArrayTree]:
        return (), obs

    def step(
        state: ArrayTree, action: ArrayTree, noise: ArrayTree, cut: Array | bool = False
    ) -> Step:
        zeros = jnp.zeros(batch)
        return state, TimeStep(obs, obs, zeros, zeros + 1, jnp.zeros(batch, bool), {})

    return Environment(
        reset=reset,
        step=step,
        observation=environment.observation,
        action=environment.action,
        num_envs=batch,
        draw=lambda key: (),
        external=environment.external,
    )
