"""DiscountingChain: the first action selects how long to wait for the reward."""

from typing import Annotated, NamedTuple

import gymnasium
import jax.numpy as jnp
import numpy as np
from annotated_types import Ge

from rlcli.environments.native.timesteps import make_timestep
from rlcli.registry import register
from rlcli.types import Array, Core, Key, TimeStep

LENGTH = 100
DELAYS = (1, 3, 10, 30, 100)  # the rewarded step of each chain
BONUS = 0.1


class DiscountingChainState(NamedTuple):
    """The time, and the selected chain."""

    time: Array  # int32: steps of the episode so far
    chain: Array  # int32 in [0, 5); −1 before the first step


@register("environment", "bsuite/DiscountingChain")
def discounting_chain(*, mapping_seed: Annotated[int, Ge(0)] = 0) -> Core:
    """Selects one of five chains: reward 1 at step 1, 3, 10, 30 or 100; one pays 1.1.

    The first action selects the chain; later actions have no effect. The episode
    terminates after 100 steps. With a low discount factor the nearest reward looks
    better than the best one, 1.1.
    Observation: float32 `[1, 2]`: the chain (−1 before the first action), and the time
    as a fraction of 100 steps. Actions: 0 to 4, the chains. From bsuite (Osband et al.,
    2019, https://arxiv.org/abs/1908.03568), where the end is a termination, too.

    Args:
        mapping_seed: the chain with the bonus is `mapping_seed` modulo 5.
    """
    bonus = mapping_seed % len(DELAYS)
    delays = jnp.asarray(DELAYS, jnp.int32)

    def observe(state: DiscountingChainState) -> Array:
        pair = [state.chain.astype(jnp.float32), state.time / LENGTH]
        return jnp.stack(pair)[None]

    def reset(key: Key) -> tuple[DiscountingChainState, Array]:
        del key  # the initial state is fixed
        state = DiscountingChainState(jnp.int32(0), jnp.int32(-1))
        return state, observe(state)

    def step(
        state: DiscountingChainState, action: Array, noise: tuple[()]
    ) -> tuple[DiscountingChainState, TimeStep]:
        chain = jnp.where(state.time == 0, action, state.chain).astype(jnp.int32)
        state = DiscountingChainState(state.time + 1, chain)
        worth = jnp.where(chain == bonus, 1.0 + BONUS, 1.0)
        reward = jnp.where(state.time == delays[chain], worth, 0.0)
        return state, make_timestep(observe(state), reward, state.time == LENGTH)

    low = np.array([[-1.0, 0.0]], np.float32)
    high = np.array([[len(DELAYS) - 1, 1.0]], np.float32)
    return Core(
        reset=reset,
        step=step,
        observation=gymnasium.spaces.Box(low, high, dtype=np.float32),
        action=gymnasium.spaces.Discrete(len(DELAYS)),
        draw=lambda key: (),
    )
