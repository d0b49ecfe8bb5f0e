"""Properties of every family, checked with sums over outcomes and integrals."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

from rlcli import distributions

INFINITE = np.inf
CHOICES = {
    "categorical": (distributions.categorical(5, start=-2), np.arange(-2, 3)),
    "multi_discrete": (
        distributions.multi_discrete([[2, 3], [1, 4]], [[0, -1], [7, 2]]),
        np.array(
            list(itertools.product([0, 1], [-1, 0, 1], [7], [2, 3, 4, 5]))
        ).reshape(-1, 2, 2),
    ),
    "multi_binary": (
        distributions.multi_binary((3,)),
        np.array(list(itertools.product([0, 1], repeat=3)), np.int8),
    ),
}


SQUASHED = {  # over u: the grid is g(u)
    "squashed": distributions.squashed_normal(spaces.Box(-2, 3, ())),
    "squashed, bounded below": distributions.squashed_normal(
        spaces.Box(-2, INFINITE, ())
    ),
    "squashed, bounded above": distributions.squashed_normal(
        spaces.Box(-INFINITE, 3, ())
    ),
    "squashed, unbounded": distributions.squashed_normal(
        spaces.Box(-INFINITE, INFINITE, ())
    ),
}
NAMES = [*CHOICES, "normal", *SQUASHED, "composite"]
DRAWS = 4_000


def members(family, spread):
    """Parameters of two of its distributions."""
    rng = np.random.default_rng(1)
    return spread * rng.normal(size=(2, family.size)).astype("f4")


def outcomes(name, cells=4_001):
    """The family, elements that cover its space, and how much of it each stands for.

    `cells` is the number of elements of a line.
    """
    if name in CHOICES:
        family, x = CHOICES[name]
        return family, x, np.ones(len(x))
    if name == "normal":
        x = np.linspace(-12, 12, cells, dtype="f4")
        return distributions.normal(()), x, np.full(cells, 24 / (cells - 1))
    if name in SQUASHED:
        family = SQUASHED[name]
        u = np.linspace(-7, 7, 12_001, dtype="f4")
        x = np.asarray(family.mode(np.stack([u, np.zeros_like(u)], -1)))  # g(u)
        return family, x, np.gradient(x.astype(np.float64))
    bits, choice = CHOICES["multi_binary"], CHOICES["categorical"]
    box, line, width = outcomes("normal", 401)
    family = distributions.composite(
        (choice[0], distributions.composite({"bits": bits[0], "box": box}))
    )
    index = np.indices((len(choice[1]), len(bits[1]), len(line))).reshape(3, -1)
    first, second, third = choice[1][index[0]], bits[1][index[1]], line[index[2]]
    return family, (first, {"bits": second, "box": third}), width[index[2]]


class Known:
    """All that a family says of two of its members, p and q."""

    def __init__(self, name):
        self.name = name
        self.family, self.x, self.weight = outcomes(name)
        # Wide ones come so near to bounds that float32 is no measure.
        self.p, self.q = members(self.family, 0.4 if name in SQUASHED else 1.0)
        said = jax.jit(self.say)(self.p, self.q)
        self.said = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), said)
        self.mass = np.exp(self.said["log_p"]) * self.weight

    def say(self, p, q):
        family, batch = self.family, (DRAWS, self.family.size)
        noise = family.draw(jax.random.key(0, impl="rbg"), DRAWS)
        many = jnp.broadcast_to(p, batch)
        sample, mode = family.sample(many, noise), family.mode(p)
        log_prob = jax.vmap(family.log_prob, (None, 0))
        return {
            "log_p": log_prob(p, self.x),
            "log_q": log_prob(q, self.x),
            "entropy": family.entropy(p),
            "kl": family.kl(p, q),
            "kl_to_itself": family.kl(p, p),
            "mean": family.mean(p),
            "mode": mode,
            "log_prob_of_mode": family.log_prob(p, mode),
            "sample": sample,
            "log_prob_of_sample": family.log_prob(many, sample),
        }

    def expected(self, values):
        """Σ or ∫ p(x) values(x)."""
        return np.tensordot(self.mass, values, (0, 0))


@pytest.fixture(scope="module", params=NAMES)
def known_case(request):
    return Known(request.param)


def test_probabilities_add_up_to_one(known_case):
    assert np.sum(known_case.mass) == pytest.approx(1, abs=2e-4)


def assert_close(actual, expected):
    np.testing.assert_allclose(actual, expected, atol=5e-4)


def test_entropy_is_the_expected_negative_log_prob(known_case):
    assert_close(
        known_case.said["entropy"], -known_case.expected(known_case.said["log_p"])
    )


def test_kl_is_the_expected_difference_of_the_log_probs(known_case):
    said = known_case.said
    assert_close(said["kl"], known_case.expected(said["log_p"] - said["log_q"]))
    assert said["kl"] > 0.01
    assert said["kl_to_itself"] == pytest.approx(0, abs=1e-6)


def test_the_mean_is_the_expected_element(known_case):
    for actual, x in zip(
        jax.tree.leaves(known_case.said["mean"]),
        jax.tree.leaves(known_case.x),
        strict=True,
    ):
        assert_close(actual, known_case.expected(np.asarray(x, np.float64)))


def test_nothing_is_more_likely_than_the_mode(known_case):
    best = np.max(known_case.said["log_p"])
    if known_case.name in SQUASHED:  # of u: half of x lies below
        below = known_case.mass[known_case.x <= known_case.said["mode"]]
        assert np.sum(below) == pytest.approx(0.5, abs=2e-3)
    else:
        assert known_case.said["log_prob_of_mode"] == pytest.approx(best, abs=1e-4)


def test_samples_are_distributed_as_log_prob_predicts(known_case):
    pairs = zip(
        jax.tree.leaves(known_case.said["sample"]),
        jax.tree.leaves(known_case.x),
        strict=True,
    )
    for sample, x in pairs:
        for power in (1, 2):
            powers = np.asarray(x, np.float64) ** power
            mean = known_case.expected(powers)
            deviation = np.sqrt(np.maximum(known_case.expected(powers**2) - mean**2, 0))
            error = np.abs(np.mean(sample**power, axis=0) - mean)
            assert np.all(error <= 4.5 * deviation / DRAWS**0.5 + 1e-4)
    surprise = -known_case.said["log_prob_of_sample"]
    error = np.mean(surprise) - known_case.said["entropy"]
    assert abs(error) <= 4.5 * np.std(surprise) / DRAWS**0.5 + 1e-5
