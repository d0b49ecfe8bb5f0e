"""Squashed normal: its Jacobian, its bounds, and float32 precision."""

import distrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces
from scipy import stats

from rlcli import distributions

INFINITE = np.inf
LOW = np.array([-2.0, -2.0, -INFINITE, -INFINITE, 0.0], "f4")
HIGH = np.array([2.0, INFINITE, 3.0, INFINITE, 1e-3], "f4")
MIXED = spaces.Box(LOW, HIGH)
FAMILY = distributions.squashed_normal(MIXED)


@pytest.fixture(scope="module")
def compiled_family(compile_family):
    return compile_family(FAMILY)


def test_the_density_includes_the_width_of_the_box(compile_family):
    ours = compile_family(distributions.squashed_normal(spaces.Box(-2, 2, (1,))))
    # At the middle: log N(0; 0, 1) − log g′(0), and g′(0) is 2.
    middle = ours.log_prob(np.zeros(2, "f4"), np.zeros(1, "f4"))
    assert middle == pytest.approx(-0.5 * np.log(2 * np.pi) - np.log(2), abs=1e-6)
    # At 1: u = artanh ½, g′(u) = 2 (1 − ¼).
    one = ours.log_prob(np.zeros(2, "f4"), np.ones(1, "f4"))
    by_hand = stats.norm.logpdf(np.arctanh(0.5)) - np.log(1.5)
    assert one == pytest.approx(by_hand, abs=1e-6)


def test_a_bounded_box_matches_tanh_and_scale_in_distrax(compile_family, rng):
    low, high = np.array([-2.0, 0.0], "f4"), np.array([2.0, 10.0], "f4")
    ours = compile_family(distributions.squashed_normal(spaces.Box(low, high)))
    p, q = rng.normal(size=(2, 7, 4)).astype("f4") * 0.7
    bijector = distrax.Chain(
        [distrax.ScalarAffine((low + high) / 2, (high - low) / 2), distrax.Tanh()]
    )

    def theirs(parameters):
        mean, log_scale = jnp.split(parameters, 2, -1)
        normal = distrax.MultivariateNormalDiag(mean, jnp.exp(log_scale))
        return distrax.Transformed(normal, distrax.Block(bijector, 1))

    @jax.jit
    def said(x):
        kl = theirs(p).kl_divergence(theirs(q))
        return theirs(p).log_prob(x), kl, bijector.forward(u)

    noise = ours.draw(jax.random.key(0, impl="rbg"), 7)
    u = p[:, :2] + np.exp(p[:, 2:]) * noise
    x = ours.sample(p, noise)
    log_prob, kl, forward = said(x)
    np.testing.assert_allclose(x, forward, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(ours.log_prob(p, x), log_prob, rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(ours.kl(p, q), kl, rtol=1e-4)


def test_every_entry_stays_in_its_own_interval(compiled_family):
    noise = compiled_family.draw(jax.random.key(0, impl="rbg"), 2_000)
    parameters = np.broadcast_to(np.repeat(np.array([1.0, 1.5], "f4"), 5), (2_000, 10))
    x = np.asarray(compiled_family.sample(parameters, noise))
    assert x.dtype == np.float32
    assert np.all((x > LOW) & (x < HIGH))
    log_prob = compiled_family.log_prob(parameters, x)
    u = parameters[:, :5] + np.exp(1.5) * np.asarray(noise, np.float64)
    log_slope = np.stack(
        [
            np.log(2) - 2 * np.log(np.cosh(u[:, 0])),
            -np.logaddexp(0, -u[:, 1]),
            -np.logaddexp(0, u[:, 2]),
            0 * u[:, 3],
            np.log(5e-4) - 2 * np.log(np.cosh(u[:, 4])),
        ],
        -1,
    )
    density = stats.norm.logpdf(u, 1.0, np.exp(1.5)) - log_slope
    far = np.all(np.abs(u) < 4, -1)  # from the bounds: what float32 keeps of x
    assert np.sum(far) > 50
    np.testing.assert_allclose(log_prob[far], density.sum(-1)[far], atol=0.01)


def test_a_box_without_bounds_is_a_normal(compile_family, rng):
    free = compile_family(
        distributions.squashed_normal(spaces.Box(-INFINITE, INFINITE, (3,)))
    )
    normal = compile_family(distributions.normal((3,)))
    p = 0.5 * rng.normal(size=(7, 6)).astype("f4")
    x = rng.normal(size=(7, 3)).astype("f4")
    np.testing.assert_allclose(free.log_prob(p, x), normal.log_prob(p, x), rtol=1e-5)
    np.testing.assert_allclose(free.entropy(p), normal.entropy(p), rtol=1e-5)
    np.testing.assert_allclose(free.mean(p), normal.mean(p), atol=1e-5)


@pytest.mark.slow
def test_densities_and_gradients_are_finite_at_the_bounds():
    """And beyond them, of sane and of wild members."""
    ends = np.stack([LOW, HIGH, np.full(5, 1e6, "f4"), np.full(5, -1e6, "f4")])
    x = np.clip(np.nan_to_num(ends, posinf=1e30, neginf=-1e30), -1e12, 1e12)
    rows = [(0, 0), (50, -20), (-50, 20), (1e4, 0), (0, -5), (7, 2)]
    wild = np.stack([np.repeat(np.array(each, "f4"), 5) for each in rows])

    @jax.jit
    @jax.value_and_grad
    def said(parameters):
        noise = FAMILY.draw(jax.random.key(0, impl="rbg"), len(rows))
        numbers = [
            jnp.sum(FAMILY.log_prob(parameters[:, None], x[None, :2])) * 1e-6,
            jnp.sum(FAMILY.log_prob(parameters, FAMILY.sample(parameters, noise))),
            jnp.sum(FAMILY.entropy(parameters) + FAMILY.kl(parameters, wild[::-1])),
            jnp.sum(FAMILY.mean(parameters)) + jnp.sum(FAMILY.mode(parameters)),
        ]
        return sum(numbers)

    value, gradient = said(wild)
    assert np.isfinite(value)
    assert np.all(np.isfinite(gradient))


def test_log_prob_at_a_bound_is_that_a_millionth_of_the_width_away(compile_family):
    ours = compile_family(distributions.squashed_normal(spaces.Box(0, 1, ())))
    at, near = np.array(1.0, "f4"), np.array(1 - 1e-6, "f4")
    parameters = np.array([2.0, 0.0], "f4")
    actual = [float(ours.log_prob(parameters, each)) for each in (at, near)]
    assert actual[0] == pytest.approx(actual[1], abs=0.5)  # 1e-6 is 17 steps of float32
    u = 0.5 * np.log((1 - 1e-6) / 1e-6)
    by_hand = stats.norm.logpdf(u, 2.0) - np.log(2 * 1e-6)
    assert actual[0] == pytest.approx(by_hand, abs=1e-3)


def test_gradients_reach_the_parameters_through_the_sample():
    """−H = E[log p(x)]: its gradient, by samples and by what `entropy` sums."""
    ours = distributions.squashed_normal(spaces.Box(-2, 2, ()))
    draws = 20_000

    def surprise(parameters):
        noise = ours.draw(jax.random.key(0, impl="rbg"), draws)
        many = jnp.broadcast_to(parameters, (draws, 2))
        return -jnp.mean(ours.log_prob(many, ours.sample(many, noise)))

    @jax.jit
    @jax.vmap
    def both(parameters):
        by_sample = jax.value_and_grad(surprise)(parameters)
        return by_sample, jax.value_and_grad(ours.entropy)(parameters)

    by_sample, exact = both(np.array([[0.3, -1.0], [0.3, 0.0], [0.3, 0.7]], "f4"))
    np.testing.assert_allclose(by_sample[0], exact[0], atol=0.03)
    np.testing.assert_allclose(by_sample[1], exact[1], atol=0.03)


def test_quadrature_has_the_documented_accuracy(compile_family):
    ours = compile_family(distributions.squashed_normal(spaces.Box(-2, 2, ())))
    means = np.linspace(-3, 3, 13).astype("f4")
    z = np.linspace(-9, 9, 20_001)
    weight = stats.norm.pdf(z) * (z[1] - z[0])
    for log_scale, error in [(-1.0, 1e-5), (np.log(2), 1e-5), (2.0, 0.02)]:
        parameters = np.stack([means, np.full(13, log_scale)], -1).astype("f4")
        u = means[:, None] + np.exp(log_scale) * z
        mean = (2 * np.tanh(u)) @ weight
        # log(1 − tanh² u), where the cosine would overflow
        log_slope = np.log(2) + 2 * (np.log(2) - u - np.logaddexp(0, -2 * u)) @ weight
        entropy = stats.norm.entropy(0, np.exp(log_scale)) + log_slope
        np.testing.assert_allclose(ours.mean(parameters), mean, atol=2 * error)
        np.testing.assert_allclose(ours.entropy(parameters), entropy, atol=2 * error)


def test_other_spaces_than_a_box_of_floats_are_refused():
    with pytest.raises(TypeError, match="expected a Box of floats, got"):
        distributions.squashed_normal(spaces.Box(0, 3, (), np.int32))


def test_differentiable_returns_the_log_prob_with_exact_gradients(compiled_family, rng):
    p = 0.5 * rng.normal(size=(9, 10)).astype("f4")  # so that few come to a bound
    ours = compiled_family
    noise = ours.draw(jax.random.key(0), 9)
    x, log_prob = ours.differentiable(p, noise)
    # Beside a bound at 0 the last bits of x are those of the width of the box.
    np.testing.assert_allclose(x, ours.sample(p, noise), rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(log_prob, ours.log_prob(p, x), rtol=1e-2, atol=1e-2)
    family = distributions.squashed_normal(spaces.Box(-2, 2, (1,)))

    @jax.jit
    @jax.grad
    def slope(mean):
        return family.differentiable(jnp.array([mean, 0.0]), jnp.zeros(1))[1]

    # log p = log N(0; 0, 1) − log 2 − log(1 − tanh² μ): its slope is 2 tanh μ, even
    # where the sample has come to its bound.
    for mean in (-30.0, -0.7, 0.0, 3.0, 30.0):
        assert slope(mean) == pytest.approx(2 * np.tanh(mean), abs=1e-5)


@pytest.mark.slow
def test_a_composite_is_differentiable_if_all_members_are(rng):
    real = distributions.distribution_for(
        spaces.Box(-1, 1, (2,)), box="squashed_normal"
    )
    both = distributions.composite({"a": real, "b": distributions.normal(())})
    p = rng.normal(size=(4, 6)).astype("f4")
    noise = both.draw(jax.random.key(0), 4)
    x, log_prob = both.differentiable(p, noise)
    same = (both.sample(p, noise), both.log_prob(p, x))
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-3), (x, log_prob), same
    )
    mixed = distributions.composite([real, distributions.categorical(3)])
    assert mixed.differentiable is None
