"""MiniGrid's rules, compared step by step with the original."""

import jax
import numpy as np
import pytest

from rlcli.environments.native.minigrid import cells
from rlcli.environments.native.minigrid.game import MiniGridState

LEVELS = [
    *(f"MiniGrid-Empty-{n}x{n}-v0" for n in (5, 6, 8, 16)),
    *(f"MiniGrid-Empty-Random-{n}x{n}-v0" for n in (5, 6)),
    *(f"MiniGrid-DoorKey-{n}x{n}-v0" for n in (5, 6, 8, 16)),
    *(f"MiniGrid-KeyCorridorS{n}-v0" for n in ("3R1", "3R2", "3R3", "4R3", "5R3")),
    "MiniGrid-KeyCorridorS6R3-v0",
    *(f"MiniGrid-MemoryS{n}-v0" for n in (7, 9, 11, 13)),
    *(f"MiniGrid-MemoryS{n}Random-v0" for n in (13, 17)),
]
INSIDE = (  # the objects of random grids, with their frequencies
    (cells.EMPTY, 10),
    (cells.WALL, 3),
    (cells.OPEN_DOOR, 1),
    (cells.CLOSED_DOOR, 1),
    (cells.LOCKED_DOOR, 2),
    (cells.KEY, 2),
    (cells.BALL, 2),
    (cells.GOAL, 1),
)


def random_states(template, number, seed):
    """States with random objects in all cells, and a random agent."""
    rng = np.random.default_rng(seed)
    kinds, weights = np.array(INSIDE).T
    width, height = template.grid.shape
    shape = (number, width - 2, height - 2)
    kind = rng.choice(kinds, shape, p=weights / weights.sum())
    # The original encodes no colour of an empty cell, and goals are green.
    colour = np.where(kind == cells.WALL, cells.GREY, rng.integers(0, 3, shape))
    colour = np.select(
        [kind == cells.EMPTY, kind == cells.GOAL], [0, cells.GREEN], colour
    )
    grid = np.stack([cells.room(width, height)] * number)
    grid[:, 1:-1, 1:-1] = cells.pack_cell(kind, colour)
    position = rng.integers(1, [width - 1, height - 1], (number, 2), np.int32)
    grid[np.arange(number), position[:, 0], position[:, 1]] = cells.EMPTY_CELL
    carried = rng.choice(
        [cells.EMPTY, cells.KEY, cells.BALL], number, p=[0.5, 0.4, 0.1]
    )
    colour = np.where(carried == cells.EMPTY, 0, rng.integers(0, 3, number))
    return MiniGridState(
        grid,
        position,
        rng.integers(4, size=number, dtype=np.int32),
        np.asarray(cells.pack_cell(carried, colour)),
        rng.integers(50, size=number, dtype=np.int32),
        jax.tree.map(lambda leaf: np.stack([leaf] * number), template.task),
    )


@pytest.mark.parametrize(
    ("size", "see_through_walls"),
    [(7, False)]
    + [
        pytest.param(*options, marks=pytest.mark.slow)
        for options in ((7, True), (3, False), (5, False), (11, True), (31, False))
    ],
)
def test_a_step_in_any_grid_equals_that_of_minigrid(
    pair_class, size, see_through_walls
):
    pair = pair_class(
        "MiniGrid-DoorKey-8x8-v0",
        agent_view_size=size,
        see_through_walls=see_through_walls,
    )
    template = pair.reset_reference(0)
    states = random_states(template, 700, size)
    pair.check_steps(states, np.arange(700) % 7)


PLAYED = {
    "MiniGrid-Empty-Random-5x5-v0": True,
    "MiniGrid-DoorKey-5x5-v0": False,
    "MiniGrid-DoorKey-6x6-v0": False,
    "MiniGrid-KeyCorridorS3R1-v0": False,
    "MiniGrid-KeyCorridorS4R3-v0": False,
    "MiniGrid-MemoryS7-v0": True,
    "MiniGrid-MemoryS13Random-v0": False,
}


@pytest.mark.slow
@pytest.mark.parametrize("name", PLAYED)
def test_episodes_of_random_actions_equal_those_of_minigrid(pair_class, name):
    pair = pair_class(name)
    num_ends = pair.check_play(seed=3, episodes=20, steps=120)
    assert num_ends > 0 or not PLAYED[name]


@pytest.mark.slow
@pytest.mark.parametrize("name", LEVELS)
def test_every_level_has_the_time_limit_and_reward_of_minigrid(pair_class, name):
    pair = pair_class(name)
    assert pair.part.facts["time_limit"] == pair.reference.max_steps
    states, _ = pair.resets(1, 14)
    assert states.grid.shape[1:] == (pair.reference.width, pair.reference.height)
    states = states._replace(steps=states.steps + pair.reference.max_steps // 2)
    pair.check_steps(states, np.arange(14) % 7)


@pytest.mark.slow
def test_success_in_key_corridor_is_picking_up_the_ball(pair_class):
    pair = pair_class("MiniGrid-KeyCorridorS3R1-v0")
    states, _ = pair.resets(0, 8)
    positions, directions = [], []
    for grid in states.grid:
        (x, y), *_ = np.argwhere(cells.kind_of(grid) == cells.BALL)
        positions.append((x - 1, y))  # in the door, which is to the left of the ball
        directions.append(0)
    states = states._replace(
        position=np.array(positions, np.int32), direction=np.array(directions, np.int32)
    )
    _, timestep = pair.step(states, np.full(8, 3))
    assert np.all(timestep.last)
    pair.check_steps(states, np.full(8, 3))
