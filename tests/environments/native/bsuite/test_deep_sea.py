"""DeepSea, compared with bsuite."""

from types import SimpleNamespace

import jax
import numpy as np
import pytest
from bsuite.environments import deep_sea as original
from scipy import stats
from tiers import quick_first

from rlcli.environments.native.bsuite.deep_sea import DeepSeaState, deep_sea

SEAS = [{}, {"size": 7, "mapping_seed": 3}, {"size": 1}, {"unscaled_move_cost": 0.5}]


def state_of(env):
    return DeepSeaState(
        np.int32(env._row), np.int32(env._column), np.bool_(env._bad_episode)
    )


def theirs_of(**options):
    return original.DeepSea(**{"size": 10, "mapping_seed": 42, **options})


def anywhere(rng, reference):
    """Places the diver in any cell, including unreachable ones."""
    reference._row, reference._column = rng.integers(reference._size, size=2)
    reference._bad_episode = bool(rng.integers(2))


@pytest.mark.parametrize("sea", quick_first(SEAS, quick=2))
def test_a_step_matches_bsuite_for_all_diver_positions(pair_class, fits, sea):
    reference, rng = theirs_of(**sea), np.random.default_rng(1)
    pair = pair_class(deep_sea(**sea), state_of)
    fits(pair.core, reference)
    pair.play(reference, 60, rng)
    for _ in range(2000):
        anywhere(rng, reference)
        pair.act(reference, rng.integers(2))
    *_, (_, _, last, gained) = pair.check(atol=1e-7)
    assert np.sum(last) > 60
    assert np.sum(gained["denoised_return"]) > 20
    assert 20 < np.sum(gained["bad_episodes"]) < np.sum(last)


def test_without_randomize_actions_the_mapping_is_constant(pair_class):
    with pytest.warns(UserWarning, match="debug"):
        reference = theirs_of(randomize_actions=False)
    pair = pair_class(deep_sea(randomize_actions=False), state_of)
    rng = np.random.default_rng(0)
    for _ in range(500):
        anywhere(rng, reference)
        pair.act(reference, rng.integers(2))
    before, action, _, after, _ = pair.check(atol=1e-7)
    inside = (before.column > 0) & (before.column < 9)
    moved = (after.column - before.column)[inside]
    np.testing.assert_array_equal(moved, 2 * action[inside] - 1)


def test_a_stochastic_step_matches_bsuite_with_the_same_noise(pair_class):
    reference, rng = theirs_of(deterministic=False), np.random.default_rng(4)
    pair = pair_class(deep_sea(deterministic=False), state_of)
    number = 4000
    luck = pair.noises(0, number)
    for i in range(number):
        anywhere(rng, reference)
        noise = jax.tree.map(lambda leaf, i=i: leaf[i], luck)
        reference._rng = SimpleNamespace(
            rand=lambda noise=noise: float(noise.succeeds),
            randn=lambda noise=noise: noise.bonus,
        )
        pair.act(reference, rng.integers(2), noise)
    before, action, noise, after, (_, reward, _, _) = pair.check(atol=1e-6)
    noisy = (before.row == 9) & np.isin(before.column, [0, 9])
    assert np.sum(noisy) > 50
    assert np.all(np.abs(reward[~noisy]) <= 1)
    right = action == reference._action_mapping[before.row, before.column]
    stays = right & ~noise.succeeds
    assert np.sum(stays) > 100
    np.testing.assert_array_equal(after.column[stays], before.column[stays])


def test_one_move_in_size_fails_and_the_noise_is_normal(pair_class):
    pair = pair_class(deep_sea(size=5, deterministic=False), state_of)
    luck = pair.noises(1, 5000)
    assert stats.binomtest(int(np.sum(~luck.succeeds)), 5000, 1 / 5).pvalue > 0.001
    assert stats.kstest(luck.bonus, "norm").pvalue > 0.001


def test_the_optimal_return_is_one_minus_the_cost_without_a_bad_episode(pair_class):
    reference, core = theirs_of(), deep_sea()
    state, obs = core.reset(jax.random.key(0))
    np.testing.assert_array_equal(obs, reference.reset().observation)
    total = bad = 0.0
    step = jax.jit(core.step)
    for row in range(10):
        state, timestep = step(state, int(reference._action_mapping[row, row]), ())
        total += float(timestep.reward)
        bad += float(timestep.info["bad_episodes"])
    assert bool(timestep.last)
    assert total == pytest.approx(reference._optimal_return)
    assert bad == 0
