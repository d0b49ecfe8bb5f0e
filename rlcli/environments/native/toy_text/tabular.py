"""Tabular environments: enumerated states with all outcomes in one table.

A single read from one integer table gives the next state of an action, its reward and
whether the episode terminates.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np

from rlcli.environments.native.core import native_core
from rlcli.errors import RlcliError
from rlcli.types import Array, Core, Key


class World(NamedTuple):
    """The transitions of a tabular environment; arrays `[states, actions, outcomes]`.

    Outcome 0 is the intended effect of the action; the others are random alternatives.
    """

    next_state: np.ndarray  # the next state
    reward_index: np.ndarray  # the index of the reward in `Rewards`
    terminates: np.ndarray  # whether the episode terminates


def intended_outcomes(world: World) -> World:
    """The world without random alternatives."""
    return World(*(table[..., :1] for table in world))


class CellState(NamedTuple):
    """The current cell."""

    cell: Array  # int32: the observation


Rewards = Sequence[Array | float]
Lookup = Callable[[Array, Array, Array | int], tuple[Array, Array, Array]]


def outcome_lookup(world: World, rewards: Rewards) -> Lookup:
    """Builds the lookup (state, action, outcome) → (next state, reward, terminated)."""
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
        reward_index = (entry >> 1) & ((1 << bits) - 1)
        reward = jnp.asarray(rewards[0], jnp.float32)
        for index, other_reward in enumerate(rewards[1:], 1):
            reward = jnp.where(reward_index == index, other_reward, reward)
        return entry >> (bits + 1), reward.astype(jnp.float32), (entry & 1) == 1

    return read


def choose_outcome(uniform: Array, probability: Array | float) -> Array:
    """Maps a number in [0, 1) to outcome 0 with `probability`, else 1 or 2 equally."""
    side = jnp.where(uniform < probability + (1 - probability) / 2, 1, 2)
    return jnp.where(uniform < probability, 0, side)


def choose_uniformly(uniform: Array, options: np.ndarray) -> Array:
    """Maps a number in [0, 1) to one of the options `[n]`, uniformly."""
    if len(options) == 1:
        return jnp.asarray(options[0])
    return jnp.asarray(options)[(uniform * len(options)).astype(jnp.int32)]


def tabular_environment(
    world: World,
    rewards: Rewards,
    starts: np.ndarray,
    render: Callable[[int], Any],
    success_probability: Array | float | None,
) -> Core:
    """Builds an environment whose state is a cell, which is also the observation.

    Args:
        world: with three outcomes of each action.
        starts: the initial cells, int32, chosen uniformly.
        render: draws a cell.
        success_probability: the probability of the intended outcome; None: always.
    """
    is_certain = success_probability is None
    read = outcome_lookup(intended_outcomes(world) if is_certain else world, rewards)

    def begin(key: Key) -> CellState:
        return CellState(choose_uniformly(jax.random.uniform(key), starts))

    def draw(key: Key) -> Array:
        assert success_probability is not None  # else nothing is drawn
        return choose_outcome(jax.random.uniform(key), success_probability)

    def step(state: CellState, action: Array, outcome: Array | int = 0) -> tuple:
        cell, reward, ends = read(state.cell, action, outcome)
        return CellState(cell), reward, ends

    return native_core(
        begin,
        step,
        lambda state: state.cell,
        gymnasium.spaces.Discrete(len(world.next_state), dtype=np.int32),
        4,
        render=lambda state: render(int(state.cell)),
        draw=None if is_certain else draw,
    )


def parse_map(
    rows: tuple[str, ...], letters: str, example: tuple[str, ...]
) -> np.ndarray:
    """Parses a map into its letters, `[rows, columns]`, or raises an `RlcliError`."""
    hint = f"a map is a list of rows, such as {list(example)}"
    unknown_letters = sorted(set("".join(rows)) - set(letters))
    if unknown_letters:
        allowed_letters = ", ".join(f"`{letter}`" for letter in letters)
        raise RlcliError(
            f"a map may contain {allowed_letters}, but this one has {unknown_letters}",
            hint,
        )
    if len({len(row) for row in rows}) != 1 or not rows[0]:
        raise RlcliError(
            "the rows of a map must have equal length, but these differ", hint
        )
    return np.array([list(row) for row in rows])


def grid_moves(rows: int, columns: int, moves: Sequence[tuple[int, int]]) -> np.ndarray:
    """The cells that moves `(down, right)` lead to, `[cells, moves]`; edges block."""
    row, column = np.divmod(np.arange(rows * columns)[:, None], columns)
    down, right = np.array(moves).T
    row = np.clip(row + down, 0, rows - 1)
    return row * columns + np.clip(column + right, 0, columns - 1)


def slippery_world(
    successors: np.ndarray, worth: np.ndarray, ends: np.ndarray
) -> World:
    """The transitions of moves that may slip to either side: outcomes 0, 1 and 2.

    Terminal cells lead to themselves, with reward index 0.

    Args:
        successors: the cell that each move leads to, `[cells, moves]`.
        worth: the reward index for entering a cell, `[cells]`.
        ends: whether a cell is terminal, `[cells]`.
    """
    cells = np.arange(len(successors))[:, None]
    successors = np.where(ends[:, None], cells, successors)
    worth = np.where(ends[:, None], 0, worth[successors])
    slips = slip_actions(successors.shape[1])
    return World(*(table[:, slips] for table in (successors, worth, ends[successors])))


def slip_actions(actions: int) -> np.ndarray:
    """The outcomes `[actions, 3]` of each action: itself and its two neighbours.

    Actions with consecutive numbers are at right angles.
    """
    return (np.arange(actions)[:, None] + [0, -1, 1]) % actions
