"""Options that several verbs share."""

import pytest
import typer

from rlcli.cli import options


@pytest.mark.parametrize(
    ("text", "expected"), [("600x400", (600, 400)), ("1X2", (1, 2)), (None, None)]
)
def test_a_size_is_width_and_height(text, expected):
    assert options.parse_size(text) == expected


@pytest.mark.parametrize(
    "text", ["", "x", "600", "0x1", "1x2x3", "-1x2", "²x2", "9e9x1"]
)
def test_another_size_is_refused(text):
    with pytest.raises(typer.BadParameter, match="a height such as 600x400"):
        options.parse_size(text)


def test_no_time_limit_is_none():
    assert options.parse_max_time(None) is None
    assert options.parse_max_time("10m") == 600
