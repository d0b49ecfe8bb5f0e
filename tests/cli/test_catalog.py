"""`rlcli list`, `rlcli show`, `rlcli check`: how they print what the catalog says."""

import json

import pytest

import rlcli
from rlcli.cli import main
from rlcli.errors import RlcliError

KINDS = {
    "tracer": [
        {"name": "n_step", "summary": "Sums rewards."},
        {"name": "lambda_return", "summary": "Mixes [all] of them."},
    ],
    "replay": [],
}


@pytest.fixture
def put(monkeypatch):
    return lambda name, function: monkeypatch.setitem(vars(rlcli), name, function)


def test_list_prints_names_and_summaries_by_kind(put, capsys):
    put("list", lambda kind: KINDS)
    assert main(["list"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "tracer",
        "  n_step         Sums rewards.",
        "  lambda_return  Mixes [all] of them.",
        "replay",
    ]


def test_list_prints_what_it_got_as_json(put, capsys):
    put("list", lambda kind: {kind: KINDS["tracer"]})
    assert main(["list", "tracer", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"tracer": KINDS["tracer"]}


def test_show_takes_a_recipe_or_a_kind_and_a_name(put, capsys):
    put("show", lambda *words: f"{words}\n")
    assert main(["show", "dqn_cartpole"]) == 0
    assert main(["show", "tracer", "n_step"]) == 0
    assert capsys.readouterr().out == "('dqn_cartpole',)\n('tracer', 'n_step')\n"


def test_check_goes_on_after_an_unsound_recipe_and_exits_1(put, capsys):
    def check(recipes):
        if recipes == ["bad"]:
            raise RlcliError("bad.yaml:1: no updater", "add one")
        return [{"recipe": recipes[0], "parameters": 17_410}]

    put("check", check)
    assert main(["check", "bad", "good"]) == 1
    out, err = capsys.readouterr()
    assert out == "recipe: good\nparameters: 17410\n"
    assert err == "error: bad.yaml:1: no updater\n\nhint: add one\n"
    assert main(["check", "good"]) == 0
