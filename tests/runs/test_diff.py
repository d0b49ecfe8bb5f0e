"""Comparisons: what differs between two runs, two recipes, or a run and a recipe."""

import json
from pathlib import Path

import pytest
from folders import RESOLVED, imports_jax, snapshot, write_run

import rlcli
from rlcli.cli import main
from rlcli.errors import RlcliError
from rlcli.recipe import load_recipe, resolve

MACHINE = {
    "versions": {"jax": "0.8.0", "numpy": "2.3.0"},
    "git": {"commit": "a" * 40, "diff": "+ 1\n+ 2\n", "diff_is_cut": False},
    "layout": {"devices": 1},
}


@pytest.fixture
def first(tmp_path) -> Path:
    return write_run(tmp_path / "runs" / "first", means=(1.0, 3.0), **MACHINE)


@pytest.fixture
def second(tmp_path) -> Path:
    git = {**MACHINE["git"], "diff": "+ 1\n+ 3\n"}
    return write_run(
        tmp_path / "runs" / "second",
        means=(7.0,),
        resolved=RESOLVED.replace("0.0005", "{name: linear, from: 1.0, to: 0.0}"),
        status="interrupted",
        step=100,
        python="3.12.0",
        **{**MACHINE, "versions": {"jax": "0.8.1", "numpy": "2.3.0"}, "git": git},
    )


def test_two_runs_are_compared_by_recipe_provenance_seeds_and_results(first, second):
    before = snapshot(first), snapshot(second)
    result = rlcli.diff(first, second)
    assert (result["first"], result["second"]) == (str(first), str(second))
    schedule = {"name": "linear", "from": 1.0, "to": 0.0}
    assert result["recipe"] == {"optimizer.learning_rate": (5e-4, schedule)}
    diffs = result["provenance"].pop("git.diff")
    assert diffs[0] != diffs[1]
    assert all(each.endswith(" (2 lines)") for each in diffs)
    assert result["provenance"] == {
        "versions.jax": ("0.8.0", "0.8.1"),
        "python": (None, "3.12.0"),
    }
    assert result["seeds"] == ([0, 1], [0])
    assert result["results"]["status"] == ("finished", "interrupted")
    assert result["results"]["steps"] == (50_000, 100)
    assert [each["mean"] for each in result["results"]["return"]] == [2.0, 7.0]
    assert (snapshot(first), snapshot(second)) == before


def test_a_run_does_not_differ_from_itself(first):
    result = rlcli.diff(first, first)
    assert (result["recipe"], result["provenance"], result["seeds"]) == ({}, {}, None)
    assert result["results"]["status"] == ("finished", "finished")


def test_recipes_are_compared_with_their_defaults(tmp_path):
    text = "environment: CartPole-v1\nupdater: q_learning\n"
    (tmp_path / "a.yaml").write_text(text)
    (tmp_path / "b.yaml").write_text(text + "tracer: {name: n_step, n: 1}\n")
    assert rlcli.diff(tmp_path / "a.yaml", tmp_path / "b.yaml") == {
        "first": str(tmp_path / "a.yaml"),
        "second": str(tmp_path / "b.yaml"),
        **{"recipe": {}, "provenance": None, "seeds": None, "results": None},
    }
    result = rlcli.diff("dqn_cartpole", "dqn_per_cartpole")
    assert result["recipe"]["replay.name"] == ("uniform", "prioritized")


def test_a_run_is_compared_with_a_recipe(tmp_path):
    recipe = resolve(load_recipe("dqn_cartpole"))
    recipe["tracer"]["gamma"] = 0.9
    run = write_run(tmp_path / "run", resolved=json.dumps(recipe))
    result = rlcli.diff(run, "dqn_cartpole")
    assert result["recipe"] == {"tracer.gamma": (0.9, 0.995)}
    assert result["results"] is None


def test_what_is_neither_a_run_nor_a_recipe_is_refused(first, tmp_path):
    with pytest.raises(RlcliError, match="there is no recipe `dqn_cartpol`"):
        rlcli.diff(first, "dqn_cartpol")
    (tmp_path / "empty").mkdir()
    with pytest.raises(RlcliError, match="is not the folder of a run"):
        rlcli.diff(first, tmp_path / "empty")
    (first / "resolved.yaml").unlink()
    with pytest.raises(RlcliError, match=r"there is no file `.*resolved.yaml`"):
        rlcli.diff(first, first)


def test_runs_are_compared_without_jax(first, second):
    assert not imports_jax(f"rlcli.diff({str(first)!r}, {str(second)!r})")


def test_the_command_prints_the_values_side_by_side(first, second, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")
    monkeypatch.chdir(first.parents[1])
    assert main(["diff", "runs/first", "runs/second"]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert rows[0] == ["runs/first", "runs/second"]
    assert rows[2:4] == [["recipe"], ["optimizer.learning_rate", "0.0005", "1→0"]]
    assert ["versions.jax", "0.8.0", "0.8.1"] in rows
    assert ["python", "–", "3.12.0"] in rows
    assert ["seeds", "0,", "1", "0"] in rows
    assert ["status", "finished", "interrupted"] in rows
    assert ["steps", "50,000", "100"] in rows
    assert main(["diff", "runs/first", "runs/first"]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert rows[2:4] == [["recipe", "equal"], ["provenance", "equal"]]


@pytest.mark.parametrize("width", [60, 80, 120])
def test_the_table_fits_into_any_terminal(width, first, second, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(width))
    assert main(["diff", str(first), str(second)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= width
    assert any("optimizer.learning_rate" in line for line in lines)


def test_json_is_the_comparison_itself(first, second, capsys):
    assert main(["diff", str(first), str(second), "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown == json.loads(json.dumps(rlcli.diff(first, second)))
