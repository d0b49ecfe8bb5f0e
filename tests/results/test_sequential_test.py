"""The sequential test: enumeration, published bounds, and simulated error rates."""

import itertools
import math

import numpy as np
import pytest
from scipy import integrate, stats
from tiers import quick_first

from rlcli.results import sequential_test
from rlcli.results.sequential_test import (
    BETTER,
    SAME,
    UNDECIDED,
    WORSE,
    decide,
    estimate_power,
    flip,
    spend,
)

# One side of the bounds of O'Brien and Fleming's spending, five looks at 5 % (Lan and
# DeMets, 1983), as in the tables of Jennison and Turnbull (2000).
PUBLISHED = (4.8769, 3.3569, 2.6803, 2.2898, 2.0310)


def test_all_is_spent_at_the_end_and_never_more_than_the_level():
    shares = [spend(0.025, k / 5) for k in range(1, 6)]
    first = stats.norm.sf(PUBLISHED[0])
    assert shares[0] == pytest.approx(first, rel=2e-2)
    assert shares[-1] == pytest.approx(0.025, rel=1e-12)
    assert shares == sorted(shares)
    for alpha in (1e-6, 0.05 / 3, 0.5, 0.999):
        assert spend(alpha, 1.0) <= alpha


def make_patterns(size, bits):
    """The signs of each difference: its sums, if it is 1 and all others are 0."""
    sums = [flip(one, [(0, size)], bits)[0] for one in np.eye(size)]
    return np.stack(sums, axis=1)


def test_the_patterns_are_a_group_and_all_there_are_of_the_first_differences():
    patterns = make_patterns(12, 6)
    rows = {tuple(row) for row in patterns}
    assert (patterns[0] == 1).all()
    assert {tuple(row[:6]) for row in rows} == {*itertools.product((-1, 1), repeat=6)}
    for one, other in itertools.product(patterns[:40], repeat=2):
        assert tuple(one * other) in rows
    # No difference has the signs of another one, and each is flipped in one half.
    gram = patterns.T.astype(int) @ patterns
    assert (gram == 64 * np.eye(12, dtype=int)).all()


def test_more_differences_than_codes_repeat_them_and_are_a_group():
    patterns = make_patterns(130, 6)
    assert (patterns[:, 63:126] == patterns[:, :63]).all()
    rows = {tuple(row) for row in patterns}
    for one, other in itertools.product(patterns[:20], repeat=2):
        assert tuple(one * other) in rows
    assert (patterns.sum(axis=0) == 0).all()


def test_the_sums_of_a_block_are_those_of_its_values_with_the_signs_of_each_pattern():
    values = np.random.default_rng(3).integers(-9, 9, 130).astype(float)
    signs = make_patterns(130, 6)
    blocks = [(0, 7), (7, 7), (7, 130)]
    expected = [signs[:, first:last] @ values[first:last] for first, last in blocks]
    np.testing.assert_array_equal(flip(values, blocks, 6), expected)


def enumerate_verdict(differences, looks, total, effect, alpha):
    """The verdict by all 2ⁿ signs of n differences, with plain loops and fractions."""
    rows, strata = differences.shape
    values = differences.ravel().tolist()
    signs = [*itertools.product((1, -1), repeat=rows * strata)]

    def first_look(shift, side):
        alive = {*range(len(signs))}
        for look, pairs in enumerate(looks):
            size = pairs * strata
            paths = {
                index: side
                * math.fsum(
                    s * (v - shift)
                    for s, v in zip(signs[index][:size], values, strict=False)
                )
                for index in alive
            }
            most = math.floor(spend(alpha / 2, pairs / total) * len(signs))
            left = most - (len(signs) - len(alive))
            for index in [*alive]:
                # With all that are as extreme it would still be allowed.
                above = sum(paths[o] >= paths[index] - 1e-9 for o in paths)
                if above <= left:
                    alive.discard(index)
            if 0 not in alive:
                return look
        return math.inf

    ends = {
        BETTER: first_look(0, 1),
        WORSE: first_look(0, -1),
        SAME: max(first_look(-effect, 1), first_look(effect, -1)),
    }
    verdict = min(ends, key=ends.__getitem__)
    if math.isinf(ends[verdict]):
        return UNDECIDED, looks[-1]
    return verdict, looks[ends[verdict]]


@pytest.mark.parametrize("strata", quick_first([2, 1]))
def test_up_to_15_differences_the_verdict_is_that_of_all_patterns(strata):
    pairs = 8 // strata
    looks = [4, 6, 8] if strata == 1 else [3, 4]
    random = np.random.default_rng(strata)
    seen = set()
    for case in range(12):
        mean = (0.0, 3.5, -3.5, 0.3)[case % 4]
        found = np.round(random.standard_t(3, (pairs, strata)) + mean, 1)
        paths = sequential_test._Paths(found, looks, pairs, 6.0, 0.2, bits=8)
        look, verdict = paths.find_verdict()
        expected = enumerate_verdict(found, looks, pairs, 6.0, 0.2)
        assert (verdict, looks[look]) == expected
        seen.add(verdict)
    assert len(seen) >= 3


@pytest.mark.parametrize("look", quick_first([1, 4, 2, 3], quick=2))
def test_the_bounds_are_the_published_ones_of_normal_statistics(look):
    """At one look the statistic is just below or above the bound, before it 0."""
    size, rows = 60, 300
    looks = [size * k for k in range(1, 6)]
    spread = np.random.default_rng(0).permutation(np.linspace(-1, 1, rows))
    spread *= np.where(np.arange(rows) % 2, 1, -1)

    def verdict(z):
        found = spread.copy()
        for k in range(5):
            block = found[k * size : (k + 1) * size]
            block -= block.mean()
        end = looks[look]
        wanted = z * np.sqrt(np.sum(found[:end] ** 2))
        for _ in range(60):  # the sum of squares changes with the mean
            found[end - size : end] += (wanted - found[:end].sum()) / size
            wanted = z * np.sqrt(np.sum(found[:end] ** 2))
        return decide(found[:end, None], looks[: look + 1], rows, 1e-9, 0.05).verdict

    assert verdict(PUBLISHED[look] - 0.12) == UNDECIDED
    assert verdict(PUBLISHED[look] + 0.12) == BETTER
    assert verdict(-PUBLISHED[look] - 0.12) == WORSE


def test_the_published_bounds_are_those_of_the_spending_function():
    """By integration over the first look, independent of the test's own code."""

    def beyond_second(bound):
        # Z₂ = (Z₁ + W) / √2 for the looks at 1/5 and 2/5.
        def density(z):
            rest = (bound * math.sqrt(2) - z) / 1.0
            return stats.norm.pdf(z) * stats.norm.sf(rest)

        return integrate.quad(density, -9, PUBLISHED[0])[0]

    left = spend(0.025, 0.4) - spend(0.025, 0.2)
    assert beyond_second(PUBLISHED[1]) == pytest.approx(left, rel=5e-3)


DISTRIBUTIONS = {
    "normal": lambda random, size: random.normal(size=size),
    "heavy-tailed": lambda random, size: random.standard_cauchy(size),
    "bimodal": lambda random, size: random.choice([9.0, 500.0], size),
    "bounded, rare failures": lambda random, size: np.where(
        random.random(size) < 0.1, random.uniform(0, 100, size), 500.0
    ),
}


@pytest.mark.parametrize("name", quick_first(DISTRIBUTIONS, quick=2))
def test_equal_groups_are_found_different_at_most_as_often_as_the_level(name):
    random, looks = np.random.default_rng(7), [5, 10, 15, 20]
    draw, studies = DISTRIBUTIONS[name], 600
    false = 0
    for _ in range(studies):
        pairs = draw(random, (20, 1)) - draw(random, (20, 1))
        paths = sequential_test._Paths(pairs, looks, 20, 1e-3, 0.1, bits=11)
        false += paths.find_verdict()[1] in (BETTER, WORSE)
    # A rate of 10 % gives more with a probability of 1 in 1 000.
    assert false <= stats.binom.ppf(0.999, studies, 0.1)


def test_several_equal_groups_on_strata_of_any_spread_are_no_more_often_different():
    """Three groups with one baseline, at a third of the level each."""
    random, looks, studies, false = np.random.default_rng(9), [4, 8, 12], 400, 0
    spread = np.array([1.0, 30.0, 0.1])

    def draw():
        return spread * random.standard_t(1.5, (12, 3))

    for _ in range(studies):
        baseline = draw()
        verdicts = {
            sequential_test._Paths(
                draw() - baseline, looks, 12, 1e-6, 0.15 / 3, bits=11
            ).find_verdict()[1]
            for _ in range(3)
        }
        false += not verdicts <= {SAME, UNDECIDED}
    assert 0 < false <= stats.binom.ppf(0.999, studies, 0.15)


@pytest.mark.slow
def test_the_interval_agrees_with_the_verdict_and_covers_the_true_difference():
    random, looks = np.random.default_rng(3), [5, 10, 15, 20]
    missed = 0
    for case in range(60):
        truth = (0.0, 1.0, -2.0)[case % 3]
        found = decide(random.normal(truth, 1, (20, 1)), looks, 20, 0.8, 0.1)
        missed += not found.low < truth < found.high
        assert found.low <= found.mean <= found.high
        if found.verdict == BETTER:
            assert found.low >= 0
        if found.verdict == WORSE:
            assert found.high <= 0
        if found.verdict == SAME:
            assert found.low >= -0.8 - 1e-6
            assert found.high <= 0.8 + 1e-6
    assert missed <= stats.binom.ppf(0.999, 60, 0.1)


def test_too_few_pairs_have_no_interval():
    found = decide(np.full((5, 1), 3.0), [5], 50, 1.0, 0.05)
    assert found == (UNDECIDED, 5, 3.0, -math.inf, math.inf)


def test_units_do_not_matter():
    random, looks = np.random.default_rng(5), [6, 12]
    found = np.round(random.normal(0.7, 1, (12, 2)), 2)
    plain = decide(found, looks, 12, 0.5, 0.05)
    large = decide(found * 2**40, looks, 12, 0.5 * 2**40, 0.05)
    assert (plain.verdict, plain.pairs) == (large.verdict, large.pairs)
    assert large.low == pytest.approx(plain.low * 2**40, rel=1e-6)


def test_equal_results_are_no_difference_and_tie_everywhere():
    found = decide(np.zeros((15, 1)), [5, 10, 15], 15, 1.0, 0.05)
    assert found.verdict == SAME
    assert abs(found.low) < 1e-9


@pytest.mark.slow
def test_the_power_is_that_of_a_normal_test_with_a_small_loss():
    """A fixed test of n = 50 has more power, one of n = 40 less."""
    looks, effect = range(10, 51, 10), 0.4
    finds, excludes = estimate_power(effect, 1.0, looks, 0.05)

    def fixed(n):
        t = stats.t.ppf(0.975, n - 1)
        return stats.nct.sf(t, n - 1, effect * math.sqrt(n))

    error = 3 * math.sqrt(0.25 / 1_000)
    assert fixed(40) - error < finds < fixed(50) + error
    assert 0.2 < excludes < 1
    assert estimate_power(10 * effect, 1.0, looks[-1:], 0.05 / 300)[0] == 1


def test_the_smallest_level_and_the_largest_results_are_no_error():
    assert spend(1e-300, 0.5) < 1e-300
    found = decide(np.full((8, 1), 1.7e308), [8], 8, 1e-200, 0.5)
    assert found.verdict == BETTER
    assert found.low > 0
