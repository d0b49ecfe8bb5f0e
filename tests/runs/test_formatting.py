"""Numbers, durations and changed options as short text."""

import math

import pytest

from rlcli.runs.formatting import (
    format_changes,
    format_count,
    format_duration,
    format_value,
    parse_time,
)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        *((0, "0"), (999, "999"), (1_000, "1k"), (12_500, "12.5k"), (999_600, "1M")),
        *((50_000_000, "50M"), (2.5e9, "2.5G"), (None, "–"), (math.nan, "–")),
    ],
)
def test_steps_have_three_digits(value, expected):
    assert format_count(value) == expected


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [(-1, "0 s"), (59, "59 s"), (60, "1 min"), (7_200, "2 h"), (2.4 * 86_400, "2 d")],
)
def test_durations_have_their_largest_unit(seconds, expected):
    assert format_duration(seconds) == expected


def test_a_time_of_run_json_is_in_utc():
    assert parse_time("1970-01-02T00:00:01Z") == 86_401
    assert parse_time("yesterday") is None
    assert parse_time(None) is None


def test_a_schedule_is_an_arrow_and_a_part_its_name():
    schedule = {"name": "linear", "from": 0.001, "to": 0.0, "over": "100%"}
    assert format_value(schedule) == "0.001→0"
    assert format_value({"name": "adam", "b1": 0.9}) == "adam"
    assert format_value([64, 64]) == "[64, 64]"
    assert format_value(50_000) == "50_000"
    assert (format_value(True), format_value(1e-5)) == ("true", "1e-05")
    assert format_value("x" * 99) == "x" * 23 + "…"
    assert format_value("\x1b[2J\n") == "\\x1b[2J\\n"


def test_changes_of_a_part_are_its_name_and_seeds_are_shown_elsewhere():
    changes = {
        "updater.name": ["q_learning", "ppo"],
        "updater.clip": [None, 0.2],
        "train.seeds": [1, 5],
        "optimizer.learning_rate": [0.1, 5e-4],
    }
    assert format_changes(changes) == ["updater=ppo", "learning_rate=0.0005"]
    assert format_changes({}) == format_changes(None) == []
