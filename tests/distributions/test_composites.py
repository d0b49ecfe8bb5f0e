"""Composites, compared with distrax's joint distribution."""

import distrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlcli import distributions

RNG = np.random.default_rng(0)
FAMILY = distributions.composite(
    {
        "choice": distributions.categorical(3),
        "both": distributions.composite(
            (distributions.normal((2,)), distributions.multi_binary((2,)))
        ),
    }
)
P, Q = RNG.normal(size=(2, 6, FAMILY.size)).astype("f4")


@pytest.fixture(scope="module")
def compiled_family(compile_family):
    return compile_family(FAMILY)


def distrax_joint(parameters):
    logits, mean, log_scale, bits = jnp.split(parameters, [3, 5, 7], -1)
    return distrax.Joint(
        {
            "choice": distrax.Categorical(logits),
            "both": (
                distrax.MultivariateNormalDiag(mean, jnp.exp(log_scale)),
                distrax.Independent(distrax.Bernoulli(bits), 1),
            ),
        }
    )


def test_a_composite_is_the_joint_of_its_members():
    @jax.jit
    def said(p, q):
        x = FAMILY.sample(p, FAMILY.draw(jax.random.key(0, impl="rbg"), 6))
        ours = FAMILY.log_prob(p, x), FAMILY.kl(p, q), FAMILY.mode(p)
        other = distrax_joint(p)
        return ours, (
            other.log_prob(x),
            other.kl_divergence(distrax_joint(q)),
            other.mode(),
        )

    assert FAMILY.size == 3 + 4 + 2
    ours, other = said(P, Q)
    for actual, expected in zip(
        jax.tree.leaves(ours), jax.tree.leaves(other), strict=True
    ):
        np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-6)


def test_members_do_not_share_their_noise(compile_family):
    twins = compile_family(distributions.composite([distributions.normal((1,))] * 2))
    x, y = twins.sample(
        np.zeros((2_000, 4), "f4"), twins.draw(jax.random.key(0, impl="rbg"), 2_000)
    )
    assert abs(np.corrcoef(x[:, 0], y[:, 0])[0, 1]) < 0.1


def test_a_composite_needs_at_least_one_member():
    with pytest.raises(ValueError, match="expected at least one distribution"):
        distributions.composite({})
