"""Pong, compared with its rules in Python."""

import jax
import numpy as np
import pytest
from scipy import stats

from rlcli.environments.native.games.pong import PongState, pong
from rlcli.errors import RlcliError

FIELDS = [{}, {"width": 9, "height": 8, "reach": 1, "max_speed": 2}]
DEFAULTS = {"width": 40, "height": 30, "reach": 2, "max_speed": 3}
# The results do not depend on compiler options; compiling takes a third of the time.
FAST_COMPILE = {"xla_backend_optimization_level": 0}


def states(field, n=4000):
    """Random states, half of them near the paddles."""
    rng = np.random.default_rng(0)
    height, width, reach = field["height"], field["width"], field["reach"]
    column = rng.integers(0, width, n)
    near = rng.choice([0, 1, 2, width - 3, width - 2, width - 1], n)
    own, their = rng.integers(reach, height - reach, (2, n))
    column = np.where(np.arange(n) % 2 == 0, near, column)
    beside = np.where(column < width // 2, own, their) + rng.integers(-4, 5, n)
    row = np.where(np.arange(n) % 4 < 2, beside, rng.integers(0, height, n))
    state = PongState(
        own=own,
        their=their,
        row=np.clip(row, 0, height - 1),
        column=column,
        down=rng.integers(-field["max_speed"], field["max_speed"] + 1, n),
        right=rng.choice([-1, 1], n),
        last_row=rng.integers(0, height, n),
        last_column=rng.integers(0, width, n),
    )
    state = PongState(*(each.astype(np.int32) for each in state))
    return state, rng.integers(0, 3, n), rng.random(n) < 0.7


def reference_step(state, action, follows, field):
    """State and reward after a step."""
    height, width, reach = field["height"], field["width"], field["reach"]
    own, their, row, column, down, right, _, _ = state
    lowest = height - 1 - reach
    before = row, column
    own = min(max(own + {0: 0, 1: -1, 2: 1}[action], reach), lowest)
    if follows and their != row:
        their = min(max(their + (1 if row > their else -1), reach), lowest)
    row, column = row + down, column + right
    if row < 0:
        row, down = -row, -down
    elif row > height - 1:
        row, down = 2 * (height - 1) - row, -down
    for paddle, front, there in (
        (own, 1, right < 0 and column <= 1),
        (their, width - 2, right > 0 and column >= width - 2),
    ):
        if there and abs(row - paddle) <= reach:
            column, right = front - (column - front), -right
            down = round(
                down + (row - paddle) / reach
            )  # `round` also rounds half to even
            down = max(-field["max_speed"], min(field["max_speed"], down))
            break
    reward = 1 if column >= width else -1 if column < 0 else 0
    return (own, their, row, column, down, right, *before), reward


@pytest.mark.parametrize("changed", FIELDS)
def test_a_step_follows_the_rules(changed):
    field = DEFAULTS | changed
    state, action, follows = states(field)
    core = pong(**field)
    taken = jax.jit(jax.vmap(core.step), compiler_options=FAST_COMPILE)(
        state, action, follows
    )
    after, timestep = jax.tree.map(np.asarray, taken)
    found = [
        reference_step(tuple(map(int, each)), int(act), bool(follow), field)
        for *each, act, follow in zip(*state, action, follows, strict=True)
    ]
    expected, reward = (np.array(each) for each in zip(*found, strict=True))
    np.testing.assert_array_equal(np.stack(after, axis=1), expected)
    np.testing.assert_array_equal(timestep.reward, reward)
    np.testing.assert_array_equal(timestep.last, reward != 0)
    np.testing.assert_array_equal(timestep.discount, reward == 0)
    assert {-1, 0, 1} <= set(reward.tolist())
    turned = after.right != state.right
    assert 100 < turned.sum() < len(turned) - 100


@pytest.mark.slow
def test_the_ball_bounces_off_both_walls():
    """In gymnax there is no upper wall: the ball leaves the field for good."""
    row = np.array([0, 1, 2, 29, 28, 27], np.int32)
    down = np.array([-1, -3, -3, 1, 3, 3], np.int32)
    still = np.full(6, 15, np.int32)
    right = np.ones(6, np.int32)
    state = PongState(still, still, row, still, down, right, row, still)
    after, _ = jax.vmap(pong().step)(state, np.zeros(6, int), np.zeros(6, bool))
    assert after.row.tolist() == [1, 2, 1, 28, 27, 28]
    assert after.down.tolist() == (-down).tolist()


def test_the_ball_stays_between_the_walls_for_whole_games():
    core = pong()

    def game(key):
        begin, play = jax.random.split(key)

        def step(state, key):
            action = jax.random.randint(key, (), 0, 3)
            state, timestep = core.step(state, action, core.draw(key))
            return state, (state.row, timestep.last, timestep.reward)

        return jax.lax.scan(step, core.reset(begin)[0], jax.random.split(play, 200))[1]

    keys = jax.random.split(jax.random.key(0), 300)
    row, last, reward = jax.tree.map(
        np.asarray, jax.jit(jax.vmap(game), compiler_options=FAST_COMPILE)(keys)
    )
    over = np.cumsum(last, axis=1) - last > 0
    assert np.all((row >= 0) & (row < 30) | over)
    assert np.mean(np.any(last, axis=1)) > 0.9
    assert {-1, 1} == set(np.unique(reward[last & ~over]))


def test_games_begin_in_any_row_and_direction(as_likely):
    """In gymnax the initial state is fixed."""
    keys = jax.random.split(jax.random.key(0), 20_000)
    reset = jax.jit(jax.vmap(pong().reset), compiler_options=FAST_COMPILE)
    state, _ = jax.device_get(reset(keys))
    ways = (state.row * 3 + state.down + 1) * 2 + (state.right + 1) // 2
    assert as_likely(np.bincount(ways, minlength=180), np.full(180, 1 / 180))
    np.testing.assert_array_equal(state.column, 20)
    np.testing.assert_array_equal(state.last_row, state.row)
    np.testing.assert_array_equal(state.own, 15)


def test_the_visual_observation_has_paddles_ball_and_trail():
    field = DEFAULTS | FIELDS[1]
    state, action, follows = states(field, 300)
    core = pong(**field)
    taken = jax.jit(jax.vmap(core.step), compiler_options=FAST_COMPILE)(
        state, action, follows
    )
    after, timestep = jax.tree.map(np.asarray, taken)
    for i, seen in enumerate(timestep.obs):
        own, their, row, column, _, _, last_row, last_column = (
            int(each[i]) for each in after
        )
        expected = np.zeros((8, 9, 3), bool)
        expected[own - 1 : own + 2, 0, 0] = True
        expected[their - 1 : their + 2, 8, 0] = True
        if 0 <= column < 9:
            expected[row, column, 1] = True
        expected[last_row, last_column, 2] = True
        np.testing.assert_array_equal(seen, expected)


def test_the_numeric_observation_is_within_minus_one_and_one():
    state, action, follows = states(DEFAULTS, 500)
    core = pong(visual=False)
    taken = jax.jit(jax.vmap(core.step), compiler_options=FAST_COMPILE)(
        state, action, follows
    )
    after, timestep = jax.tree.map(np.asarray, taken)
    half = np.array([14.5, 14.5, 14.5, 19.5])
    places = np.stack([after.own, after.their, after.row, after.column], axis=1)
    numbers = np.clip(places / half - 1, -1, 1)
    np.testing.assert_allclose(timestep.obs[:, :4], numbers, atol=1e-6)
    np.testing.assert_allclose(timestep.obs[:, 4], after.down / 3, atol=1e-6)
    np.testing.assert_array_equal(timestep.obs[:, 5], after.right)


def test_an_opponent_with_less_skill_moves_less_often():
    keys = jax.random.split(jax.random.key(0), 5000)
    moves = jax.vmap(pong(opponent_skill=0.3).draw)(keys)
    assert stats.binomtest(int(moves.sum()), 5000, 0.3).pvalue > 0.001
    assert np.all(jax.vmap(pong().draw)(keys))


@pytest.mark.parametrize("options", [{"reach": 15}, {"max_speed": 30}])
def test_a_field_that_is_too_small_is_refused(options):
    with pytest.raises(RlcliError, match="30") as error:
        pong(**options)
    assert error.value.hint


def test_the_ball_is_drawn_at_its_position_or_at_the_edge():
    core = pong()

    def ball(row, column):
        state = PongState(*map(np.int32, (2, 27, row, column, 0, 1, 15, 20)))
        frame = core.render(state).astype(int)
        assert frame.shape == (480, 640, 3)
        rows, columns = np.nonzero(np.abs(frame - [250, 250, 249]).sum(-1) < 20)
        return rows.mean() / 16 - 0.5, columns.mean() / 16 - 0.5

    assert ball(10, 30) == pytest.approx((10, 30), abs=0.1)
    assert ball(10, 40) == pytest.approx((10, 39.3), abs=0.2)


def test_the_point_is_drawn_on_the_side_of_the_winner():
    def frame(column):
        state = PongState(*map(np.int32, (15, 15, 20, column, 0, 1, 20, 20)))
        return pong().render(state)[:70]  # above the ball

    playing, won, lost = (frame(column) for column in (20, 40, -1))
    for changed, side in ((won, slice(0, 320)), (lost, slice(320, 640))):
        other = slice(320, 640) if side.start == 0 else slice(0, 320)
        assert np.any(changed[:, side] != playing[:, side])
        np.testing.assert_array_equal(changed[:, other], playing[:, other])
