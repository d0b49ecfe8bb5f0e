"""Predictions of returns, against rlax, loops, and numbers computed by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import rlax

from rlcli.networks.predictions import (
    IDENTITY,
    LOSSES,
    Categorical,
    MaskedPrediction,
    Particles,
    Quantiles,
    Scalar,
    average_quantiles,
    index_actions,
    value_transform,
)

ROWS = (3, 5)
NAMES = ("log", "signed_hyperbolic")


def particles(count=7, seed=0, scale=3.0):
    rng = np.random.default_rng(seed)
    return Particles(
        rng.normal(size=(*ROWS, count)).astype("f4") * scale,
        rng.dirichlet(np.ones(count), ROWS).astype("f4"),
    )


def mean_of(particles):
    return (particles.value * particles.probability).sum(-1)


def numbers(count, seed=1, scale=2.0):
    rng = np.random.default_rng(seed)
    return (rng.normal(size=(*ROWS, count)) * scale).astype("f4")


def categorical(count=11, seed=1):
    atoms = np.linspace(-5, 5, count, dtype="f4")
    return Categorical(numbers(count, seed), np.broadcast_to(atoms, (*ROWS, count)))


def quantiles(count=4, seed=1):
    fractions = (np.arange(count, dtype="f4") + 0.5) / count
    return Quantiles(numbers(count, seed), np.broadcast_to(fractions, (*ROWS, count)))


PREDICTIONS = {
    "scalar": Scalar(numbers(1)),
    "categorical": categorical(),
    "quantiles": quantiles(),
}


def compute_loss(prediction, target, loss):
    return jax.jit(prediction.loss, static_argnums=1)(target, loss)


def test_the_quantile_huber_loss_equals_a_number_computed_by_hand():
    prediction = Quantiles(np.array([0, 3], "f4"), np.array([0.25, 0.75], "f4"))
    target = Particles(np.array([1, 2], "f4"), np.array([0.5, 0.5], "f4"))
    assert compute_loss(prediction, target, LOSSES["huber"]) == 0.5
    mean = average_quantiles(prediction)  # over the two quantiles, as in TQC
    assert compute_loss(mean, target, LOSSES["huber"]) == 0.25
    masked = MaskedPrediction(prediction, np.ones(1, bool))
    assert compute_loss(average_quantiles(masked), target, LOSSES["huber"]) == 0.25


@pytest.mark.parametrize("kappa", [0.0, 1.0])
def test_quantile_regression_equals_that_of_rlax(kappa):
    prediction = quantiles()
    values = numbers(6, seed=2)
    target = Particles(values, np.full(values.shape, 1 / 6, "f4"))
    loss = LOSSES["huber"] if kappa else jnp.abs
    actual = compute_loss(prediction, target, loss)
    each = jax.vmap(
        jax.vmap(rlax.quantile_regression_loss, (0, 0, 0, None)), (0, 0, 0, None)
    )
    expected = jax.jit(each, static_argnums=3)(
        prediction.values, prediction.fractions, values, kappa
    )
    np.testing.assert_allclose(actual, expected, rtol=1e-5)


def test_the_categorical_loss_is_the_cross_entropy_to_the_projection_of_rlax():
    prediction, target = categorical(), particles()
    project = jax.jit(jax.vmap(jax.vmap(rlax.categorical_l2_project)))
    labels = project(target.value, target.probability, prediction.atoms)
    logits = prediction.logits
    log_prob = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    expected = -(labels * log_prob).sum(-1)
    actual = compute_loss(prediction, target, LOSSES["huber"])
    np.testing.assert_allclose(actual, expected, rtol=1e-5)


def fit_prediction(target, count=11):
    """The prediction with the minimum loss."""
    prediction = categorical(count)

    @jax.jit
    @jax.grad
    def gradient(logits):
        return prediction._replace(logits=logits).loss(target, LOSSES["mse"]).sum()

    # The gradient of the cross-entropy is softmax(logits) minus the labels.
    exponentials = np.exp(prediction.logits)
    probabilities = exponentials / exponentials.sum(-1, keepdims=True)
    return probabilities - gradient(prediction.logits), prediction.atoms


def test_the_projection_keeps_mass_and_mean_within_the_atoms():
    target = particles(scale=1.5)
    assert np.abs(target.value).max() < 5
    labels, atoms = fit_prediction(target)
    assert np.all(labels > -1e-5)
    np.testing.assert_allclose(labels.sum(-1), 1, atol=1e-5)
    np.testing.assert_allclose((labels * atoms).sum(-1), mean_of(target), atol=1e-4)


def test_particles_outside_the_support_are_projected_onto_its_ends():
    target = Particles(
        np.full((*ROWS, 2), [-90.0, 70.0], "f4"), np.full((*ROWS, 2), [0.3, 0.7], "f4")
    )
    labels, _ = fit_prediction(target)
    expected = np.zeros(11)
    expected[0], expected[-1] = 0.3, 0.7
    np.testing.assert_allclose(
        labels, np.broadcast_to(expected, labels.shape), atol=1e-5
    )


@pytest.mark.parametrize("loss", LOSSES)
def test_the_mean_is_compared_with_the_mean(loss):
    prediction, target = Scalar(numbers(1)), particles()
    error = (target.value * target.probability).sum(-1) - prediction.value[..., 0]
    np.testing.assert_allclose(jax.jit(prediction.error)(target), error, atol=1e-5)
    by_hand = {
        "mse": error**2,
        "huber": np.where(np.abs(error) <= 1, error**2 / 2, np.abs(error) - 0.5),
        "logcosh": np.log(np.cosh(error)),
    }
    actual = compute_loss(prediction, target, LOSSES[loss])
    np.testing.assert_allclose(actual, by_hand[loss], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("prediction", PREDICTIONS.values(), ids=PREDICTIONS)
def test_particles_are_a_distribution_with_the_mean_of_the_prediction(prediction):
    actual = jax.device_get(jax.jit(prediction.particles)())
    np.testing.assert_allclose(actual.probability.sum(-1), 1, rtol=1e-5)
    assert np.all(actual.probability >= 0)
    distance = jax.jit(prediction.error)(actual)  # to itself
    np.testing.assert_allclose(distance, 0, atol=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_a_transform_equals_that_of_the_paper_and_has_an_inverse(name):
    near, far = np.linspace(-0.01, 0.01, 41), np.linspace(-5_000, 5_000, 41)
    x = np.concatenate([near, far]).astype("f4")
    transform = value_transform(name)
    transformed = jax.jit(transform.apply)(x)
    by_hand = {
        "log": np.sign(x) * np.log(1 + np.abs(x)),
        "signed_hyperbolic": np.sign(x) * (np.sqrt(np.abs(x) + 1) - 1) + 1e-3 * x,
    }
    np.testing.assert_allclose(transformed, by_hand[name], rtol=1e-5, atol=3e-7)
    restored = jax.jit(transform.inverse)(transformed)
    np.testing.assert_allclose(restored, x, rtol=1e-5, atol=5e-7)


@pytest.mark.parametrize(
    ("name", "pair"),
    [
        ("log", rlax.SIGNED_LOGP1_PAIR),
        ("signed_hyperbolic", rlax.SIGNED_HYPERBOLIC_PAIR),
    ],
)
def test_a_transform_equals_that_of_rlax(name, pair):
    x = np.linspace(-50, 50, 41, dtype="f4")
    transform = value_transform(name)
    np.testing.assert_allclose(transform.apply(x), pair.apply(x), rtol=1e-6)
    # The inverse of rlax rounds to some 3e-5 near 0.
    inverses = transform.inverse(x), pair.apply_inv(x)
    np.testing.assert_allclose(*inverses, rtol=1e-5, atol=1e-4)


def test_the_default_transform_is_the_identity():
    assert value_transform(None) is IDENTITY
    assert IDENTITY.inverse(3.0) == IDENTITY.apply(3.0) == 3.0


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("prediction", PREDICTIONS.values(), ids=PREDICTIONS)
def test_particles_are_inverted_and_targets_are_transformed(prediction, name):
    transform, target = value_transform(name), particles()

    @jax.jit
    def inverted_particles():
        plain = prediction.particles()
        expected = plain._replace(value=transform.inverse(plain.value))
        return prediction.particles(transform), expected

    jax.tree.map(np.testing.assert_array_equal, *inverted_particles())

    def measures(target, *transform):
        loss = prediction.loss(target, LOSSES["huber"], *transform)
        return prediction.error(target, *transform), loss

    @jax.jit
    def pairs_of_measures():
        moved = target._replace(value=transform.apply(target.value))
        if isinstance(prediction, Scalar):  # the mean has one particle
            mean = transform.apply(target.mean())[..., None]
            moved = Particles(mean, jnp.ones_like(mean))
        return [*zip(measures(target, transform), measures(moved), strict=True)]

    for pair in pairs_of_measures():
        np.testing.assert_allclose(*pair, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("prediction", PREDICTIONS.values(), ids=PREDICTIONS)
def test_a_target_has_no_gradient(prediction):
    target = particles()

    @jax.jit
    @jax.grad
    def gradient(value):
        return prediction.loss(target._replace(value=value), LOSSES["mse"]).sum()

    assert not np.any(gradient(target.value))


def test_actions_are_selected_from_every_leaf_with_any_leading_axes():
    rng = np.random.default_rng(0)
    tree = {"a": rng.normal(size=(2, *ROWS, 4, 6)), "b": rng.normal(size=(*ROWS, 4, 1))}
    index = rng.integers(0, 4, ROWS)
    actual = jax.device_get(jax.jit(index_actions)(tree, index))
    for at in np.ndindex(ROWS):
        action = index[at]
        np.testing.assert_allclose(actual["b"][at], tree["b"][at][action], rtol=1e-6)
        for copy in range(2):
            whole = tree["a"][copy][at][action]
            np.testing.assert_allclose(actual["a"][copy][at], whole, rtol=1e-6)


def test_min_over_critics_selects_the_whole_prediction_with_the_minimum_mean():
    copies = [particles(seed=seed) for seed in range(3)]
    stacked = Particles(*(np.stack(leaf) for leaf in zip(*copies, strict=True)))
    actual = jax.device_get(jax.jit(Particles.min_over_critics)(stacked))
    means = np.stack([mean_of(each) for each in copies])
    for at in np.ndindex(ROWS):
        which = copies[means[(slice(None), *at)].argmin()]
        np.testing.assert_array_equal(actual.value[at], which.value[at])
        np.testing.assert_array_equal(actual.probability[at], which.probability[at])


def test_a_mixture_has_the_mean_of_its_members_and_mass_one():
    rng = np.random.default_rng(3)
    members = Particles(
        rng.normal(size=(*ROWS, 4, 6)), rng.dirichlet(np.ones(6), (*ROWS, 4))
    )
    share = rng.dirichlet(np.ones(4), ROWS)
    actual = jax.device_get(jax.jit(Particles.mix)(members, share))
    assert actual.value.shape == (*ROWS, 24)
    np.testing.assert_allclose(actual.probability.sum(-1), 1, rtol=1e-6)
    expected = (share * (members.value * members.probability).sum(-1)).sum(-1)
    np.testing.assert_allclose(mean_of(actual), expected, rtol=1e-5, atol=1e-6)


def test_the_mixture_of_critics_has_all_their_particles_and_their_mean():
    critics = [particles(seed=seed) for seed in range(3)]
    stacked = Particles(*(np.stack(leaf) for leaf in zip(*critics, strict=True)))
    actual = jax.device_get(jax.jit(Particles.mix_critics)(stacked))
    for at in np.ndindex(ROWS):
        pooled = [
            (value, probability / 3)
            for each in critics
            for value, probability in zip(
                each.value[at], each.probability[at], strict=True
            )
        ]
        found = zip(actual.value[at], actual.probability[at], strict=True)
        np.testing.assert_allclose(sorted(found), sorted(pooled), rtol=1e-6)
    means = np.mean([mean_of(each) for each in critics], axis=0)
    np.testing.assert_allclose(mean_of(actual), means, rtol=1e-5, atol=1e-6)


def test_truncated_quantiles_are_the_lowest():
    values = numbers(10)
    target = Particles(values, np.full(values.shape, 0.1, "f4"))
    truncated = jax.jit(Particles.truncate)(target, 0.3)
    np.testing.assert_array_equal(truncated.value, np.sort(values, axis=-1))
    expected = np.broadcast_to([1 / 7] * 7 + [0.0] * 3, values.shape)
    np.testing.assert_allclose(truncated.probability, expected, atol=1e-6)


def test_truncation_splits_a_particle_on_its_bound():
    """The mass below the bound, counted out from the lowest value."""
    whole, share = particles(), 0.25
    truncated = jax.device_get(jax.jit(Particles.truncate)(whole, share))
    for at in np.ndindex(ROWS):
        order = np.argsort(whole.value[at])
        room, expected = 1 - share, []
        for probability in whole.probability[at][order]:
            expected.append(min(room, probability))
            room -= expected[-1]
        np.testing.assert_array_equal(truncated.value[at], whole.value[at][order])
        np.testing.assert_allclose(
            truncated.probability[at], np.array(expected) / (1 - share), atol=1e-6
        )
