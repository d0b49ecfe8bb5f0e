"""Output: data on stdout, talk on stderr."""

import json
import math
import sys

from rlcli.cli import output


def test_data_and_talk_go_their_own_ways(capsys):
    output.print_data("42")
    output.print_message("so it is")
    assert capsys.readouterr() == ("42\n", "so it is\n")


def test_talk_never_lands_in_the_data_where_stderr_is_closed(capsys, monkeypatch):
    monkeypatch.setattr(sys, "stderr", None)
    output.print_message("nobody listens")
    assert capsys.readouterr().out == ""


def test_json_has_null_where_a_number_is_none():
    value = {"mean": math.nan, "ci95": (1.0, math.inf), "name": "Ω"}
    expected = {"mean": None, "ci95": [1.0, None], "name": "Ω"}
    assert json.loads(output.as_json(value)) == expected
