"""Chains of bsuite: an early action or observation decides a later reward."""

from typing import Annotated, NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from annotated_types import Ge

from rlcli.environments.native.core import native_core
from rlcli.registry import register
from rlcli.types import Array, Core, Count, Key
from rlcli.xla.fusion_barrier import materialize

_BITS = 32  # bits per word
_FEW = 8  # up to this many coins, recomputing them is cheaper


def flip_coins(key: Key, number: int) -> Array:
    """Draws fair coins, bool `[number]`, from as few random words as possible."""
    words = jax.random.bits(key, (-(-number // _BITS),))
    if number > _FEW:
        # Without the barrier, XLA repeats the hash for each element of an array that
        # combines single coins with all of them: from 18 coins on, compiling takes
        # minutes.
        words = materialize(words)
    index = np.arange(number)
    shift = (index % _BITS).astype(np.uint32)
    return (words[index // _BITS] >> shift & 1).astype(jnp.bool_)


DISCOUNTING_LENGTH = 100
DELAYS = (1, 3, 10, 30, 100)  # the rewarded step of each chain
DISCOUNTING_BONUS = 0.1


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
        pair = [state.chain.astype(jnp.float32), state.time / DISCOUNTING_LENGTH]
        return jnp.stack(pair)[None]

    def begin(key: Key) -> DiscountingChainState:
        del key  # the initial state is fixed
        return DiscountingChainState(jnp.int32(0), jnp.int32(-1))

    def step(state: DiscountingChainState, action: Array) -> tuple:
        chain = jnp.where(state.time == 0, action, state.chain).astype(jnp.int32)
        state = DiscountingChainState(state.time + 1, chain)
        worth = jnp.where(chain == bonus, 1.0 + DISCOUNTING_BONUS, 1.0)
        reward = jnp.where(state.time == delays[chain], worth, 0.0)
        return state, reward, state.time == DISCOUNTING_LENGTH

    low = np.array([[-1.0, 0.0]], np.float32)
    high = np.array([[len(DELAYS) - 1, 1.0]], np.float32)
    observation = gymnasium.spaces.Box(low, high, dtype=np.float32)
    return native_core(begin, step, observe, observation, len(DELAYS))


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

    def begin(key: Key) -> tuple[MemoryChainState, Array]:
        context_key, query_key = jax.random.split(key)
        context = flip_coins(context_key, num_bits)
        query = (jax.random.uniform(query_key) * num_bits).astype(jnp.int32)
        time = jnp.int32(0)
        state = MemoryChainState(time, context, query)
        return state, observe(state, time)

    def step(state: MemoryChainState, action: Array) -> tuple:
        # As in bsuite, the observation is computed before the time is incremented.
        obs = observe(state, state.time)
        terminated = state.time == memory_length
        is_correct = action == jnp.take(state.context, state.query, mode="clip")
        reward = jnp.where(terminated, jnp.where(is_correct, 1.0, -1.0), 0.0)
        info = {
            "perfect": (terminated & is_correct).astype(jnp.float32),
            "regret": jnp.where(terminated, 1.0 - reward, 0.0),
        }
        return state._replace(time=state.time + 1), obs, reward, terminated, info

    low = np.array([[0.0, 0.0, *[-1.0] * num_bits]], np.float32)
    high = np.array([[1.0, num_bits - 1, *[1.0] * num_bits]], np.float32)
    observation = gymnasium.spaces.Box(low, high, dtype=np.float32)
    return native_core(begin, step, None, observation, 2)


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

    def begin(key: Key) -> tuple[UmbrellaChainState, Array]:
        coins = flip_coins(key, 2 + n_distractor)
        state = UmbrellaChainState(jnp.int32(0), coins[0], coins[1])
        return state, observe(state, coins[2:])

    def step(state: UmbrellaChainState, action: Array, noise: Array) -> tuple:
        had = jnp.where(state.time == 0, action == 1, state.had)
        state = UmbrellaChainState(state.time + 1, state.needed, had)
        terminated = state.time == chain_length
        is_positive = jnp.where(terminated, had == state.needed, noise[0])
        reward = jnp.where(is_positive, 1.0, -1.0)
        info = {"regret": jnp.where(terminated, 1.0 - reward, 0.0)}
        return state, observe(state, noise[1:]), reward, terminated, info

    def draw(key: Key) -> Array:
        return flip_coins(key, 1 + n_distractor)

    observation = gymnasium.spaces.Box(0.0, 1.0, (1, 3 + n_distractor), np.float32)
    return native_core(begin, step, None, observation, 2, draw=draw)
