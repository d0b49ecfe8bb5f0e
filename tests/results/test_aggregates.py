"""Aggregates: beside rliable's numbers, SciPy, and loops over resamples.

`RLIABLE` was made by rliable 1.2.0 with `get_interval_estimates(method="percentile")`,
50,000 resamples (5,000 for the probability of improvement), and by
`create_performance_profile` with 20,000, of these scores of 8 runs in 3 environments.
"""

import numpy as np
import pytest
from scipy import stats

from rlcli.results import aggregates
from rlcli.results.aggregates import (
    estimate,
    estimate_improvement,
    fraction_above,
    iqm,
    mean,
    median_over_environments,
    median_over_seeds,
    optimality_gap,
)
from rlcli.runs import statistics
from rlcli.runs.statistics import RESAMPLES

RLIABLE = {
    "scores": {
        "A": [
            [0.717, 0.489, 0.859],
            [0.717, 0.656, 0.94],
            [1.039, 0.971, 0.759],
            [0.562, 0.36, 0.589],
            [0.951, 1.057, 1.069],
            [0.436, 0.578, 0.892],
            [1.035, 0.794, 1.028],
            [1.019, 0.875, 0.826],
        ],
        "B": [
            [0.195, 0.388, 1.057],
            [0.473, 0.469, 0.611],
            [0.649, 0.348, 0.276],
            [0.338, 0.593, 1.087],
            [0.463, 0.389, 0.947],
            [0.832, 0.897, 0.699],
            [0.659, 0.786, 0.424],
            [0.61, 0.458, 0.872],
        ],
    },
    "estimates": {
        "A": [0.80075, 0.8095, 0.82975, 0.209542],
        "B": [0.605, 0.541, 0.5745, 0.401],
    },
    "intervals": {
        "A": [
            [0.719707, 0.691122, 0.714665, 0.136041],
            [0.879458, 0.908875, 0.93225, 0.286458],
        ],
        "B": [
            [0.515332, 0.466375, 0.470833, 0.316833],
            [0.692625, 0.68, 0.6975, 0.487625],
        ],
    },
    "improvement": 0.708333,
    "improvement_interval": [0.546875, 0.854167],
    "thresholds": [0.0, 0.25, 0.5, 0.75, 1.0],
    "profiles": {
        "A": [1.0, 1.0, 0.875, 0.625, 0.25],
        "B": [1.0, 0.958333, 0.541667, 0.291667, 0.083333],
    },
    "profile_intervals": {
        "A": [
            [1.0, 1.0, 0.75, 0.458333, 0.083333],
            [1.0, 1.0, 1.0, 0.791667, 0.416667],
        ],
        "B": [
            [1.0, 0.875, 0.333333, 0.125, 0.0],
            [1.0, 1.0, 0.708333, 0.458333, 0.208333],
        ],
    },
}
SCORES = {name: [*np.transpose(rows)] for name, rows in RLIABLE["scores"].items()}
STATISTICS = (mean, median_over_environments, iqm, optimality_gap)  # rliable's order
NOISE = 0.02  # of the ends of intervals, which are random


@pytest.mark.parametrize("name", SCORES)
@pytest.mark.parametrize("index", range(len(STATISTICS)))
def test_statistics_and_intervals_are_those_of_rliable(name, index):
    value, interval = estimate(STATISTICS[index], SCORES[name])
    assert value == pytest.approx(RLIABLE["estimates"][name][index], abs=1e-6)
    expected = np.transpose(RLIABLE["intervals"][name])[index]
    np.testing.assert_allclose(interval, expected, atol=NOISE)


def test_the_probability_of_improvement_is_that_of_rliable():
    value, interval = estimate_improvement(SCORES["A"], SCORES["B"])
    assert value == pytest.approx(RLIABLE["improvement"], abs=1e-6)
    np.testing.assert_allclose(interval, RLIABLE["improvement_interval"], atol=NOISE)


@pytest.mark.parametrize("name", SCORES)
def test_performance_profiles_are_those_of_rliable(name):
    for index, threshold in enumerate(RLIABLE["thresholds"]):
        value, interval = estimate(fraction_above(threshold), SCORES[name])
        assert value == pytest.approx(RLIABLE["profiles"][name][index], abs=1e-6)
        expected = np.transpose(RLIABLE["profile_intervals"][name])[index]
        np.testing.assert_allclose(interval, expected, atol=1 / 24 + 1e-6)  # one run


def loop(statistic, scores, resamples=RESAMPLES):
    """The 95 % interval of a statistic of samples, resampled one by one."""
    random = np.random.default_rng(1)
    values = [
        statistic([random.choice(each, len(each)) for each in scores])
        for _ in range(resamples)
    ]
    return np.quantile(values, [0.025, 0.975])


def test_intervals_are_those_of_a_loop_over_resamples():
    """With different numbers of seeds."""
    random = np.random.default_rng(0)
    scores = [random.normal(size=n) for n in (5, 9, 6)]
    by_loop = {
        mean: lambda sample: np.mean([each.mean() for each in sample]),
        iqm: lambda sample: statistics.iqm(
            np.concatenate(
                [np.repeat(s, k) for s, k in zip(sample, (18, 10, 15), strict=True)]
            )
        ),
    }
    for statistic, function in by_loop.items():
        value, interval = estimate(statistic, scores)
        assert value == pytest.approx(function(scores))
        np.testing.assert_allclose(interval, loop(function, scores, 2000), atol=0.07)


@pytest.mark.parametrize("n", [2, 5, 30])
def test_intervals_of_one_environment_are_those_that_runs_record(n):
    values = np.random.default_rng(n).normal(size=n)
    interval = estimate(iqm, [values]).ci95
    np.testing.assert_allclose(interval, statistics.bootstrap_ci95(values), rtol=1e-12)


@pytest.mark.parametrize("n", [2, 3, 4, 7, 8])
def test_of_one_environment_they_are_the_statistics_of_its_seeds(n):
    values = np.random.default_rng(n).normal(size=n)
    assert estimate(mean, [values]).value == pytest.approx(values.mean())
    assert estimate(median_over_seeds, [values]).value == pytest.approx(
        np.median(values)
    )
    assert estimate(iqm, [values]).value == pytest.approx(statistics.iqm(values))
    low, high = estimate(median_over_seeds, [values]).ci95
    expected = loop(lambda sample: np.median(sample[0]), [values])
    np.testing.assert_allclose((low, high), expected, atol=0.15)


def test_the_probability_of_improvement_is_the_statistic_of_mann_and_whitney():
    random = np.random.default_rng(0)
    x, y = random.integers(6, size=7), random.integers(6, size=5)  # with ties
    expected = stats.mannwhitneyu(x, y).statistic / (7 * 5)
    assert estimate_improvement([x], [y]).value == pytest.approx(expected)
    assert estimate_improvement([y], [x]).value == pytest.approx(1 - expected)
    drawn = np.random.default_rng(1)
    values = []
    for _ in range(2000):
        a, b = drawn.choice(x, 7), drawn.choice(y, 5)
        wins = np.mean((a[:, None] > b) + 0.5 * (a[:, None] == b))
        values.append(wins)
    interval = estimate_improvement([x], [y]).ci95
    np.testing.assert_allclose(interval, np.quantile(values, [0.025, 0.975]), atol=0.05)


def test_one_seed_has_no_interval():
    assert estimate(mean, [np.array([2.0])]) == (2.0, None)
    several, single = np.array([1.0, 2.0]), np.array([1.5])
    assert estimate(mean, [several, single]) == (1.5, None)
    assert estimate_improvement([several], [single]) == (0.5, None)
    assert estimate_improvement([several], [several]).ci95 == (0.0, 1.0)


def test_a_score_that_is_not_finite_is_not_hidden():
    scores = [np.array([1.0, np.nan, 2.0, 3.0])]
    for statistic in (mean, median_over_seeds, iqm, optimality_gap):
        assert np.isnan(estimate(statistic, scores).value)
    assert np.isnan(estimate_improvement(scores, scores).value)


def test_the_same_scores_in_any_order_give_the_same_intervals():
    assert estimate(iqm, SCORES["A"]) == estimate(
        iqm, [each[::-1] for each in SCORES["A"]]
    )
    first = estimate_improvement(SCORES["A"], SCORES["B"])
    assert first == estimate_improvement(
        [each[::-1] for each in SCORES["A"]], SCORES["B"]
    )


@pytest.mark.filterwarnings("error")
def test_scores_near_the_largest_float_warn_of_nothing():
    largest = np.full(3, np.finfo(np.float64).max)
    for statistic in (aggregates.mean, aggregates.iqm, aggregates.median_over_seeds):
        assert aggregates.estimate(statistic, [largest]).value > 1e308
