"""Catch, compared with bsuite."""

import jax.numpy as jnp
import numpy as np
import pytest
from bsuite.environments import catch as original
from scipy import stats
from tiers import quick_first

from rlcli.environments.native.bsuite.catch import CatchState, catch

SIZES = [{}, {"rows": 4, "columns": 6}, {"rows": 2, "columns": 1}]


def state_of(env):
    return CatchState(
        *(np.int32(each) for each in (env._ball_x, env._ball_y, env._paddle_x))
    )


@pytest.mark.parametrize("size", quick_first(SIZES, quick=2))
def test_a_step_matches_bsuite_for_all_ball_and_paddle_positions(
    pair_class, fits, size
):
    reference, rng = original.Catch(seed=1, **size), np.random.default_rng(2)
    pair = pair_class(catch(**size), state_of)
    fits(pair.core, reference)
    pair.play(reference, 100, rng)
    rows, columns = pair.core.observation.shape
    for _ in range(2000):
        reference._ball_x, reference._paddle_x = rng.integers(columns, size=2)
        reference._ball_y = rng.choice([rows - 2, rng.integers(rows - 1)])
        pair.act(reference, rng.integers(3))
    *_, (_, reward, last, gained) = pair.check()
    assert np.sum(reward > 0) > 100
    assert np.sum(gained["regret"] == 2) == np.sum(reward < 0)
    assert np.sum(last) == np.sum(reward != 0)


def test_initial_states_match_bsuite_with_the_ball_in_any_column(pair_class):
    pair, reference = pair_class(catch(), state_of), original.Catch(seed=0)
    state, obs = pair.resets(0, 5000)
    counts = np.bincount(state.x, minlength=5)
    assert stats.chisquare(counts).pvalue > 0.001
    seen = {}
    for _ in range(50):
        shown = reference.reset().observation
        seen[shown.tobytes()] = state_of(reference)
    assert {each.tobytes() for each in obs} == seen.keys()
    for each, begun in zip(obs[:20], zip(*state, strict=True), strict=False):
        assert seen[each.tobytes()] == begun


def test_the_ball_is_drawn_in_its_cell_and_its_colour_shows_the_result():
    def drawn(*state):
        state = CatchState(*(jnp.int32(each) for each in state))
        return catch().render(state)

    frame = drawn(1, 0, 2)
    assert frame.shape == (400, 200, 3)
    assert frame[20, 60].tolist() == [0xE3, 0xB3, 0x41]
    assert drawn(2, 9, 2)[375, 100].tolist() == [0x4D, 0x8F, 0x5C]
    assert drawn(1, 9, 2)[380, 60].tolist() == [0xC2, 0x41, 0x3A]
