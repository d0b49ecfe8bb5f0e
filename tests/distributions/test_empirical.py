"""Empirical quantiles, compared with NumPy's."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlcli import distributions

RNG = np.random.default_rng(0)
NUMBER = 8
QUANTILES = RNG.normal(size=(5, NUMBER)).astype("f4")
FAMILY = distributions.quantile_distribution(NUMBER)


@pytest.fixture(scope="module")
def compiled_family(compile_family):
    return compile_family(FAMILY)


def test_samples_have_the_quantiles_of_the_distribution(compiled_family):
    draws = 100_000
    noise = compiled_family.draw(jax.random.key(0, impl="rbg"), draws)
    x = compiled_family.sample(np.broadcast_to(QUANTILES[0], (draws, NUMBER)), noise)
    fractions = (np.arange(NUMBER) + 0.5) / NUMBER
    actual = np.quantile(x, fractions)
    np.testing.assert_allclose(actual, np.sort(QUANTILES[0]), atol=0.03)


def test_the_order_of_quantiles_does_not_matter(compiled_family, rng):
    mixed = rng.permuted(QUANTILES, axis=-1)
    x = rng.normal(size=5).astype("f4")
    np.testing.assert_array_equal(
        compiled_family.entropy(mixed), compiled_family.entropy(QUANTILES)
    )
    np.testing.assert_array_equal(
        compiled_family.log_prob(mixed, x), compiled_family.log_prob(QUANTILES, x)
    )
    np.testing.assert_allclose(compiled_family.kl(mixed, QUANTILES), 0, atol=1e-5)


def test_the_mean_is_that_of_the_quantiles(compiled_family):
    np.testing.assert_allclose(
        compiled_family.mean(QUANTILES), QUANTILES.mean(-1), rtol=1e-5
    )


def test_affine_transforms_the_quantiles(compiled_family, rng):
    reward, discount = rng.normal(size=5).astype("f4"), np.array([0.9, 0, 1, -1, 2])
    moved = compiled_family.affine(QUANTILES, discount, reward)
    by_hand = reward[:, None] + discount[:, None] * QUANTILES
    np.testing.assert_allclose(moved, by_hand, rtol=1e-6)
    # Entropy grows with the logarithm of the scale.
    scaled = compiled_family.affine(QUANTILES, 3.0, 1.0)
    np.testing.assert_allclose(
        compiled_family.entropy(scaled),
        compiled_family.entropy(QUANTILES) + np.log(3),
        rtol=1e-4,
    )


def test_every_entry_has_its_own_quantiles(compiled_family, compile_family, rng):
    five = compile_family(distributions.quantile_distribution(NUMBER, (5,)))
    assert five.size == 5 * NUMBER
    together, x = QUANTILES.reshape(-1), rng.normal(size=5).astype("f4")
    np.testing.assert_allclose(
        five.mean(together), compiled_family.mean(QUANTILES), rtol=1e-6
    )
    np.testing.assert_allclose(
        five.log_prob(together, x),
        np.sum(compiled_family.log_prob(QUANTILES, x)),
        rtol=1e-5,
    )


def test_coinciding_quantiles_have_finite_values_and_gradients():
    def said(parameters):
        other = jnp.linspace(-1.0, 1.0, NUMBER)
        x = FAMILY.sample(parameters[None], jnp.array([[0.3]]))[0]
        numbers = FAMILY.log_prob(parameters, x) + FAMILY.entropy(parameters)
        far = FAMILY.log_prob(parameters, x + 1)
        kl = FAMILY.kl(other, parameters)
        return numbers + far + kl + FAMILY.mode(parameters)

    values = np.array([0.0, 1e4, -1e-20], "f4")
    rows = np.repeat(values[:, None], NUMBER, -1)
    value, gradient = jax.jit(jax.vmap(jax.value_and_grad(said)))(rows)
    assert np.all(np.isfinite(value))
    assert np.all(np.isfinite(gradient))


def test_one_quantile_is_refused():
    with pytest.raises(ValueError, match="expected at least 2 quantiles, got 1"):
        distributions.quantile_distribution(1)
