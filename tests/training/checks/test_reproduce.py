"""Reproduce: a run that is trained again, and what is said about the two."""

import json
import shutil

import pytest

import rlcli
from rlcli.cli import main
from rlcli.errors import RlcliError
from rlcli.runs.differences import describe_origin
from rlcli.runs.run_folder import Run
from rlcli.training.checks import reproduce as module

DATA = {
    "environment": "probe-constant-reward",
    "network": "linear",
    "updater": "q_learning",
    "replay": None,
    "train": {"steps": 64, "unroll": 16, "log": {"every": 16}, "seed": 3},
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A run, its reproduction, and what `reproduce` returned."""
    parent = tmp_path_factory.mktemp("runs")
    original = rlcli.train(DATA, run=parent / "original", quiet=True)
    result = rlcli.reproduce(original, to=parent / "again", quiet=True)
    return original, parent / "again", result


def test_a_run_is_reproduced_to_the_bit(runs):
    original, again, result = runs
    assert result == {
        "run": str(original),
        "reproduction": str(again),
        "provenance": {},
        "step": 64,
        "metrics": None,
        "state": [],
        "identical": True,
    }
    info = Run(again).read_info()
    assert info["reproduces"] == str(original)
    assert (info["tags"], info["seeds"], info["recipe"]) == (
        ["reproduction"],
        [3],
        Run(original).read_info()["recipe"],
    )
    resolved = [Run(run).resolved_recipe.read_text() for run in (original, again)]
    assert resolved[0] == resolved[1]
    log = Run(again).log.read_text()
    assert "versions and machine are those of the original" in log


def test_what_differs_from_then_is_said_before_it_begins(runs, tmp_path):
    original = Run(shutil.copytree(runs[0], tmp_path / "original"))
    original.write_info(python="3.1", platform="Amiga", resumes=[{"step": 32}])
    message, *_, about_resumes = describe_origin(original, Run(runs[1]), "")
    assert about_resumes.startswith("the original was resumed 1 time: options that")
    assert message.startswith("different from the original: python 3.1 → 3.")
    assert "platform Amiga → " in message


def test_the_first_different_row_and_the_different_arrays_are_named(runs, tmp_path):
    again = Run(shutil.copytree(runs[1], tmp_path / "again"))
    lines = again.metrics.read_text().splitlines()
    row = json.loads(lines[1])
    lines[1] = json.dumps({**row, "updates": 9, "time": 0.0})
    again.metrics.write_text("\n".join(lines) + "\n")
    result = module._compare(Run(runs[0]), again)
    assert result["metrics"] == {
        "step": 32,
        "seed": 3,
        "field": "updates",
        "values": [row["updates"], 9],
    }
    assert result["state"] == [] and not result["identical"]


def test_a_member_of_a_population_is_not_reproduced_alone(tmp_path):
    (tmp_path / "run.json").write_text('{"population": true}')
    with pytest.raises(RlcliError, match="is a member of a population"):
        rlcli.reproduce(tmp_path)


def test_a_run_without_a_step_has_nothing_to_reproduce(tmp_path):
    (tmp_path / "run.json").write_text("{}")
    with pytest.raises(RlcliError, match="has made no steps to reproduce"):
        rlcli.reproduce(tmp_path, to=tmp_path / "again")


def test_the_command_says_whether_all_is_equal(monkeypatch, capsys, runs):
    result = dict(runs[2])
    monkeypatch.setitem(vars(rlcli), "reproduce", lambda *_, **__: result)
    assert main(["reproduce", str(runs[0])]) == 0
    out = capsys.readouterr().out
    assert out.endswith(
        "is identical to the original: metrics and state up to step 64\n"
    )
    metrics = {"step": 32, "seed": 3, "field": "loss", "values": [1, 2]}
    result |= {"identical": False, "metrics": metrics, "state": ["agent/w"]}
    assert main(["reproduce", str(runs[0])]) == 1
    assert capsys.readouterr().out.splitlines()[1:] == [
        "  first in `loss` at step 32, seed 3: 1 → 2",
        "  in the state at step 64: agent/w",
    ]
    assert main(["reproduce", str(runs[0]), "--json"]) == 1
    assert json.loads(capsys.readouterr().out) == result


@pytest.mark.parametrize("name", ["../x", "/x", "..", "", "a/b", "a\0b"])
def test_the_name_of_a_recipe_does_not_lead_out_of_the_folder_of_runs(
    runs, tmp_path, name
):
    original = shutil.copytree(runs[0], tmp_path / "original")
    Run(original).write_info(recipe=name)
    with pytest.raises(RlcliError, match="is damaged: `recipe` is"):
        rlcli.reproduce(original, runs=tmp_path / "new", quiet=True)
    assert [each.name for each in tmp_path.iterdir()] == ["original"]


@pytest.mark.slow
def test_the_reproduction_of_a_smoke_run_is_one_and_named_as_typed(
    runs, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(runs[0], "original")
    Run(tmp_path / "original").write_info(smoke=True)
    assert main(["reproduce", "original", "--to", "again", "--quiet"]) == 0
    assert capsys.readouterr().out.startswith("`again` is identical to the original")
    info = Run(tmp_path / "again").read_info()
    assert info["smoke"] is True  # so `rlcli plot` and `rlcli compare` leave it out
