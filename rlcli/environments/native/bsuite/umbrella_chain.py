"""UmbrellaChain: the first action determines the last reward."""

from typing import Annotated, NamedTuple

import gymnasium
import jax.numpy as jnp
import numpy as np
from annotated_types import Ge

from rlcli.environments.native.bsuite.coins import flip_coins
from rlcli.environments.native.timesteps import make_timestep
from rlcli.registry import register
from rlcli.types import Array, Core, Count, Key, TimeStep


class UmbrellaChainState(NamedTuple):
    """The time, the weather at the end, and the umbrella."""

    time: Array  # int32: steps of the episode so far
    needed: Array  # bool: whether it will rain
    had: Array  # bool: whether the agent has the umbrella


@register("environment", "bsuite/UmbrellaChain")
def umbrella_chain(
    *, chain_length: Count = 10, n_distractor: Annotated[int, Ge(0)] = 0
) -> Core:
    """Takes an umbrella or leaves it: last reward 1 if that was right, else −1.

    Action 1 in the first step takes the umbrella, 0 leaves it; later actions have no
    effect. Every reward except the last one is 1 or −1, at random. The episode
    terminates after `chain_length` steps.
    Observation: float32 `[1, 3 + n_distractor]`: whether the umbrella is needed,
    whether the agent has it (random before the first step), the remaining time, from 1
    to 0, and random bits drawn in each step. Actions: 0, 1. Logged: `regret`, 1 minus
    the last reward. From bsuite (Osband et al., 2019,
    https://arxiv.org/abs/1908.03568), whose `umbrella_length` varies `chain_length`
    with 20 distractors, and `umbrella_distract` varies `n_distractor` with a length of
    20.
    """

    def observe(state: UmbrellaChainState, distractors: Array) -> Array:
        left = (chain_length - state.time) / chain_length
        head = jnp.stack([state.needed.astype(jnp.float32), state.had, left])
        return jnp.concatenate([head, distractors.astype(jnp.float32)])[None]

    def reset(key: Key) -> tuple[UmbrellaChainState, Array]:
        coins = flip_coins(key, 2 + n_distractor)
        state = UmbrellaChainState(jnp.int32(0), coins[0], coins[1])
        return state, observe(state, coins[2:])

    def step(
        state: UmbrellaChainState, action: Array, noise: Array
    ) -> tuple[UmbrellaChainState, TimeStep]:
        had = jnp.where(state.time == 0, action == 1, state.had)
        state = UmbrellaChainState(state.time + 1, state.needed, had)
        terminated = state.time == chain_length
        is_positive = jnp.where(terminated, had == state.needed, noise[0])
        reward = jnp.where(is_positive, 1.0, -1.0)
        info = {"regret": jnp.where(terminated, 1.0 - reward, 0.0)}
        return state, make_timestep(observe(state, noise[1:]), reward, terminated, info)

    shape = (1, 3 + n_distractor)
    return Core(
        reset=reset,
        step=step,
        observation=gymnasium.spaces.Box(0.0, 1.0, shape, np.float32),
        action=gymnasium.spaces.Discrete(2),
        draw=lambda key: flip_coins(key, 1 + n_distractor),
    )
