"""Levels played by hand: facts that need no MiniGrid."""

import jax
import numpy as np
import pytest

from rlcli import registry
from rlcli.environments.native.minigrid import cells, view
from rlcli.errors import RlcliError

# The results do not depend on compiler options; compiling takes a third of the time.
FAST_COMPILE = {"xla_backend_optimization_level": 0}
LEFT, RIGHT, FORWARD, PICK_UP, DROP, TOGGLE, DONE = range(7)


def make(name, **options):
    return registry.find("environment", name).factory(**options)


def compile_level(name):
    """The initial state and observation of a level, and its compiled step."""
    core = make(name)
    reset = jax.jit(core.reset, compiler_options=FAST_COMPILE)
    return reset(jax.random.key(0)), jax.jit(core.step, compiler_options=FAST_COMPILE)


@pytest.fixture(scope="module")
def empty():
    """The initial state and observation of a room of 5 x 5 cells, and its step."""
    return compile_level("MiniGrid-Empty-5x5-v0")


@pytest.fixture(scope="module")
def door_key():
    """A room of 5 x 5 cells: agent, key and door as in `test_a_key_opens_its_door`."""
    (state, _), step = compile_level("MiniGrid-DoorKey-5x5-v0")
    grid = np.array(cells.room(5, 5))
    grid[2, 1:4] = cells.WALL_CELL
    grid[2, 1] = cells.pack_cell(cells.LOCKED_DOOR, cells.YELLOW)
    grid[1, 2] = cells.pack_cell(cells.KEY, cells.YELLOW)
    grid[3, 3] = cells.GOAL_CELL
    position, direction = np.array([1, 1], np.int32), np.int32(1)
    state = state._replace(grid=grid, position=position, direction=direction)
    return state, step


def play(state, step, actions):
    """Plays actions; returns the last state and what the steps returned."""
    timesteps = []
    for action in actions:
        state, timestep = step(state, action, ())
        timesteps.append(jax.device_get(timestep))
    return jax.device_get(state), timesteps


def test_the_reward_falls_with_the_number_of_steps(empty):
    (state, _), step = empty
    to_the_goal = [FORWARD, FORWARD, RIGHT, FORWARD, FORWARD]
    _, timesteps = play(state, step, to_the_goal)
    assert [float(t.reward) for t in timesteps[:-1]] == [0, 0, 0, 0]
    assert float(timesteps[-1].reward) == pytest.approx(1 - 0.9 * 5 / 100)
    assert [bool(t.last) for t in timesteps] == [False] * 4 + [True]
    _, timesteps = play(state, step, [DONE] * 10 + to_the_goal)
    assert float(timesteps[-1].reward) == pytest.approx(1 - 0.9 * 15 / 100)


def test_walls_block_and_turns_are_by_a_quarter(empty):
    (state, obs), step = empty
    assert obs["direction"] == 0  # to the right
    state, timesteps = play(state, step, [LEFT, FORWARD])
    assert timesteps[-1].obs["direction"] == 3
    assert state.position.tolist() == [1, 1]
    _, timesteps = play(state, step, [RIGHT] * 5)
    assert [int(t.obs["direction"]) for t in timesteps] == [0, 1, 2, 3, 0]


def test_a_key_opens_its_door(door_key):
    state, step = door_key
    # Facing the door without the key, it stays locked.
    after, timesteps = play(state, step, [LEFT, TOGGLE, FORWARD])
    assert after.position.tolist() == [1, 1]
    assert timesteps[-1].obs["image"][3, 5].tolist() == [4, cells.YELLOW, 2]
    after, timesteps = play(after, step, [RIGHT, PICK_UP, LEFT, TOGGLE])
    assert timesteps[-1].obs["image"][3, 5].tolist() == [4, cells.YELLOW, 0]
    assert timesteps[-1].obs["image"][3, 6].tolist() == [5, cells.YELLOW, 0]  # carried
    after, timesteps = play(after, step, [FORWARD, FORWARD, RIGHT, FORWARD, FORWARD])
    assert float(timesteps[-1].reward) == pytest.approx(1 - 0.9 * 12 / 250)
    assert bool(timesteps[-1].last)


def test_a_key_of_another_colour_does_not_open_a_door(door_key):
    state, step = door_key
    state = state._replace(
        carrying=cells.pack_cell(cells.KEY, cells.BLUE), direction=np.int32(0)
    )
    after, _ = play(state, step, [TOGGLE, FORWARD])
    assert after.position.tolist() == [1, 1]


def test_an_object_is_dropped_in_front_and_only_there_where_nothing_is(door_key):
    state, step = door_key
    after, _ = play(state, step, [PICK_UP, LEFT, DROP])  # in front of the door
    assert cells.kind_of(after.carrying) == cells.KEY
    after, _ = play(after, step, [RIGHT, DROP])
    assert cells.kind_of(after.carrying) == cells.EMPTY
    np.testing.assert_array_equal(after.grid, state.grid)


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        # The agent `A` looks upward. `+` is visible, `x` a visible wall.
        (("...", "###", ".A."), ("   ", "xxx", "+++")),
        # Light passes a gap and spreads behind it; behind the row it passes the ends.
        (("...", "#.#", ".A."), ("+++", "x+x", "+++")),
        (
            (".....", "#...#", "..#..", ".....", "..A.."),
            ("+++++", "x+++x", "++x++", "+++++", "+++++"),
        ),
        (("...", "...", "#A#"), ("+++", "+++", "x+x")),
        (("...", "###", "#A#"), ("   ", "xxx", "x+x")),
    ],
)
def test_walls_hide_what_is_behind_them(rows, expected):
    letters = np.array([list(row) for row in rows]).T  # column, row
    visible = np.asarray(jax.jit(view.visible_cells)(letters != "#"))
    seen = np.where(visible, np.where(letters == "#", "x", "+"), " ")
    assert tuple("".join(row) for row in seen.T) == expected


def test_the_mission_of_key_corridor_is_the_colour_of_the_ball():
    core = make("MiniGrid-KeyCorridorS3R1-v0")
    reset = jax.jit(jax.vmap(core.reset), compiler_options=FAST_COMPILE)
    state, obs = jax.device_get(reset(jax.random.split(jax.random.key(0), 32)))
    is_ball = cells.kind_of(state.grid) == cells.BALL
    colours = cells.colour_of(state.grid)[is_ball]
    np.testing.assert_array_equal(obs["mission"], colours)
    assert len(set(colours.tolist())) == cells.COLOURS


def test_an_even_view_is_refused():
    with pytest.raises(RlcliError, match="must be odd") as error:
        make("MiniGrid-DoorKey-5x5-v0", agent_view_size=4)
    assert error.value.hint
