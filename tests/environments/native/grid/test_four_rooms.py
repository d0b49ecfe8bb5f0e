"""FourRooms, compared with loops over its cells."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlcli.environments.native.grid import FourRoomsState, four_rooms
from rlcli.errors import RlcliError

DOORS = {(3, 6), (10, 6), (6, 2), (7, 9)}  # from the figure of the paper
MOVES = [(-1, 0), (0, 1), (1, 0), (0, -1)]


def is_wall(row, column):
    if (row, column) in DOORS:
        return False
    border = row in (0, 12) or column in (0, 12)
    across = row == (6 if column < 6 else 7)
    return border or across or column == 6


FREE = [(r, c) for r in range(13) for c in range(13) if not is_wall(r, c)]


def number(cell):
    return np.int32(cell[0] * 13 + cell[1])


@pytest.fixture(scope="module")
def all_steps():
    """Every cell with every action and noise, and three goals; and their steps."""
    goals = [(8, 9), (3, 6), (1, 1)]
    cases = [
        (cell, goal, action, noise)
        for cell in FREE
        for goal in goals
        for action in range(4)
        for noise in range(4)
    ]
    cell, goal = (np.array([number(case[i]) for case in cases]) for i in range(2))
    action, noise = (np.array([case[i] for case in cases], np.int32) for i in (2, 3))
    found = {}
    for visual in (False, True):
        step = jax.jit(jax.vmap(four_rooms(visual=visual).step))
        taken = step(FourRoomsState(cell, goal), action, noise)
        found[visual] = jax.tree.map(np.asarray, taken)
    return cases, found


def next_cell(cell, direction):
    row, column = cell[0] + MOVES[direction][0], cell[1] + MOVES[direction][1]
    return cell if is_wall(row, column) else (row, column)


def test_the_number_of_cells_matches_the_paper():
    assert len(FREE) == 104


def test_every_step_follows_the_rules(all_steps):
    cases, found = all_steps
    state, timestep = found[False]
    for i, (cell, goal, action, noise) in enumerate(cases):
        after = next_cell(cell, (action + noise) % 4)
        assert timestep.obs[i].tolist() == [*after, *goal]
        assert int(state.cell[i]) == number(after)
        assert float(timestep.reward[i]) == float(after == goal)
        assert bool(timestep.last[i]) == (after == goal)
    np.testing.assert_array_equal(timestep.discount, 1.0 - timestep.last)


def test_the_visual_observation_has_rows_first_and_no_agent_in_a_wall(all_steps):
    """In gymnax the agent is transposed: at (5, 11), for example, it is in a wall."""
    cases, found = all_steps
    seen = found[True][1].obs
    walls = np.array([[is_wall(r, c) for c in range(13)] for r in range(13)])
    np.testing.assert_array_equal(seen[..., 0], np.broadcast_to(walls, seen.shape[:3]))
    assert not np.any(seen[..., 1] & walls)
    for i, (_, goal, _, _) in enumerate(cases):
        after = tuple(found[False][1].obs[i, :2].tolist())
        assert list(zip(*np.nonzero(seen[i, ..., 1]), strict=True)) == [after]
        assert list(zip(*np.nonzero(seen[i, ..., 2]), strict=True)) == [goal]


def test_the_visual_option_does_not_change_the_dynamics(all_steps):
    _, found = all_steps
    for plain, visual in zip(
        jax.tree.leaves((found[False][0], found[False][1].reward)),
        jax.tree.leaves((found[True][0], found[True][1].reward)),
        strict=True,
    ):
        np.testing.assert_array_equal(plain, visual)


@pytest.mark.parametrize("rate", [1 / 3, 0.9])
def test_a_failed_move_goes_in_any_other_direction(as_likely, rate):
    keys = jax.random.split(jax.random.key(0), 30_000)
    noise = jax.jit(jax.vmap(four_rooms(fail_probability=rate).draw))(keys)
    assert as_likely(np.bincount(noise), [1 - rate, *[rate / 3] * 3])


def reset(**options):
    keys = jax.random.split(jax.random.key(1), 30_000)
    _, obs = jax.jit(jax.vmap(four_rooms(**options).reset))(keys)
    obs = np.asarray(obs)
    return obs[:, 0] * 13 + obs[:, 1], obs[:, 2] * 13 + obs[:, 3]


def test_episodes_begin_in_the_upper_left_room_and_end_in_the_lower_right_one():
    cell, goal = reset()
    assert np.unique(cell).tolist() == [number((4, 1))]
    assert np.unique(goal).tolist() == [number((8, 9))]


def test_a_random_start_and_a_random_goal_differ(as_likely):
    cell, goal = reset(start=None, goal=None)
    assert np.all(cell != goal)
    likely = np.bincount([number(each) for each in FREE], minlength=169) / 104
    assert as_likely(np.bincount(cell, minlength=169), likely)
    assert as_likely(np.bincount(goal, minlength=169), likely)


@pytest.mark.parametrize("drawn", ["start", "goal"])
def test_start_or_goal_can_be_random_by_itself(as_likely, drawn):
    options = {"start": (7, 9), "goal": (7, 9)} | {drawn: None}
    cell, goal = reset(**options)
    found, fixed = (cell, goal) if drawn == "start" else (goal, cell)
    assert np.unique(fixed).tolist() == [number((7, 9))]
    free = [number(each) for each in FREE if each != (7, 9)]
    likely = np.bincount(free, minlength=169) / 103
    assert as_likely(np.bincount(found, minlength=169), likely)


@pytest.mark.parametrize("cell", [(0, 3), (6, 6), (13, 1), (-1, 1), (4, 40)])
@pytest.mark.parametrize("option", ["start", "goal"])
def test_start_and_goal_cannot_be_walls_or_outside(option, cell):
    with pytest.raises(RlcliError, match=rf"`{option}`.*{cell[0]}, {cell[1]}") as error:
        four_rooms(**{option: cell})
    assert "row" in error.value.hint


def test_start_and_goal_cannot_be_equal():
    with pytest.raises(RlcliError, match="goal"):
        four_rooms(start=(2, 2), goal=(2, 2))


def test_the_agent_is_drawn_in_its_cell_and_walls_are_dark():
    core = four_rooms()
    here, there = (
        core.render(FourRoomsState(jnp.int32(number(cell)), jnp.int32(number((8, 9)))))
        for cell in ((2, 5), (11, 8))
    )
    rows, columns = np.nonzero(np.any(here != there, axis=-1))
    assert {(r // 32, c // 32) for r, c in zip(rows, columns, strict=True)} == {
        (2, 5),
        (11, 8),
    }
    dark = np.all(here[16::32, 2::32] == [86, 97, 111], axis=-1)
    np.testing.assert_array_equal(
        dark, [[is_wall(r, c) for c in range(13)] for r in range(13)]
    )
