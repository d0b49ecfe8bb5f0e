"""What the tests of environments share: is what is random as random as it should be?"""

import numpy as np
import pytest


@pytest.fixture(scope="session")
def as_likely():
    """A function: Pearson's test at p = 0.001, of counts beside probabilities."""

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
        # Wilson and Hilferty: its cube root is nearly normal.
        freedom = len(counts) - 1
        share = 2 / (9 * freedom)
        return statistic < freedom * (1 - share + 3.0902 * np.sqrt(share)) ** 3

    return check


@pytest.fixture(scope="session")
def is_uniform():
    """A function: Kolmogorov and Smirnov's test at p = 0.001, of each column."""

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
