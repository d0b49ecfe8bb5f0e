"""GridWorld, compared with the values of a textbook and loops over its map."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlcli.environments.native.grid import grid_world
from rlcli.environments.native.toy_text.tabular import CellState
from rlcli.errors import RlcliError

MOVES = [(-1, 0), (0, 1), (1, 0), (0, -1)]
ODD = ("G.S#", ".#..", "TS.G")


def outcomes(core):
    """Next cell, reward and end, `[cells, 4, 3]`, for every cell, action and noise."""
    cells = int(core.observation.n)
    grid = np.mgrid[:cells, :4, :3].reshape(3, -1).astype(np.int32)
    state, timestep = jax.jit(jax.vmap(core.step))(CellState(grid[0]), grid[1], grid[2])
    found = (state.cell, timestep.reward, timestep.last)
    return tuple(np.asarray(each).reshape(cells, 4, 3) for each in found)


@pytest.mark.parametrize("rows", [("...G", ".#.T", "S..."), ODD])
def test_every_step_follows_the_map(rows):
    after, reward, last = outcomes(grid_world(layout=rows))
    for cell, letter in enumerate("".join(rows)):
        if letter in "GT#":
            continue
        row, column = divmod(cell, len(rows[0]))
        for action in range(4):
            # The intended direction, and a quarter turn to either side.
            for noise, turn in enumerate((0, -1, 1)):
                down, right = MOVES[(action + turn) % 4]
                r, c = row + down, column + right
                inside = 0 <= r < len(rows) and 0 <= c < len(rows[0])
                to = (r, c) if inside and rows[r][c] != "#" else (row, column)
                found = rows[to[0]][to[1]]
                worth = -0.04 + {"G": 1.0, "T": -1.0}.get(found, 0.0)
                where = (cell, action, noise)
                assert after[where] == to[0] * len(rows[0]) + to[1]
                assert reward[where] == pytest.approx(worth)
                assert last[where] == (found in "GT")


def test_cell_values_match_russell_and_norvig():
    after, reward, last = outcomes(grid_world())
    likely, value = np.array([0.8, 0.1, 0.1]), np.zeros(12)
    for _ in range(100):
        value = np.max((reward + ~last * value[after]) @ likely, axis=1)
    printed = [[0.812, 0.868, 0.918], [0.762, 0.660], [0.705, 0.655, 0.611, 0.388]]
    found = value.reshape(3, 4)
    np.testing.assert_allclose(found[0, :3], printed[0], atol=5e-4)
    np.testing.assert_allclose(found[1, [0, 2]], printed[1], atol=5e-4)
    np.testing.assert_allclose(found[2], printed[2], atol=5e-4)


def test_moves_slip_with_their_probabilities(as_likely):
    keys = jax.random.split(jax.random.key(0), 20_000)
    noise = jax.jit(jax.vmap(grid_world(success_rate=0.7).draw))(keys)
    assert as_likely(np.bincount(noise), [0.7, 0.15, 0.15])


@pytest.mark.parametrize(
    ("rows", "starts"), [(ODD, [2, 9]), (("G..", "#T."), [1, 2, 5])]
)
def test_episodes_begin_on_any_start_cell_or_else_on_any_floor_cell(
    as_likely, rows, starts
):
    keys = jax.random.split(jax.random.key(0), 5000)
    _, obs = jax.jit(jax.vmap(grid_world(layout=rows).reset))(keys)
    likely = np.bincount(starts, minlength=12) / len(starts)
    assert as_likely(np.bincount(obs, minlength=12), likely)
    assert obs.dtype == jnp.int32


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        (("S.X",), "X"),
        (("S..", "G."), "equal length"),
        ((), "equal length"),
        (("",), "equal length"),
        (("G#T",), "no cell to start in"),
    ],
)
def test_an_invalid_map_is_refused(rows, words):
    with pytest.raises(RlcliError, match=words) as error:
        grid_world(layout=rows)
    assert error.value.hint


def test_goals_have_flags_and_traps_are_red_on_maps_of_any_size():
    for rows in (ODD, ("." * 40, "GT" + "S" * 38)):
        frame = grid_world(layout=rows).render(CellState(jnp.int32(1))).astype(int)
        side = frame.shape[1] // len(rows[0])
        assert frame.shape == (side * len(rows) + 40, side * len(rows[0]), 3)
        for row, letters in enumerate(rows):
            for column, letter in enumerate(letters):
                part = frame[row * side : (row + 1) * side]
                part = part[:, column * side : (column + 1) * side].reshape(-1, 3)
                kinds = ([77, 143, 92], [233, 180, 174], [86, 97, 111])
                seen = [np.any(np.abs(part - c).sum(-1) < 9) for c in kinds]
                assert seen == [letter == "G", letter == "T", letter == "#"]
