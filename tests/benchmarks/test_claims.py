"""The benchmark of claims: what usual procedures claim, beside SciPy and by hand."""

import numpy as np
import pytest
from scipy import stats

from benchmarks import claims
from rlcli.results.sequential_test import BETTER, UNDECIDED, WORSE


@pytest.fixture(scope="module")
def cells():
    """The results of 12 studies with two cells."""
    random = np.random.default_rng(0)
    shape = (12, claims.SEEDS)
    return random.normal(0.3, 1, shape), random.normal(0, 1, shape)


def test_a_single_test_is_that_of_welch(cells):
    for first, second in zip(*cells, strict=True):
        p = stats.ttest_ind(first[:5], second[:5], equal_var=False)[1]
        found = claims.test_once(5)(first, second)
        higher = BETTER if first[:5].mean() > second[:5].mean() else WORSE
        assert found == (higher if p < 0.05 else UNDECIDED, 5)


def test_peeking_ends_with_the_first_significant_test(cells):
    for first, second in zip(*cells, strict=True):
        numbers = range(3, claims.SEEDS + 1)
        significant = [
            n
            for n in numbers
            if stats.ttest_ind(first[:n], second[:n], equal_var=False)[1] < 0.05
        ]
        verdict, seeds = claims.peek(first, second)
        assert seeds == (significant[0] if significant else claims.SEEDS)
        assert (verdict == UNDECIDED) is not bool(significant)


def test_equal_results_without_spread_are_no_difference():
    ones = np.ones(claims.SEEDS)
    assert claims.peek(ones, ones) == (UNDECIDED, claims.SEEDS)
    assert claims.peek(ones, 0 * ones) == (BETTER, 3)


def test_bars_that_do_not_overlap_are_a_difference():
    first = np.array([1.0, 2, 3, 4, 5])  # 3 ± 1.581, and ± 0.707
    second = first + 2
    error = claims.procedures(1.0)["5 seeds, ± standard error does not overlap"]
    bars = claims.procedures(1.0)["5 seeds, ± standard deviation does not overlap"]
    assert error(first, second) == (WORSE, 5)
    assert bars(first, second) == (UNDECIDED, 5)
    assert bars(first + 4, first) == (BETTER, 5)


def test_no_seed_is_in_two_studies():
    numbers = np.arange(2 * 3 * claims.SEEDS)
    half = len(numbers) // 2
    studies = [*claims.split(numbers[:half], numbers[half:])]
    assert len(studies) == 3
    used = np.concatenate([each for study in studies for each in study])
    assert sorted(used) == numbers.tolist()
