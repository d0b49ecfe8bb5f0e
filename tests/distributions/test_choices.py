"""Categorical families, compared with distrax and explicit sums."""

import distrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import softmax

from rlcli import distributions

RNG = np.random.default_rng(0)
ACTIONS = 5
LOGITS, OTHER = RNG.normal(size=(2, 7, ACTIONS)).astype("f4") * 2


@pytest.fixture(scope="module")
def distrax_reference():
    """What distrax says of these categorical distributions, and of two cut of them."""

    @jax.jit
    def said(p, q):
        theirs, other = distrax.Categorical(p), distrax.Categorical(q)
        return {
            "entropy": theirs.entropy(),
            "kl": theirs.kl_divergence(other),
            "mode": theirs.mode(),
            "logs": jax.vmap(theirs.log_prob)(jnp.arange(p.shape[-1])),
        }

    return lambda p, q: jax.tree.map(np.asarray, said(p, q))


def test_categorical_matches_distrax(compile_family, distrax_reference):
    start, theirs = -2, distrax_reference(LOGITS, OTHER)
    ours = compile_family(distributions.categorical(ACTIONS, start))
    assert ours.size == ACTIONS
    np.testing.assert_allclose(ours.entropy(LOGITS), theirs["entropy"], rtol=1e-5)
    np.testing.assert_allclose(ours.kl(LOGITS, OTHER), theirs["kl"], rtol=1e-4)
    np.testing.assert_array_equal(ours.mode(LOGITS), start + theirs["mode"])
    taken = np.indices((ACTIONS, 7))[0]
    every = ours.log_prob(np.broadcast_to(LOGITS, (ACTIONS, 7, ACTIONS)), start + taken)
    np.testing.assert_allclose(every, theirs["logs"], rtol=1e-4)


def test_multi_discrete_is_the_product_of_its_entries(
    compile_family, distrax_reference, rng
):
    ours = compile_family(distributions.multi_discrete([5, 3, 1], start=[0, -1, 4]))
    assert ours.size == 9
    p, q = (np.tile(each, 2)[:, :9] for each in (LOGITS, OTHER))
    pairs = [(p[:, a:b], q[:, a:b]) for a, b in ((0, 5), (5, 8), (8, 9))]
    theirs = [distrax_reference(*each) for each in pairs]
    x = np.stack([rng.integers(0, n, 7) for n in (5, 3, 1)], -1)
    log_prob = sum(each["logs"][x[:, i], np.arange(7)] for i, each in enumerate(theirs))
    actual = ours.log_prob(p, x + np.array([0, -1, 4]))
    np.testing.assert_allclose(actual, log_prob, rtol=1e-4)
    kl = sum(each["kl"] for each in theirs)
    np.testing.assert_allclose(ours.kl(p, q), kl, rtol=1e-4)
    entropy = sum(each["entropy"] for each in theirs)
    np.testing.assert_allclose(ours.entropy(p), entropy, rtol=1e-4)


def test_multi_binary_matches_distrax(compile_family, rng):
    ours = compile_family(distributions.multi_binary((ACTIONS,)))
    x = rng.integers(0, 2, LOGITS.shape).astype(np.int8)

    @jax.jit
    def said():
        theirs, other = distrax.Bernoulli(LOGITS), distrax.Bernoulli(OTHER)
        return theirs.log_prob(x), theirs.kl_divergence(other), theirs.mean()

    log_prob, kl, mean = map(np.asarray, said())
    np.testing.assert_allclose(ours.log_prob(LOGITS, x), log_prob.sum(-1), rtol=1e-4)
    np.testing.assert_allclose(ours.kl(LOGITS, OTHER), kl.sum(-1), rtol=1e-4)
    np.testing.assert_allclose(ours.mean(LOGITS), mean, rtol=1e-5)
    np.testing.assert_array_equal(ours.mode(LOGITS), LOGITS > 0)
    assert ours.mode(LOGITS).dtype == np.int8


FORBIDDEN = np.array([[0.5, -np.inf, 1.0, -np.inf, 0.0]] * 2, "f4")
EXTREME = np.array([[1e4, -1e4, 0.0, 1e4, 3.0], [-3e38, 0.0, 1.0, 2.0, 3e38]], "f4")


def test_extreme_and_masked_logits_have_finite_values_and_gradients():
    ours = distributions.categorical(ACTIONS)

    @jax.jit
    @jax.value_and_grad
    def said(logits):
        other = jnp.where(jnp.isinf(logits), logits, 1.0)
        numbers = ours.log_prob(logits, ours.mode(logits)) + ours.entropy(logits)
        return jnp.sum(numbers + ours.kl(logits, other) + ours.mean(logits))

    for logits in (EXTREME, FORBIDDEN):
        value, gradient = said(logits)
        assert np.isfinite(value)
        assert np.all(np.isfinite(gradient))


def test_masked_actions_are_never_sampled_and_contribute_nothing(compile_family):
    ours, there = compile_family(distributions.categorical(ACTIONS)), [0, 2, 4]
    logits, p = FORBIDDEN[0], softmax(FORBIDDEN[0, there])
    noise = ours.draw(jax.random.key(0, impl="rbg"), 2_000)
    sample = ours.sample(np.broadcast_to(logits, (2_000, ACTIONS)), noise)
    assert set(sample) == set(there)
    assert ours.entropy(logits) == pytest.approx(-np.sum(p * np.log(p)), rel=1e-5)
    assert ours.log_prob(logits, np.array(1)) == -np.inf
    assert ours.kl(LOGITS[0], logits) == np.inf
    assert ours.kl(logits, LOGITS[0]) < np.inf
