"""Durations, as people write them."""

import time

import pytest

from rlcli.runs.durations import Deadline, deadline_of, parse_duration


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("90s", 90),
        ("10m", 600),
        ("3h50m", 13_800),
        ("1h0m1s", 3_601),
        ("2h", 7_200),
        ("0.5s", 0.5),
        ("1.5h", 5_400),
        (" 90s ", 90),
        (2.5, 2.5),
    ],
)
def test_hours_minutes_and_seconds_add_up(text, expected):
    assert parse_duration(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "90",
        "s",
        "5x",
        "-5s",
        "10m3h",
        "0s",
        "0h0m",
        "1e3s",
        "٣s",
        "inf",
        "1h 5m",
        0,
        -1.0,
    ],
)
def test_anything_else_is_refused(text):
    with pytest.raises(ValueError, match="expected a duration such as 90s"):
        parse_duration(text)


def test_a_limit_is_counted_from_the_call_and_passed_on_unchanged():
    before = time.monotonic()
    deadline = deadline_of("10m")
    assert deadline is not None
    assert before + 600 <= deadline <= time.monotonic() + 600
    assert deadline_of(deadline) is deadline
    assert deadline_of(None) is None
    assert deadline_of(2.5, begin=100.0) == Deadline(102.5)
