"""Averages: against sums computed by hand."""

import numpy as np
import pytest

from rlcli.utils import ExponentialAverage, RollingAverage


def test_a_rolling_average_is_the_mean_of_the_last_n():
    average = RollingAverage(3)
    assert average.value == 0
    assert [average.update(x) for x in (1, 2, 6, 10, 2)] == [1, 1.5, 3, 6, 6]
    assert average.value == 6


def test_a_rolling_average_drops_huge_numbers_exactly():
    average = RollingAverage(2)
    assert [average.update(x) for x in (1e20, 1.0, 3.0)][-1] == 2


def test_an_exponential_average_is_initially_a_mean_and_then_decays():
    average = ExponentialAverage(2)
    assert average.value == 0
    # (4 + 8) / 2 = 6; 6 + (2 − 6) / 2 = 4; 4 + (10 − 4) / 2 = 7
    assert [average.update(x) for x in (4, 8, 2, 10)] == [4, 6, 4, 7]
    assert average.value == 7


@pytest.mark.parametrize("kind", [RollingAverage, ExponentialAverage])
def test_both_averages_are_the_mean_of_the_first_n_numbers(kind):
    numbers = np.random.default_rng(0).normal(size=100)
    average = kind(100)
    for number in numbers:
        average.update(number)
    assert average.value == pytest.approx(numbers.mean())


@pytest.mark.parametrize("kind", [RollingAverage, ExponentialAverage])
def test_an_empty_window_is_refused(kind):
    with pytest.raises(ValueError, match="at least 1, got 0"):
        kind(0)
