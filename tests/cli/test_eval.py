"""`rlcli eval`: a table for people, JSON for programs."""

import functools
import json
import math
from pathlib import Path

import pytest
from folders import write_run

import rlcli
from rlcli.cli import main
from rlcli.runs import locate

RESULT = {
    "run": "runs/x",
    "checkpoint": "runs/x/policy.pkl.lz4",
    "environment": "CartPole-v1",
    "episodes": 100,
    "seeds": [
        {"seed": 0, "mean": 500.0, "std": 0, "min": 500, "max": 500, "length": 500},
        {"seed": 1, "mean": 97.256, "std": 1.5, "min": 9, "max": 99, "length": 97.2},
    ],
    "return": {"mean": 298.628, "iqm": 298.6, "ci95": [97.3, math.nan], "frozen": 0},
    "parameters": {},
    "info": {},
}
for _row in RESULT["seeds"]:
    _row["frozen"] = None


@pytest.fixture
def calls(monkeypatch):
    calls = []

    @functools.wraps(rlcli.eval)  # with its parameters
    def function(**keywords):
        calls.append(keywords)
        return RESULT

    monkeypatch.setitem(vars(rlcli), "eval", function)
    monkeypatch.setattr(locate, "locate_policy", lambda path, best: None)
    return calls


def test_every_option_reaches_the_function_of_its_name(calls):
    options = "--best --episodes 7 --seed 3 --explore --environment gymnasium/X --trust"
    assert main(["eval", "runs/x", *options.split()]) == 0
    keywords = {
        "path": Path("runs/x"),
        "best": True,
        "episodes": 7,
        "seed": 3,
        "explore": True,
        "environment": "gymnasium/X",
        "trust": True,
    }
    assert calls == [keywords]


def test_the_table_is_plain_where_it_is_piped(calls, capsys):
    assert main(["eval", "runs/x"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["seed", "mean", "std", "min", "max", "length"]
    assert lines[2].split() == ["1", "97.26", "1.50", "9.00", "99.00", "97.20"]
    assert lines[-2:] == [
        "return: mean 298.63, IQM 298.60 over 2 seeds of 100 episodes on CartPole-v1",
        "95 % bootstrap interval of the IQM over 2 seeds: 97.30 … nan",
    ]
    assert all(line.isprintable() for line in lines)


def test_one_seed_has_no_interval(calls, monkeypatch, capsys):
    total = {"mean": 97.256, "iqm": 97.256, "ci95": None, "frozen": 0}
    result = RESULT | {"seeds": RESULT["seeds"][1:], "return": total, "episodes": 1}
    monkeypatch.setitem(vars(rlcli), "eval", lambda *_, **__: result)
    assert main(["eval", "runs/x"]) == 0
    *_, total, interval = capsys.readouterr().out.splitlines()
    assert total.endswith(" over 1 seed of 1 episode on CartPole-v1")
    assert interval == "95 % bootstrap interval of the IQM over seeds: n/a: 1 seed"


def test_what_the_environment_reports_follows(calls, monkeypatch, capsys):
    info = {"success": {"mean": 0.8, "ci95": [0.49, 0.94]}}
    info["energy"] = {"mean": 2.5, "ci95": None}
    monkeypatch.setitem(vars(rlcli), "eval", lambda *_, **__: RESULT | {"info": info})
    assert main(["eval", "runs/x"]) == 0
    assert capsys.readouterr().out.splitlines()[-2:] == [
        "success: mean 0.80, 95 % interval 0.49 … 0.94 over the episodes",
        "energy: mean 2.50",
    ]


def test_json_is_the_result_itself(calls, capsys):
    assert main(["eval", "runs/x", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["seeds"] == RESULT["seeds"]
    assert result["return"]["ci95"] == [97.3, None]


def test_cells_that_failed_or_have_frozen_seeds_say_so(
    calls, monkeypatch, capsys, tmp_path
):
    frozen = {"step": 3, "reason": "the loss is not finite"}
    cells = []
    for rate, status, record in (
        ("0.1", "finished", None),
        ("0.2", "finished", frozen),
        ("0.3", "failed", frozen),
    ):
        run = write_run(tmp_path / rate, status=status)
        first, second = RESULT["seeds"]
        seeds = [first, {**second, "frozen": record}]
        values = {"optimizer.learning_rate": rate}
        fields = {"run": str(run), "seeds": seeds, "values": values}
        cells.append({**RESULT, **fields})
    monkeypatch.setitem(vars(rlcli), "eval", lambda *_, **__: {"cells": cells})
    assert main(["eval", str(tmp_path)]) == 0
    _, *rows, _ = capsys.readouterr().out.splitlines()
    assert [row.split()[0] for row in rows] == ["0.1", "0.2", "0.3"]
    assert not rows[0].endswith(("frozen", "failed"))
    assert rows[1].endswith("  1 frozen") and rows[2].endswith("  failed")
