"""bsuite's variants with noisy and scaled rewards, compared with the wrappers."""

from types import SimpleNamespace

import jax
import numpy as np
import pytest
from bsuite.environments import catch as original
from bsuite.utils import wrappers

from rlcli.environments.native.bsuite.catch import CatchState, catch
from rlcli.environments.wrappers.rewards import reward_noise, scale_reward


def state_of(env):
    places = (env._ball_x, env._ball_y, env._paddle_x)
    return CatchState(*(np.int32(each) for each in places))


def episodes(pair, reference, noises):
    """Plays the reference with one noise per step, and records it for the check."""
    rng, timestep = np.random.default_rng(0), None
    for noise in noises:
        if timestep is None or timestep.last():
            reference.reset()
        timestep = pair.act(reference, rng.integers(3), noise)


@pytest.mark.parametrize("scale", [0.1, 3.0])
def test_reward_noise_matches_bsuite_and_leaves_counters_unchanged(pair_class, scale):
    reference = wrappers.RewardNoise(original.Catch(seed=0), scale)
    pair = pair_class(reward_noise(catch(), scale=scale), state_of)
    _, normals = pair.noises(0, 900)
    reference._rng = SimpleNamespace(randn=iter(normals.tolist()).__next__)
    episodes(pair, reference, [((), each) for each in normals])
    *_, noise, _, (_, reward, last, gained) = pair.check(rtol=1e-5, atol=1e-6)
    assert np.std(reward[~last]) == pytest.approx(scale, rel=0.1)
    assert set(gained["regret"].tolist()) == {0.0, 2.0}
    assert noise[1].shape == (900,)


@pytest.mark.parametrize("factor", [0.001, 1000.0])
def test_scaled_rewards_match_bsuite_and_leave_counters_unchanged(pair_class, factor):
    reference = wrappers.RewardScale(original.Catch(seed=0), factor)
    pair = pair_class(scale_reward(catch(), factor=factor), state_of)
    episodes(pair, reference, [()] * 900)
    *_, (_, reward, _, gained) = pair.check()
    assert set(reward.tolist()) == {-factor, 0.0, factor}
    assert set(gained["regret"].tolist()) == {0.0, 2.0}


def test_variants_do_not_change_the_first_observation():
    key = jax.random.key(0)
    plain = catch().reset(key)[1]
    for core in (reward_noise(catch(), scale=1.0), scale_reward(catch(), factor=2.0)):
        np.testing.assert_array_equal(core.reset(key)[1], plain)
