"""ConnectFour, compared with a search through all lines in Python."""

import jax
import numpy as np
import pytest

from rlcli.environments.native.games.connect_four import (
    ConnectFourNoise,
    ConnectFourState,
    completing_cells,
    connect_four,
)

OWN, THEIR = 1, 2
SIZES = [(6, 7), (4, 5)]

# The results do not depend on compiler options; compiling takes a third of the time.
FAST_COMPILE = {"xla_backend_optimization_level": 0}


def words(stones):
    """Boards of bools `[..., rows, columns]` as the words of a state."""
    bits = 1 << np.arange(stones.shape[-1], dtype=np.uint32)
    rows = np.sum(np.where(stones, bits, 0), axis=-1, dtype=np.uint32)
    return np.pad(rows, [*[(0, 0)] * (rows.ndim - 1), (3, 3)])


def state_of(board):
    return ConnectFourState(words(board == OWN), words(board == THEIR))


def lines(rows, columns):
    """Every line of four cells."""
    found = []
    for row in range(rows):
        for column in range(columns):
            for down, right in [(0, 1), (1, 0), (1, 1), (-1, 1)]:
                line = [(row + i * down, column + i * right) for i in range(4)]
                if all(0 <= r < rows and 0 <= c < columns for r, c in line):
                    found.append(line)
    return found


def has_four(board, whose, every):
    return any(all(board[r][c] == whose for r, c in line) for line in every)


def with_stone(board, column, whose):
    """A copy with one more stone, or None if the column is full."""
    board = [list(row) for row in board]
    for row in reversed(board):
        if row[column] == 0:
            row[column] = whose
            return board
    return None


def is_full(board):
    return all(stone for row in board for stone in row)


def opponent_column(board, which, looks, every):
    """The column that the opponent plays."""
    room = [c for c in range(len(board[0])) if board[0][c] == 0]
    best = room
    if looks:
        wins, blocks = (
            [c for c in room if has_four(with_stone(board, c, whose), whose, every)]
            for whose in (THEIR, OWN)
        )
        best = wins or blocks or room
    return best[int(np.float32(which) * np.float32(len(best)))]


def reference_step(board, column, which, looks, every):
    """The board after a step, the reward, and whether the game is over."""
    after = with_stone(board, column, OWN)
    if after is None:
        return board, -1, True
    if has_four(after, OWN, every):
        return after, 1, True
    if is_full(after):
        return after, 0, True
    after = with_stone(after, opponent_column(after, which, looks, every), THEIR)
    if has_four(after, THEIR, every):
        return after, -1, True
    return after, 0, is_full(after)


@pytest.fixture(scope="module", params=SIZES, ids=str)
def random_games(request):
    """Random steps of many games, and those of rlcli; either side plays first."""
    rows, columns = request.param
    rng, every, cases = np.random.default_rng(0), lines(rows, columns), []
    while len(cases) < 1200:
        board = [[0] * columns for _ in range(rows)]
        if rng.random() < 0.5:
            board = with_stone(board, rng.integers(columns), THEIR)
        over = False
        while not over:
            room = [c for c in range(columns) if board[0][c] == 0]
            # Sometimes a column that may be full.
            any_ = rng.random() < 0.05
            column = int(rng.integers(columns) if any_ else rng.choice(room))
            which = rng.random(dtype=np.float32)
            looks = bool(rng.random() < 0.5)
            after, reward, over = reference_step(board, column, which, looks, every)
            cases.append((board, column, which, looks, after, reward, over))
            board = after
    board, column, which, looks, *expected = (
        np.array(each) for each in zip(*cases, strict=True)
    )
    core = connect_four(rows=rows, columns=columns)
    step = jax.jit(jax.vmap(core.step), compiler_options=FAST_COMPILE)
    taken = step(state_of(board), column, ConnectFourNoise(which, looks))
    return expected, board, jax.device_get(taken), step


def test_a_step_follows_the_rules(random_games):
    (after, reward, over), _, (state, timestep), _ = random_games
    # These players are too weak for a draw on the larger board.
    outcomes = (-1, 1) if after.shape[1] == 6 else (-1, 0, 1)
    jax.tree.map(np.testing.assert_array_equal, state, state_of(after))
    np.testing.assert_array_equal(timestep.reward, reward)
    np.testing.assert_array_equal(timestep.last, over)
    np.testing.assert_array_equal(timestep.discount, 1.0 - over)
    assert all(np.sum(over & (reward == each)) > 3 for each in outcomes)


def test_the_mask_has_the_columns_with_room(random_games):
    (after, _, _), _, (_, timestep), _ = random_games
    np.testing.assert_array_equal(timestep.obs["action_mask"], after[:, 0] == 0)
    assert timestep.obs["action_mask"].dtype == np.int8
    np.testing.assert_array_equal(timestep.obs["board"][..., 0], after == OWN)
    np.testing.assert_array_equal(timestep.obs["board"][..., 1], after == THEIR)


def test_a_masked_column_loses_immediately_and_leaves_the_board_unchanged(random_games):
    _, board, _, step = random_games
    full = board[np.any(board[:, 0] != 0, axis=1)]
    assert len(full) > 100
    full = np.resize(full, board.shape)  # repeated, for the program of the fixture
    forbidden = np.argmax(full[:, 0] != 0, axis=1)
    rng = np.random.default_rng(2)
    choice = rng.random(len(full), dtype=np.float32)
    noise = ConnectFourNoise(choice, rng.random(len(full)) < 0.5)
    after, timestep = step(state_of(full), forbidden, noise)
    jax.tree.map(np.testing.assert_array_equal, after, state_of(full))
    np.testing.assert_array_equal(timestep.reward, -1.0)
    assert np.all(timestep.last)


def test_four_in_a_row_are_found_on_any_board():
    rng = np.random.default_rng(1)
    boards = rng.random((1000, 6, 7)) < rng.uniform(0.2, 0.7, (1000, 1, 1))
    every = lines(6, 7)
    assert len(every) == 69
    expected = [has_four(board.tolist(), True, every) for board in boards]
    assert 100 < sum(expected) < 900
    stones = words(boards)
    found = (
        np.asarray(
            jax.jit(jax.vmap(completing_cells), compiler_options=FAST_COMPILE)(stones)
        )
        & stones[:, 3:-3]
    )
    np.testing.assert_array_equal(np.any(found != 0, axis=1), expected)


def test_the_opponent_looks_with_the_probability_of_its_skill(as_likely, is_uniform):
    keys = jax.random.split(jax.random.key(0), 10_000)
    draw = jax.jit(jax.vmap(connect_four(opponent_skill=0.3).draw))
    noise = jax.device_get(draw(keys))
    assert as_likely(np.bincount(noise.is_skilled), [0.7, 0.3])
    assert is_uniform(noise.choice[:, None], 0, 1)


@pytest.mark.parametrize(
    ("begins", "likely"), [("either", 0.5), ("agent", 0.0), ("opponent", 1.0)]
)
def test_the_first_player_is_an_option(as_likely, begins, likely):
    keys = jax.random.split(jax.random.key(0), 5000)
    reset = jax.jit(
        jax.vmap(connect_four(begins=begins).reset), compiler_options=FAST_COMPILE
    )
    state, obs = jax.device_get(reset(keys))
    assert not np.any(state.own)
    assert not np.any(state.their[:, :8])
    stone = state.their[:, 8]
    assert np.all(stone & (stone - 1) == 0)  # one at most
    # Its column, or 7 without a stone.
    column = np.where(stone > 0, np.log2(np.maximum(stone, 1)), 7)
    lowest = np.bincount(column.astype(int), minlength=8)
    if begins == "agent":
        assert lowest[7] == 5000
    else:
        assert as_likely(lowest, [likely / 7] * 7 + [1 - likely])
    np.testing.assert_array_equal(obs["action_mask"], 1)


def test_stones_are_drawn_in_their_colours():
    board = np.zeros((6, 7), np.int8)
    board[5, 2], board[5, 6], board[4, 2] = OWN, THEIR, THEIR
    frame = connect_four().render(state_of(board)).astype(int)
    centres = frame[45 : 45 + 6 * 70 : 70, 45 : 45 + 7 * 70 : 70]
    red, yellow = (
        np.abs(centres - colour).sum(-1) < 9
        for colour in ([187, 58, 49], [222, 176, 46])
    )
    np.testing.assert_array_equal(red, board == OWN)
    np.testing.assert_array_equal(yellow, board == THEIR)
