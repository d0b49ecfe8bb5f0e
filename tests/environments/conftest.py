"""Fixtures of the environment tests: statistical tests of random numbers."""

import numpy as np
import pytest


@pytest.fixture(scope="session")
def as_likely():
    """A function: Pearson's chi-squared test of counts at p = 0.001."""

    def check(counts, probabilities):
        counts, probabilities = np.asarray(counts), np.asarray(probabilities)
        assert np.sum(counts[probabilities == 0]) == 0
        counts, probabilities = (
            counts[probabilities > 0],
            probabilities[probabilities > 0],
        )
        expected = counts.sum() * probabilities
        assert expected.min() > 5
        statistic = np.sum((counts - expected) ** 2 / expected)
        # Wilson-Hilferty: its cube root is nearly normal.
        freedom = len(counts) - 1
        share = 2 / (9 * freedom)
        return statistic < freedom * (1 - share + 3.0902 * np.sqrt(share)) ** 3

    return check


@pytest.fixture(scope="session")
def is_uniform():
    """A function: the Kolmogorov-Smirnov test of each column at p = 0.001."""

    def check(sample, low, high):
        sample = (np.asarray(sample, np.float64) - low) / np.subtract(high, low)
        for column in sample.T:
            n = len(column)
            reached = np.sort(column)
            steps = np.arange(n + 1) / n
            distance = max(np.max(steps[1:] - reached), np.max(reached - steps[:-1]))
            if np.sqrt(n) * distance > 1.949:
                return False
        return True

    return check
