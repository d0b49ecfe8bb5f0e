"""The normal family, compared with distrax."""

import itertools

import distrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from rlcli import distributions

RNG = np.random.default_rng(0)
MEAN, OTHER_MEAN = RNG.normal(size=(2, 7, 3)).astype("f4")
LOG_SCALE, OTHER_LOG_SCALE = RNG.normal(size=(2, 7, 3)).astype("f4") * 0.5
NORMAL = np.concatenate([MEAN, LOG_SCALE], -1)
OTHER = np.concatenate([OTHER_MEAN, OTHER_LOG_SCALE], -1)


def test_normal_matches_distrax(compile_family, rng):
    ours = compile_family(distributions.normal((3,)))
    actions = rng.normal(size=(7, 3)).astype("f4")

    @jax.jit
    def said():
        theirs = distrax.MultivariateNormalDiag(MEAN, jnp.exp(LOG_SCALE))
        other = distrax.MultivariateNormalDiag(OTHER_MEAN, jnp.exp(OTHER_LOG_SCALE))
        return theirs.log_prob(actions), theirs.entropy(), theirs.kl_divergence(other)

    log_prob, entropy, kl = said()
    assert ours.size == 6
    np.testing.assert_allclose(ours.log_prob(NORMAL, actions), log_prob, rtol=1e-4)
    np.testing.assert_allclose(ours.entropy(NORMAL), entropy, rtol=1e-5)
    np.testing.assert_allclose(ours.kl(NORMAL, OTHER), kl, rtol=1e-4)
    np.testing.assert_allclose(ours.mode(NORMAL), MEAN)
    np.testing.assert_allclose(ours.mean(NORMAL), MEAN)


def test_entries_are_sampled_with_their_scale_and_without_correlation(
    compile_family, is_normal
):
    ours, draws = compile_family(distributions.normal((3,))), 20_000
    noise = ours.draw(jax.random.key(0, impl="rbg"), draws)
    actions = ours.sample(np.broadcast_to(NORMAL[0], (draws, 6)), noise)
    scale = np.exp(LOG_SCALE[0])
    columns = np.asarray(actions).T
    assert all(map(is_normal, columns, MEAN[0], scale))
    for one, other in itertools.combinations(columns, 2):
        assert stats.pearsonr(one, other).pvalue > 0.001


@pytest.mark.parametrize("shape", [(), (2, 3)])
def test_actions_have_the_shape_of_their_box(shape):
    ours = distributions.normal(shape)

    def said(parameters):
        actions = ours.sample(parameters, ours.draw(jax.random.key(0, impl="rbg"), 4))
        return actions, ours.mode(parameters), ours.log_prob(parameters, actions)

    parameters = np.zeros((4, ours.size), np.float32)
    actions, mode, log_prob = jax.eval_shape(said, parameters)
    assert actions.shape == mode.shape == (4, *shape)
    assert log_prob.shape == (4,)
