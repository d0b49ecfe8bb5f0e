"""What the monitor says, word for word."""

import math

import numpy as np
import pytest

from rlcli.monitor.lines import (
    HEAD,
    format_evaluation,
    format_number,
    format_row,
    merge_evaluation,
    merge_rows,
)


def test_a_row_is_said_in_coaxs_form():
    row = {
        **{"T": 9953, "seed": 0, "ep": 102, "G": 200.0, "t": 200, "avg_G": 195.4},
        **{"avg_r": 1.0, "loss": 0.12345, "dt": 1.5119, "time": 1.0},
    }
    assert format_row(row) == (
        "[TrainMonitor|INFO] ep: 102, T: 9,953, G: 200, avg_r: 1, avg_G: 195, "
        "t: 200, dt: 1.512ms, loss: 0.123"
    )


def test_a_row_says_only_what_is_known():
    row = {"T": 1000, "seed": 0, "ep": 0, "G": None, "loss": np.float32(0.5), "q": None}
    assert format_row(row) == "[TrainMonitor|INFO] ep: 0, T: 1,000, loss: 0.5"


def test_rates_come_last_and_a_frozen_seed_is_marked():
    row = {"T": 10, "steps_per_second": 50812.3, "frozen": "nan in `loss`", "q": 1e-5}
    assert format_row(row) == (
        "[TrainMonitor|INFO] T: 10, q: 1e-05, steps/s: 50,812, frozen: nan in `loss`"
    )
    assert format_row({"T": 10, "frozen": True}).endswith("frozen: yes")


def test_a_line_has_at_most_160_characters_and_ends_with_the_rates():
    metrics = {f"a_long_name_of_a_metric_{index}": 1.0 for index in range(20)}
    row = {"T": 10, "G": 1.0, **metrics, "steps_per_second": 50812.3, "dt": 1.0}
    line = format_row(row)
    assert 120 < len(line) <= 160
    assert line.startswith("[TrainMonitor|INFO] T: 10, G: 1, dt: 1.000ms, a_long_")
    assert line.endswith("a_metric_2: 1, …, steps/s: 50,812")


def test_a_rate_of_nothing_and_totals_of_info_are_not_said():
    row = {"T": 10, "q": 2.0, "success": 1.0, "total_success": 4.0, "max_success": 1.0}
    assert format_row({**row, "updates_per_second": 0.0}) == (
        "[TrainMonitor|INFO] T: 10, success: 1, q: 2"
    )


def test_seeds_are_said_together_by_their_means():
    rows = [
        {"T": 500, "seed": 3, "ep": 10, "avg_G": 10.0, "loss": 1.0, "frozen": False},
        {"T": 500, "seed": 4, "ep": 13, "avg_G": 40.0, "loss": None, "frozen": False},
        {"T": 200, "seed": 5, "ep": 99, "avg_G": 99.0, "loss": 9.0, "frozen": True},
    ]
    assert merge_rows(rows) == {
        **{"T": 500, "ep": 12, "avg_G": 25.0, "loss": 1.0, "seeds": 3},
        **{"min_avg_G": 10.0, "max_avg_G": 40.0, "frozen": 1},
    }
    assert merge_rows(rows[:1]) == rows[0]
    assert merge_rows(rows[2:] * 2)["T"] == 200  # all frozen: their last words


def test_runs_that_are_trained_together_are_merged_as_runs():
    def evaluation(mean, **more):
        spread = {"mean": mean, "min": mean - 1, "max": mean + 1, "episodes": 20}
        return {"T": 500, "seed": 0, "evaluation": spread, **more}

    rows = [
        {"T": 500, "seeds": 2, "avg_G": 10.0, "run": "rate=0.1", "frozen": ""},
        {"T": 500, "seeds": 2, "avg_G": 30.0, "run": "rate=0.5", "frozen": ""},
    ]
    assert merge_rows(rows) == {
        **{"T": 500, "avg_G": 20.0, "seeds": 2, "runs": 2},
        **{"min_avg_G": 10.0, "max_avg_G": 30.0, "frozen": 0},
    }
    merged = merge_evaluation([evaluation(100.0), evaluation(200.0)])
    means = {"mean": 150.0, "min": 149.0, "max": 151.0, "episodes": 20}
    assert merged == {"T": 500, "evaluation": means}
    text = format_evaluation([evaluation(1.0, run="a"), evaluation(3.0, run="b")])
    assert text.startswith("G 2, IQM 2 (95 % interval 1 to 3 over 2 runs), 20 episodes")


def test_an_evaluation_is_described_with_its_success():
    spread = {"mean": 1.0, "std": 0.0, "min": 1.0, "max": 1.0, "episodes": 1}
    numbers = {"is_success": 0.25, "energy": 3.0, **spread}
    row = {"T": 500, "seed": 0, "evaluation": numbers}
    expected = "is_success 0.25, G 1, 1 episode at step 500"
    assert format_evaluation([row]) == expected
    other = {**row, "seed": 1, "evaluation": numbers | {"is_success": 0.75}}
    text = format_evaluation([row, other])
    assert text.startswith("is_success 0.5, G 1, IQM 1 (")
    assert text.endswith(" over 2 seeds), 1 episode at step 500")


def test_an_evaluation_is_described_with_its_interval():
    def result(seed, mean):
        spread = {"mean": mean, "std": 10.0, "min": 450.0, "max": 500.0}
        return {"T": 40_000, "seed": seed, "evaluation": spread | {"episodes": 25}}

    error = format_number(1.96 * 10 / math.sqrt(25))
    alone = f"G 487 ± {error} (95 % over 25 episodes), 450 to 500 at step 40,000"
    assert error == "3.92"
    assert format_evaluation([result(0, 487.0)]) == alone
    assert format_evaluation([result(seed, 480.0) for seed in range(4)]) == (
        "G 480, IQM 480 (95 % interval 480 to 480 over 4 seeds), "
        "25 episodes at step 40,000"
    )


def test_a_single_episode_has_no_interval():
    only = {"mean": 9.0, "std": 0.0, "min": 9.0, "max": 9.0, "episodes": 1}
    rows = [{"T": 100, "seed": 0, "evaluation": only}]
    assert format_evaluation(rows) == "G 9, 1 episode at step 100"


def test_the_evaluation_of_frozen_seeds_counts_and_is_mentioned():
    def result(seed, mean, **mark):
        found = {"mean": mean, "std": 0.0, "min": mean, "max": mean, "episodes": 5}
        return {"T": 100, "seed": seed, "evaluation": found, **mark}

    rows = [result(0, 10.0), result(1, 4.0, frozen="the loss"), result(2, 10.0)]
    assert format_evaluation(rows).startswith("G 8, ")
    assert format_evaluation(rows).endswith(
        " over 3 seeds), 5 episodes at step 100, 1 frozen included"
    )
    assert (
        format_evaluation(rows[1:2])
        == "G 4 ± 0 (95 % over 5 episodes), 4 to 4 at step 100, frozen"
    )


@pytest.mark.parametrize(
    ("value", "expected"),
    {
        **{0: "0", 9953: "9,953", 0.12345: "0.123", 1e-5: "1e-05", 999.6: "1,000"},
        **{31234.4: "31,234", -2000.0: "-2,000", 1e12: "1e+12", math.nan: "–"},
        **{None: "–", math.inf: "–"},
    }.items(),
)
def test_numbers_have_three_digits_and_large_ones_are_whole(value, expected):
    assert format_number(value) == expected


def test_a_name_from_elsewhere_begins_no_line():
    row = {"T": 1, "seed": 0, "a\nb": 1.0, "text": "c\nd"}
    assert format_row(row) == f"{HEAD} T: 1, a\\nb: 1, text: c\\nd"
    results = {"mean": 1.0, "std": 0.0, "min": 1.0, "max": 1.0, "episodes": 2}
    evaluation = [{"T": 1, "seed": 0, "evaluation": {**results, "success\n": 1.0}}]
    assert format_evaluation(evaluation).startswith("success\\n 1, G 1 ± 0")
