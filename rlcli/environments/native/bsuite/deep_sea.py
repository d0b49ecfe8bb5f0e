"""DeepSea: find a treasure that only a long sequence of correct actions reaches."""

from typing import Any, NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np

from rlcli.environments.native.bsuite import Seed
from rlcli.environments.native.core import native_core
from rlcli.registry import register
from rlcli.types import Array, Core, Count, Key


class DeepSeaState(NamedTuple):
    """The position of the diver, and whether the treasure is out of reach."""

    row: Array  # int32: 0 is the top; `size` at the end of the episode
    column: Array  # int32: 0 is the left
    bad: Array  # bool: whether the diver has moved left from the diagonal


class DeepSeaNoise(NamedTuple):
    """The randomness of one step of the stochastic task."""

    succeeds: Array  # bool: whether a move to the right succeeds
    bonus: Array  # float32: reward noise at both ends of the lowest row


@register("environment", "bsuite/DeepSea")
def deep_sea(
    *,
    size: Count = 10,
    deterministic: bool = True,
    unscaled_move_cost: float = 0.01,
    randomize_actions: bool = True,
    mapping_seed: Seed = 42,
) -> Core:
    """Dives through a square grid: reward 1 for moving right in the lower right cell.

    The diver sinks one row per step and moves one column to the left or right; moving
    right costs unscaled_move_cost / size. Always moving right yields the maximum
    return, 1 − unscaled_move_cost; if not `deterministic`, its expected value is (1 − 1
    / size)^(size − 1) − unscaled_move_cost. A random policy finds the treasure in at
    most one of 2^size episodes. The action that moves right differs between cells. The
    episode terminates after `size` steps.
    Observation: float32 `[size, size]`: 1 in the cell of the diver; all 0 at the end.
    Actions: 0, 1. Logged: `bad_episodes`, 1 if the diver moved left from the diagonal;
    `denoised_return`, 1 for the treasure. From bsuite (Osband et al., 2019,
    https://arxiv.org/abs/1908.03568).

    Args:
        size: the number of rows and of columns.
        deterministic: if false, one of `size` moves to the right stays in its column,
            and normal noise is added to the reward at both ends of the lowest row.
        randomize_actions: if false, action 1 moves right in every cell.
        mapping_seed: the seed of the cells in which action 1 moves right, drawn as in
            bsuite.
    """
    mapping = _mapping(size, mapping_seed) if randomize_actions else np.ones(size**2)
    rightward = jnp.asarray(mapping, jnp.int32)
    cells = np.arange(size**2)
    end = size - 1

    def observe(state: DeepSeaState) -> Array:
        diver = cells == state.row * size + state.column  # no cell at the end
        return diver.astype(jnp.float32).reshape(size, size)

    def begin(key: Key) -> DeepSeaState:
        del key  # the initial state is fixed
        return DeepSeaState(jnp.int32(0), jnp.int32(0), jnp.bool_(False))

    def draw(key: Key) -> DeepSeaNoise:
        success_key, bonus_key = jax.random.split(key)
        succeeds = jax.random.uniform(success_key) >= 1 / size
        return DeepSeaNoise(succeeds, jax.random.normal(bonus_key))

    def step(state: DeepSeaState, action: Array, noise: Any = (True, 0.0)) -> tuple:
        succeeds, bonus = noise
        cell = state.row * size + state.column
        right = action == jnp.take(rightward, cell, mode="clip")
        treasure = right & (state.column == end)
        at_end = (state.row == end) & ((state.column == 0) | (state.column == end))
        reward = treasure + jnp.where(at_end, bonus, 0.0)
        reward = reward - jnp.where(right, unscaled_move_cost / size, 0.0)
        move = jnp.where(right, jnp.where(succeeds, 1, 0), -1)
        is_bad = state.bad | (~right & (state.row == state.column))
        column = jnp.clip(state.column + move, 0, end)
        state = DeepSeaState(state.row + 1, column, is_bad)
        terminated = state.row == size
        info = {
            "bad_episodes": (terminated & is_bad).astype(jnp.float32),
            "denoised_return": treasure.astype(jnp.float32),
        }
        return state, reward, terminated, info

    observation = gymnasium.spaces.Box(0.0, 1.0, (size, size), np.float32)
    noise = None if deterministic else draw
    return native_core(begin, step, observe, observation, 2, draw=noise)


def _mapping(size: int, seed: int) -> np.ndarray:
    """The action that moves right in each cell: 0 or 1, in row-major order."""
    return np.random.RandomState(seed).binomial(1, 0.5, size**2)
