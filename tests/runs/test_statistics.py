"""What several seeds say, against numbers worked out by hand and against SciPy."""

import numpy as np
import pytest
from scipy.stats import trim_mean

from rlcli.runs.statistics import bootstrap_ci95, episode_summary, iqm, summary


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([7.0], 7.0),
        ([1.0, 3.0], 2.0),
        ([0.0, 3.0, 90.0], (0.25 * 0 + 3 + 0.25 * 90) / 1.5),
        ([0.0, 1.0, 3.0, 100.0], 2.0),
        ([0.0, 1.0, 2.0, 6.0, 100.0], (0.75 * 1 + 2 + 0.75 * 6) / 2.5),
        ([0.0, 1.0, 2.0, 4.0, 6.0, 100.0], (0.5 * 1 + 2 + 4 + 0.5 * 6) / 3),
    ],
)
def test_the_interquartile_mean_weighs_the_values_at_the_quarters(values, expected):
    assert iqm(values) == pytest.approx(expected, abs=1e-12)
    assert iqm(values[::-1]) == iqm(values)
    assert isinstance(iqm(values), float)


@pytest.mark.parametrize("n", [4, 8, 12, 100])
def test_the_interquartile_mean_is_scipys_trimmed_mean_where_four_divides_n(n):
    values = np.random.default_rng(n).normal(size=n)
    assert iqm(values) == pytest.approx(trim_mean(values, 0.25), abs=1e-12)


@pytest.mark.parametrize("n", [1, 2, 3, 5, 7, 10])
def test_the_interquartile_mean_of_n_is_that_of_every_value_taken_four_times(n):
    values = np.random.default_rng(n).normal(size=n)
    assert iqm(values) == pytest.approx(trim_mean(np.repeat(values, 4), 0.25))


def test_rows_are_reduced_one_by_one():
    rows = np.random.default_rng(0).normal(size=(5, 7))
    np.testing.assert_allclose(iqm(rows), [iqm(row) for row in rows])
    np.testing.assert_allclose(iqm(rows, axis=0), [iqm(row) for row in rows.T])


def test_a_seed_without_a_number_is_not_hidden_by_trimming():
    assert np.isnan(iqm([1.0, 2.0, 3.0, float("nan")]))
    assert np.isnan(iqm([1.0, 2.0, 3.0, float("inf")]))


def test_no_values_have_no_statistics():
    for statistic in (iqm, bootstrap_ci95):
        with pytest.raises(ValueError, match="got"):
            statistic([])


def test_one_value_has_no_interval():
    with pytest.raises(ValueError, match="n > 1"):
        bootstrap_ci95([3.25])
    assert summary([3.25]) == {"mean": 3.25, "iqm": 3.25, "ci95": None}


def test_the_interval_is_the_same_every_time_and_holds_the_statistic():
    values = np.random.default_rng(1).normal(loc=100, size=8)
    low, high = bootstrap_ci95(values)
    assert (low, high) == bootstrap_ci95(list(values[::-1]))
    assert min(values) <= low < iqm(values) < high <= max(values)


def test_the_interval_is_the_percentiles_of_a_loop_over_resamples():
    values = np.array([300.0, 450, 497, 500, 500, 500, 510, 600])
    drawn = np.random.default_rng(5).integers(8, size=(400, 8))
    loop = [trim_mean([values[i] for i in row], 0.25) for row in drawn]
    expected = np.percentile(loop, 2.5), np.percentile(loop, 97.5)
    shuffled = np.random.default_rng(0).permutation(values)
    ours = bootstrap_ci95(shuffled, resamples=400, seed=5)
    assert ours == pytest.approx(expected)


def test_the_interval_has_the_width_that_theory_gives():
    """The variance of a trimmed mean, by its influence function (Tukey)."""
    values = np.random.default_rng(0).normal(size=400)
    low, high = bootstrap_ci95(values)
    winsorized = np.clip(values, *np.percentile(values, [25, 75]))
    error = winsorized.std() / (0.5 * 20)
    assert high - low == pytest.approx(2 * 1.96 * error, rel=0.1)


def test_the_interval_of_values_that_are_not_finite_is_not_finite():
    assert np.isnan(bootstrap_ci95([1.0, float("nan")])).all()


def test_the_spread_of_episodes_is_theirs_alone():
    assert episode_summary(np.array([1.0, 3.0]), np.array([5, 10])) == {
        **{"mean": 2.0, "std": 1.0, "min": 1.0, "max": 3.0},
        **{"length": 7.5, "episodes": 2},
    }


def test_a_summary_holds_mean_iqm_and_interval():
    assert summary([500.0] * 8) == {"mean": 500.0, "iqm": 500.0, "ci95": [500.0, 500.0]}
