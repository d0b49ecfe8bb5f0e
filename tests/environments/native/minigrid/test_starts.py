"""Initial states of MiniGrid's levels: their distribution is that of the original."""

from collections import Counter

import jax
import numpy as np
import pytest
from scipy import stats

from rlcli.environments.native.minigrid import cells

MIN_P = 1e-3  # the seeds are fixed


def rows_of(states):
    """Everything that is random in initial states, as one row of integers each."""
    number = len(states.direction)
    columns = [states.grid.reshape(number, -1), states.position]
    columns += [np.reshape(states.direction, (number, 1))]
    if not isinstance(states.task, tuple) or hasattr(states.task, "_fields"):
        leaves = states.task if isinstance(states.task, tuple) else (states.task,)
        columns += [np.reshape(leaf, (number, 1)) for leaf in leaves]
    return np.concatenate(columns, axis=1).astype(np.int32)


def count_starts(states):
    return Counter(row.tobytes() for row in rows_of(states))


def reference_states(pair, number):
    """The initial states of the original, for as many seeds."""
    states = [pair.reset_reference(seed) for seed in range(number)]
    return jax.tree.map(lambda *leaves: np.stack(leaves), *states)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("MiniGrid-DoorKey-5x5-v0", 2 * 3 * 2 * 4),
        ("MiniGrid-Empty-Random-5x5-v0", 8 * 4),
        ("MiniGrid-MemoryS7-v0", 4 * 2 * 2),
    ],
)
def test_all_starts_of_the_original_are_equally_likely(pair_class, name, number):
    pair = pair_class(name)
    ours = count_starts(pair.resets(0, 100 * number)[0])
    theirs = count_starts(reference_states(pair, 20 * number))
    assert ours.keys() == theirs.keys()
    assert len(ours) == number
    assert stats.chisquare(list(ours.values())).pvalue > MIN_P


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["MiniGrid-DoorKey-6x6-v0", "MiniGrid-MemoryS13Random-v0"]
)
def test_starts_are_as_frequent_as_in_the_original(pair_class, name):
    pair = pair_class(name)
    ours = count_starts(pair.resets(0, 20_000)[0])
    theirs = count_starts(reference_states(pair, 3000))
    assert theirs.keys() <= ours.keys()
    assert similar(ours, theirs)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("MiniGrid-KeyCorridorS3R1-v0", 1500),
        ("MiniGrid-KeyCorridorS3R2-v0", 1500),
        ("MiniGrid-KeyCorridorS3R3-v0", 4000),
        ("MiniGrid-KeyCorridorS5R3-v0", 4000),
    ],
)
def test_rooms_and_doors_are_as_frequent_as_in_the_original(pair_class, name, number):
    pair = pair_class(name)
    ours, theirs = pair.resets(0, 6000)[0], reference_states(pair, number)
    for feature in (door_cells, door_walls, agent, ball, key, door_colours):
        counts = [
            Counter(map(feature, *fields))
            for fields in (
                (states.grid, states.position, states.direction)
                for states in (ours, theirs)
            )
        ]
        assert set(counts[1]) <= set(counts[0]), feature
        assert similar(*counts), feature
    for states in (ours, theirs):  # the mission is the colour of the ball
        assert [ball(grid)[2] for grid in states.grid] == states.task.tolist()


def doors(grid):
    return np.argwhere(cells.kind_of(grid) >= cells.CLOSED_DOOR)


def door_walls(grid, position, direction):
    """The walls with doors, and the kind of each: which rooms are connected."""
    del position, direction
    pitch = (grid.shape[0] - 1) // 3
    return tuple(
        (x % pitch == 0, x // pitch, y // pitch, int(cells.kind_of(grid[x, y])))
        for x, y in doors(grid)
    )


def door_cells(grid, position, direction):
    """The first door, with its place in the wall."""
    del position, direction
    return tuple(doors(grid)[0].tolist())


def door_colours(grid, position, direction):
    """Whether the colours of the first two doors are equal, and the first colour."""
    del position, direction
    colours = [int(cells.colour_of(grid[x, y])) for x, y in doors(grid)[:2]]
    return colours[0], colours[0] == colours[-1]


def agent(grid, position, direction):
    """The agent's cell and direction, and whether a locked door is beside it."""
    (_, y), *_ = np.argwhere(cells.kind_of(grid) == cells.LOCKED_DOOR)
    return *position.tolist(), int(direction), bool(y == position[1])


def ball(grid, position=None, direction=None):
    (x, y), *_ = np.argwhere(cells.kind_of(grid) == cells.BALL)
    return int(x), int(y), int(cells.colour_of(grid[x, y]))


def key(grid, position, direction):
    """The key, and whether its colour is that of the locked door."""
    (x, y), *_ = np.argwhere(cells.kind_of(grid) == cells.KEY)
    locked = grid[cells.kind_of(grid) == cells.LOCKED_DOOR][0]
    return int(x), int(y), bool(cells.colour_of(locked) == cells.colour_of(grid[x, y]))


def similar(ours, theirs):
    """Whether two samples may have one distribution: χ², with rare values pooled."""
    common = [value for value in ours if ours[value] + theirs[value] >= 60]
    rows = []
    for sample in (ours, theirs):
        counts = [sample[value] for value in common]
        rows.append([*counts, sum(sample.values()) - sum(counts)])
    table = np.array(rows)
    table = table[:, table.sum(axis=0) > 0]
    return table.shape[1] == 1 or stats.chi2_contingency(table).pvalue > MIN_P
