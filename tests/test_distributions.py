"""Distributions, beside distrax and what NumPy counts."""

import distrax
import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlcli import distributions

RNG = np.random.default_rng(0)
ACTIONS = 5
LOGITS, OTHER_LOGITS = RNG.normal(size=(2, 7, ACTIONS)).astype("f4") * 2
MEAN, OTHER_MEAN = RNG.normal(size=(2, 7, 3)).astype("f4")
LOG_SCALE, OTHER_LOG_SCALE = RNG.normal(size=(2, 7, 3)).astype("f4") * 0.5
NORMAL = np.concatenate([MEAN, LOG_SCALE], -1)
OTHER_NORMAL = np.concatenate([OTHER_MEAN, OTHER_LOG_SCALE], -1)


def independent(mean, log_scale):
    return distrax.MultivariateNormalDiag(mean, jnp.exp(log_scale))


@pytest.mark.parametrize("start", [0, -2])
def test_categorical_says_what_distrax_says(start):
    ours = distributions.categorical(ACTIONS, start)
    theirs, other = distrax.Categorical(LOGITS), distrax.Categorical(OTHER_LOGITS)
    assert ours.size == ACTIONS
    np.testing.assert_allclose(ours.entropy(LOGITS), theirs.entropy(), rtol=1e-5)
    np.testing.assert_allclose(
        ours.kl(LOGITS, OTHER_LOGITS), theirs.kl_divergence(other), rtol=1e-4
    )
    np.testing.assert_array_equal(ours.mode(LOGITS), start + theirs.mode())
    for action in range(ACTIONS):
        taken = np.full(7, action)
        np.testing.assert_allclose(
            ours.log_prob(LOGITS, start + taken), theirs.log_prob(taken), rtol=1e-4
        )


@pytest.mark.parametrize("start", [0, 3])
def test_categorical_samples_as_often_as_it_says(start):
    ours = distributions.categorical(ACTIONS, start)
    draws = 20_000
    noise = ours.draw(jax.random.key(0), draws)
    actions = ours.sample(jnp.broadcast_to(LOGITS[0], (draws, ACTIONS)), noise)
    frequencies = np.bincount(np.asarray(actions) - start, minlength=ACTIONS) / draws
    probabilities = distrax.Categorical(LOGITS[0]).probs
    error = np.sqrt(probabilities * (1 - probabilities) / draws)
    np.testing.assert_array_less(np.abs(frequencies - probabilities), 4 * error)


def test_normal_says_what_distrax_says():
    ours = distributions.normal((3,))
    theirs = independent(MEAN, LOG_SCALE)
    other = independent(OTHER_MEAN, OTHER_LOG_SCALE)
    actions = RNG.normal(size=(7, 3)).astype("f4")
    assert ours.size == 6
    np.testing.assert_allclose(
        ours.log_prob(NORMAL, actions), theirs.log_prob(actions), rtol=1e-4
    )
    np.testing.assert_allclose(ours.entropy(NORMAL), theirs.entropy(), rtol=1e-5)
    np.testing.assert_allclose(
        ours.kl(NORMAL, OTHER_NORMAL), theirs.kl_divergence(other), rtol=1e-4
    )
    np.testing.assert_allclose(ours.mode(NORMAL), MEAN)


def test_normal_samples_have_its_mean_and_deviation():
    ours = distributions.normal((3,))
    draws = 20_000
    noise = ours.draw(jax.random.key(0), draws)
    actions = ours.sample(jnp.broadcast_to(NORMAL[0], (draws, 6)), noise)
    scale = np.exp(LOG_SCALE[0])
    error = np.abs(np.mean(actions, 0) - MEAN[0]) / scale * np.sqrt(draws)
    assert np.all(error < 4)  # standard errors
    np.testing.assert_allclose(np.std(actions, 0), scale, rtol=0.03)
    correlation = np.corrcoef(actions, rowvar=False) - np.eye(3)
    assert np.max(np.abs(correlation)) < 0.04


@pytest.mark.parametrize("shape", [(), (1,), (2, 3)])
def test_actions_have_the_shape_of_their_box(shape):
    ours = distributions.over(gymnasium.spaces.Box(-1, 1, shape))
    parameters = np.zeros((4, ours.size), np.float32)
    noise = ours.draw(jax.random.key(0), 4)
    actions = ours.sample(parameters, noise)
    assert actions.shape == ours.mode(parameters).shape == (4, *shape)
    assert ours.log_prob(parameters, actions).shape == (4,)
    one = independent(np.zeros(ours.size // 2), np.zeros(ours.size // 2))
    np.testing.assert_allclose(
        ours.log_prob(parameters, actions),
        one.log_prob(actions.reshape(4, -1)),
        rtol=1e-5,
    )


def test_parameters_may_have_any_leading_axes():
    for family in (distributions.categorical(4), distributions.normal((2,))):
        parameters = RNG.normal(size=(3, 5, family.size)).astype("f4")
        noise = RNG.normal(size=family.draw(jax.random.key(0), 5).shape).astype("f4")
        actions = family.sample(parameters, noise)
        assert family.log_prob(parameters, actions).shape == (3, 5)
        assert family.entropy(parameters).shape == (3, 5)
        assert family.kl(parameters, parameters).shape == (3, 5)
        np.testing.assert_allclose(family.kl(parameters, parameters), 0, atol=1e-6)


def test_a_space_of_actions_has_its_family():
    discrete = distributions.over(gymnasium.spaces.Discrete(3, start=1))
    assert (discrete.name, discrete.size) == ("categorical", 3)
    assert discrete.mode(jnp.array([0.0, 9.0, 0.0])) == 2  # start + 1
    box = distributions.over(gymnasium.spaces.Box(-1, 1, (2,)))
    assert (box.name, box.size) == ("normal", 4)


@pytest.mark.parametrize(
    "space",
    [
        gymnasium.spaces.Box(0, 9, (2,), np.int32),
        gymnasium.spaces.MultiDiscrete([2, 2]),
        gymnasium.spaces.Dict(),
    ],
)
def test_other_spaces_have_none(space):
    with pytest.raises(TypeError, match="expected Discrete or a Box of floats, got"):
        distributions.over(space)
