"""Exploration: the process against its equation, the schedule against points."""

import gymnasium
import numpy as np
import pytest

from rlcli.utils import OrnsteinUhlenbeckNoise, StepwiseLinearFunction


def test_the_noise_follows_its_equation():
    seed, mu, sigma, theta = 7, np.array([0.5, -1.0]), 0.3, 0.2
    noise = OrnsteinUhlenbeckNoise(mu, sigma, theta, random_seed=seed)
    random, x = np.random.default_rng(seed), mu
    for step in range(20):
        action = np.full(2, float(step))
        x = x - theta * (x - mu) + sigma * random.standard_normal(2)
        np.testing.assert_allclose(noise(action), action + x)


def test_the_noise_has_the_variance_of_the_process():
    noise = OrnsteinUhlenbeckNoise(mu=2.0, sigma=0.5, theta=0.3, random_seed=0)
    samples = np.array([noise(np.zeros(2_000)) for _ in range(60)])[40:]
    # Var = σ² / (1 − (1 − θ)²), and neighbours correlate by 1 − θ
    assert samples.mean() == pytest.approx(2.0, abs=0.03)
    assert samples.var() == pytest.approx(0.25 / (1 - 0.49), rel=0.03)
    correlation = np.corrcoef(samples[:-1].ravel(), samples[1:].ravel())[0, 1]
    assert correlation == pytest.approx(0.7, abs=0.02)


def test_bounds_clip_the_action_and_not_the_noise():
    free = OrnsteinUhlenbeckNoise(sigma=2.0, random_seed=1)
    bound = OrnsteinUhlenbeckNoise(
        sigma=2.0, min_value=[0.0, -1.0], max_value=[0.5, 1.0], random_seed=1
    )
    for _ in range(50):
        action = np.array([0.4, 0.1])
        expected = np.clip(free(action), [0.0, -1.0], [0.5, 1.0])
        np.testing.assert_array_equal(bound(action), expected)


def test_noisy_actions_lie_in_the_action_space():
    space = gymnasium.spaces.Box(np.float32(-0.1), np.float32(0.1), (3,))
    noise = OrnsteinUhlenbeckNoise(min_value=-0.1, max_value=0.1, random_seed=0)
    for _ in range(20):
        assert space.contains(noise(space.sample()))


def test_reset_resets_the_process_but_not_its_random_numbers():
    noise = OrnsteinUhlenbeckNoise(mu=10.0, sigma=0.0, theta=0.5)
    assert noise(1.0) == noise(1.0) == 11
    noise.mu = 20.0
    assert [float(noise(0.0)) for _ in range(2)] == [15, 17.5]
    noise.reset()
    assert noise(0.0) == 20
    seeded = OrnsteinUhlenbeckNoise(random_seed=3)
    first = seeded(0.0)
    seeded.reset()
    assert seeded(0.0) != first


def test_the_same_seed_gives_the_same_noise():
    one, other = (OrnsteinUhlenbeckNoise(random_seed=5) for _ in range(2))
    assert [float(one(0.0)) for _ in range(5)] == [float(other(0.0)) for _ in range(5)]


def test_actions_of_another_shape_require_a_reset():
    noise = OrnsteinUhlenbeckNoise()
    noise(np.zeros(2))
    with pytest.raises(ValueError, match="call `reset` before"):
        noise(np.zeros(3))
    noise.reset()
    assert noise(np.zeros(3)).shape == (3,)


@pytest.mark.parametrize("bad", [{"sigma": -1.0}, {"theta": [0.1, -0.1]}])
def test_a_negative_sigma_or_theta_is_refused(bad):
    with pytest.raises(ValueError, match="at least 0"):
        OrnsteinUhlenbeckNoise(**bad)


@pytest.mark.parametrize(
    ("time", "value"),
    [
        *[(-5, 1.0), (0, 1.0), (500_000, 0.55), (1_000_000, 0.1), (1_500_000, 0.055)],
        *[(2_000_000, 0.01), (9_000_000, 0.01)],
    ],
)
def test_the_schedule_is_linear_between_its_points_and_constant_outside(time, value):
    epsilon = StepwiseLinearFunction((0, 1.0), (1000000, 0.1), (2000000, 0.01))
    assert epsilon(time) == pytest.approx(value)
    assert isinstance(epsilon(time), float)


def test_the_schedule_accepts_arrays_of_timesteps():
    function = StepwiseLinearFunction((10, 0), (20, 5))
    np.testing.assert_allclose(function(np.array([0, 12, 30])), [0, 1, 5])
    assert StepwiseLinearFunction((10, 3.0))(99) == 3


@pytest.mark.parametrize("steps", [(), ((1, 0.0), (1, 1.0)), ((2, 0.0), (1, 1.0))])
def test_timesteps_must_increase(steps):
    with pytest.raises(ValueError, match="expected"):
        StepwiseLinearFunction(*steps)
