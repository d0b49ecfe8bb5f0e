"""Tables: worlds of numbered states in which every outcome can be listed.

A world is read from one table of whole numbers: to look up where an action leads, what
it is worth and whether it ends the episode is a single read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np

from rlcli.environments.native.timesteps import make_timestep
from rlcli.types import Array, ArrayTree, Environment, Key, TimeStep


class World(NamedTuple):
    """What each action leads to; `[states, actions, outcomes]` each.

    Outcome 0 is what the action is meant to do; others are where chance may lead.
    """

    next_state: np.ndarray  # the state that follows
    reward_index: np.ndarray  # the number of the reward, as in `Rewards`
    terminates: np.ndarray  # whether the episode terminates


class CellState(NamedTuple):
    """Where one is."""

    cell: Array  # int32: the observation


Rewards = Sequence[Array | float]
Lookup = Callable[[Array, Array, Array | int], tuple[Array, Array, Array]]


def outcome_lookup(world: World, rewards: Rewards) -> Lookup:
    """A function of (state, action, outcome) that gives (state after, reward, ends)."""
    bits = max(1, (len(rewards) - 1).bit_length())
    entries = (
        world.next_state.astype(np.int32) << bits | world.reward_index
    ) << 1 | world.terminates
    _, actions, outcomes = entries.shape
    table = jnp.asarray(entries.ravel(), jnp.int32)

    def read(
        state: Array, action: Array, outcome: Array | int
    ) -> tuple[Array, Array, Array]:
        index = (state * actions + action) * outcomes + outcome
        entry = jnp.take(table, index, mode="clip")
        worth = (entry >> 1) & ((1 << bits) - 1)
        reward = jnp.asarray(rewards[0], jnp.float32)
        for number, other_reward in enumerate(rewards[1:], 1):
            reward = jnp.where(worth == number, other_reward, reward)
        return entry >> (bits + 1), reward.astype(jnp.float32), (entry & 1) == 1

    return read


def choose_outcome(uniform: Array, probability: Array | float) -> Array:
    """An outcome, int32: 0 with probability `probability`, 1 and 2 equally else."""
    side = jnp.where(uniform < probability + (1 - probability) / 2, 1, 2)
    return jnp.where(uniform < probability, 0, side)


def choose_uniformly(uniform: Array, options: np.ndarray) -> Array:
    """One of the options `[n]`, all equally likely, by a number in [0, 1)."""
    if len(options) == 1:
        return jnp.asarray(options[0])
    return jnp.asarray(options)[(uniform * len(options)).astype(jnp.int32)]


def tabular_environment(
    read: Lookup,
    cells: int,
    starts: np.ndarray,
    render: Callable[[int], Any],
    *,
    success_probability: Array | float | None,
) -> Environment:
    """The world in which the state is a cell, and is seen.

    Args:
        read: as `outcome_lookup` gives it; with three outcomes, unless
            `success_probability` is None.
        starts: the cells to begin in, int32, all equally likely.
        render: draws a cell.
        success_probability: the probability that an action does what it is meant to do;
            None: sure.
    """

    def reset(key: Key) -> tuple[CellState, Array]:
        cell = choose_uniformly(jax.random.uniform(key), starts)
        return CellState(cell), cell

    def draw(key: Key) -> ArrayTree:
        return (
            ()
            if success_probability is None
            else choose_outcome(jax.random.uniform(key), success_probability)
        )

    def step(
        state: CellState, action: Array, noise: ArrayTree
    ) -> tuple[CellState, TimeStep]:
        outcome = 0 if success_probability is None else noise
        cell, reward, ends = read(state.cell, action, outcome)
        return CellState(cell), make_timestep(cell, reward, ends)

    return Environment(
        reset=reset,
        step=step,
        observation=gymnasium.spaces.Discrete(cells, dtype=np.int32),
        action=gymnasium.spaces.Discrete(4),
        render=lambda state: render(int(state.cell)),
        draw=draw,
    )


def grid_moves(rows: int, columns: int, moves: Sequence[tuple[int, int]]) -> np.ndarray:
    """Where moves `(down, right)` lead on a grid, `[cells, moves]`; edges hold."""
    row, column = np.divmod(np.arange(rows * columns)[:, None], columns)
    down, right = np.array(moves).T
    row = np.clip(row + down, 0, rows - 1)
    return row * columns + np.clip(column + right, 0, columns - 1)


def slippery_world(
    successors: np.ndarray, worth: np.ndarray, ends: np.ndarray
) -> World:
    """The world of moves that may slip to either side: outcomes 0, 1 and 2.

    Nothing leads from a cell that is an end but to itself, and that is worth number 0.

    Args:
        successors: the cell that each move leads to, `[cells, moves]`.
        worth: the number of the reward for coming to a cell, `[cells]`.
        ends: whether the episode terminates there, `[cells]`.
    """
    cells = np.arange(len(successors))[:, None]
    successors = np.where(ends[:, None], cells, successors)
    worth = np.where(ends[:, None], 0, worth[successors])
    slips = slip_actions(successors.shape[1])
    return World(*(table[:, slips] for table in (successors, worth, ends[successors])))


def slip_actions(actions: int) -> np.ndarray:
    """The actions `[actions, 3]` that come of each: itself, and those to its sides.

    Neighbours in the numbers of the actions are at right angles.
    """
    return (np.arange(actions)[:, None] + [0, -1, 1]) % actions
