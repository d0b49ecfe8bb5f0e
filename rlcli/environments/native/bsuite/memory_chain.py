"""MemoryChain: report a bit of the first observation at the end of the episode."""

from typing import NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np

from rlcli.environments.native.bsuite.coins import flip_coins
from rlcli.environments.native.timesteps import make_timestep
from rlcli.registry import register
from rlcli.types import Array, Core, Count, Key, TimeStep


class MemoryChainState(NamedTuple):
    """The time, the bits to remember, and the queried bit."""

    time: Array  # int32: steps of the episode so far
    context: Array  # bool[num_bits]
    query: Array  # int32: the index of the queried bit


@register("environment", "bsuite/MemoryChain")
def memory_chain(*, memory_length: Count = 5, num_bits: Count = 1) -> Core:
    """Asks for a bit of the first observation: reward 1 if the last action equals it.

    A wrong bit yields −1; all other rewards are 0. The first two observations show the
    bits. Actions before the last one have no effect. The second-to-last observation
    gives the index of the queried bit. The episode terminates after memory_length + 1
    steps.
    Observation: float32 `[1, 2 + num_bits]`: the remaining time, from 1 to 0; the index
    of the queried bit, else 0; the bits as ±1, else 0. Actions: 0, 1. Logged:
    `perfect`, 1 for the correct bit; `regret`, 1 minus the return. From bsuite (Osband
    et al., 2019, https://arxiv.org/abs/1908.03568), whose `memory_len` varies
    `memory_length` with one bit, and `memory_size` varies `num_bits` with a length of
    2.
    """

    def observe(state: MemoryChainState, time: Array) -> Array:
        left = (memory_length - time) / memory_length
        query = jnp.where(time == memory_length - 1, state.query, 0)
        bits = jnp.where(time == 0, 2.0 * state.context - 1.0, 0.0)
        head = jnp.stack([left, query.astype(jnp.float32)])
        return jnp.concatenate([head, bits])[None]

    def reset(key: Key) -> tuple[MemoryChainState, Array]:
        context_key, query_key = jax.random.split(key)
        context = flip_coins(context_key, num_bits)
        query = (jax.random.uniform(query_key) * num_bits).astype(jnp.int32)
        time = jnp.int32(0)
        state = MemoryChainState(time, context, query)
        return state, observe(state, time)

    def step(
        state: MemoryChainState, action: Array, noise: tuple[()]
    ) -> tuple[MemoryChainState, TimeStep]:
        del noise  # only the initial state is random
        # As in bsuite, the observation is computed before the time is incremented.
        obs = observe(state, state.time)
        terminated = state.time == memory_length
        is_correct = action == jnp.take(state.context, state.query, mode="clip")
        reward = jnp.where(terminated, jnp.where(is_correct, 1.0, -1.0), 0.0)
        info = {
            "perfect": (terminated & is_correct).astype(jnp.float32),
            "regret": jnp.where(terminated, 1.0 - reward, 0.0),
        }
        state = state._replace(time=state.time + 1)
        return state, make_timestep(obs, reward, terminated, info)

    low = np.array([[0.0, 0.0, *[-1.0] * num_bits]], np.float32)
    high = np.array([[1.0, num_bits - 1, *[1.0] * num_bits]], np.float32)
    return Core(
        reset=reset,
        step=step,
        observation=gymnasium.spaces.Box(low, high, dtype=np.float32),
        action=gymnasium.spaces.Discrete(2),
        draw=lambda key: (),
    )
