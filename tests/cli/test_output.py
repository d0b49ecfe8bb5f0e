"""Output: data on stdout, talk on stderr."""

import json
import math
import re
import sys

import pytest
import yaml

import rlcli
from rlcli.cli import main, output
from rlcli.runs import thread_layout


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


@pytest.mark.parametrize("name", ["a, b.npz", "#a.npz", "a: b}.npz", "a\nb.npz"])
def test_the_section_that_collect_suggests_is_yaml_of_any_path(
    name, monkeypatch, capsys, tmp_path
):
    """The command prints where the data are, for a recipe that learns from them."""
    returns = {"mean": 1.0, "std": 0.0}
    result = {"file": str(tmp_path / name), "steps": 1, "episodes": 1}
    result |= {"environment": "x", "return": returns}
    monkeypatch.setattr(rlcli, "collect", lambda *_, **__: result)
    monkeypatch.setattr(thread_layout, "apply_for_policy", lambda path: None)
    words = ["collect", "zoo/ppo_cartpole", "--output", str(tmp_path / "x.npz")]
    assert main(words) == 0
    (section,) = re.findall("next: `(.*)`", capsys.readouterr().err)
    expected = {"replay": {"name": "dataset", "path": result["file"]}}
    assert yaml.safe_load(section) == expected
