"""What several seeds say, against numbers worked out by hand and against SciPy."""

import numpy as np
import pytest
from scipy.stats import trim_mean

from rlcli.runs.statistics import (
    bootstrap_band,
    bootstrap_ci95,
    bounded_iqm,
    episode_summary,
    iqm,
    remember,
    resample_counts,
    statistics_row,
    summary,
)


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


@pytest.mark.parametrize("n", range(1, 14))
def test_the_interquartile_mean_of_equal_values_is_exact(n):
    for value in (0.1, 1.0, -7.3):
        assert iqm([value] * n) == value
        if n > 1:
            assert bootstrap_ci95([value] * n) == (value, value)


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
    drawn = np.random.default_rng(0).integers(8, size=(2_000, 8))
    loop = [trim_mean([values[i] for i in row], 0.25) for row in drawn]
    expected = np.percentile(loop, 2.5), np.percentile(loop, 97.5)
    shuffled = np.random.default_rng(0).permutation(values)
    assert bootstrap_ci95(shuffled) == pytest.approx(expected)


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
    assert summary([1.0, 3.0])["ci95"] == [1.0, 3.0]
    assert summary([1.0])["ci95"] is None


def test_an_array_of_one_axis_may_name_it():
    assert iqm([0.0, 1.0, 3.0, 100.0], axis=0) == 2.0


@pytest.mark.parametrize("n", [1, 3, 4, 5, 8, 9])
@pytest.mark.parametrize("worst", [-np.inf, np.inf])
def test_failures_have_no_weight_while_they_are_a_quarter_at_most(n, worst):
    """An infinite value is as if it were any very bad one."""
    values = np.random.default_rng(n).normal(size=n)
    for failures in range(n + 1):
        failed = np.where(np.arange(n) < failures, worst, values)
        very_bad = np.where(np.arange(n) < failures, np.sign(worst) * 1e9, values)
        expected = trim_mean(np.repeat(very_bad, 4), 0.25)
        if failures > n / 4:
            expected = worst
        assert bounded_iqm(failed, worst=worst) == pytest.approx(expected)


def test_resamples_are_counts_of_draws_with_replacement():
    counts = resample_counts(5, 7, (3,))
    drawn = np.random.default_rng((3,)).integers(5, size=(7, 5))
    assert counts.tolist() == [[list(row).count(i) for i in range(5)] for row in drawn]
    assert resample_counts(5).shape == (2_000, 5)
    np.testing.assert_array_equal(resample_counts(5), resample_counts(5, 2_000, (0,)))


def test_an_interval_has_2000_resamples_of_seed_0_unless_it_says_otherwise():
    values = np.random.default_rng(3).normal(size=6)
    drawn = np.random.default_rng((0,)).integers(6, size=(2_000, 6))
    ranked = np.sort(values)
    expected = np.percentile([iqm(ranked[row]) for row in drawn], [2.5, 97.5])
    assert bootstrap_ci95(values) == pytest.approx(expected)
    means = np.percentile([ranked[row].mean() for row in drawn], [2.5, 97.5])
    band = bootstrap_band(np.stack([values, values + 1], axis=1), "mean")
    np.testing.assert_allclose(band, np.stack([means, means + 1], axis=1))
    np.testing.assert_allclose(bootstrap_band(values[:, None])[0], expected[:1])


def test_a_band_is_nan_only_where_a_value_is_not_finite():
    values = np.array([[1.0, 1.0, 5.0], [2.0, np.inf, 6.0]])
    for edge in bootstrap_band(values):
        assert np.isfinite(edge).tolist() == [True, False, True]


def test_the_row_of_a_log_point_has_the_statistics_of_its_seed():
    """Seed and log point differ, so that a mix-up of the axes is noticed."""
    shape = (2, 3)  # seeds, log points
    numbers = np.arange(1, 7, dtype=np.float32).reshape(shape)
    statistics = {
        "episodes": np.array([[0, 1, 2], [3, 4, 5]]),
        "last_return": 10 * numbers,
        "last_length": numbers,
        "average_return": -numbers,
        "last_info": {"regret": numbers + 0.5},
        "total_info": {"regret": numbers + 100},
        "max_info": {"regret": numbers + 200},
    }
    assert statistics_row(statistics, (0, 0)) == {"ep": 0}
    row = statistics_row(statistics, (1, 2))
    assert row == {
        "ep": 5,
        "G": 60.0,
        "t": 6.0,
        "avg_G": -6.0,
        "avg_r": 10.0,
        "regret": 6.5,
        "total_regret": 106.0,
        "max_regret": 206.0,
    }
    assert statistics_row(statistics, (0, 1))["ep"] == 1


def test_an_evaluation_summarizes_returns_and_lengths():
    summary = episode_summary(np.array([1.0, 3.0, 8.0]), np.array([2, 4, 9]))
    assert summary == {
        "mean": 4.0,
        "std": pytest.approx(np.sqrt((9 + 1 + 16) / 3)),
        "min": 1.0,
        "max": 8.0,
        "length": 5.0,
        "episodes": 3,
    }


def test_results_are_remembered_by_the_content_of_arrays():
    calls = []

    @remember
    def double(values, center="mean"):
        calls.append(center)
        return 2 * np.asarray(values)

    values = np.array([1.0, 2.0])
    first = double(values)
    first[0] = 9.0  # of the caller alone
    assert double(values.copy()).tolist() == [2.0, 4.0]
    assert len(calls) == 1
    values[0] = 5.0
    assert double(values).tolist() == [10.0, 4.0]
    for other in (values[None], values.astype(np.float32), [*values.tolist()]):
        double(other)
    double(values, center="iqm")
    assert len(calls) == 6
