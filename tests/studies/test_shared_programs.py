"""The folder of a study: evaluated, shown and continued as one."""

import contextlib
import json
import math
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import rlcli
from rlcli.cli import main
from rlcli.errors import RlcliError
from rlcli.recipe import load_to_train, read_recipe
from rlcli.runs.creation import create_run
from rlcli.runs.metrics import read_metrics
from rlcli.runs.opened_folder import OpenedFolder
from rlcli.runs.run_folder import Run
from rlcli.runs.study_record import FORMAT, Study, find_study, record_study
from rlcli.studies.shared_programs import group_cells
from rlcli.studies.study_grid import digest_of, grid_of, plan_cells, read_cell

LAKE = """
environment: FrozenLakeNonSlippery-v0
network: table
updater: {name: q_learning, loss: mse}
optimizer: {name: sgd, learning_rate: 0.5}
train: {steps: 2_000, log: {every: 500}, evaluate: {every: 1_000, episodes: 4}}
"""
RATES = ["optimizer.learning_rate=0.1,0.5"]
GROUP = Path("runs/lake/rates")
SLOW, FAST = (GROUP / f"learning_rate={rate}" for rate in ("0.1", "0.5"))


@pytest.fixture(autouse=True)
def _files(folder):
    (folder / "lake.yaml").write_text(LAKE)


def train(vary=RATES, **keywords):
    return rlcli.study(
        ["lake.yaml"], vary=vary, name="rates", quiet=True, seeds=2, **keywords
    )


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The runs of `RATES`, which `group` copies: to train them takes seconds."""
    with contextlib.chdir(tmp_path_factory.mktemp("trained")):
        Path("lake.yaml").write_text(LAKE)
        train()
        return Path("runs").absolute()


@pytest.fixture
def group(folder, trained):
    """The folder of a test with the runs of `RATES`."""
    shutil.copytree(trained, folder / "runs")
    return GROUP


def scores(path: Path) -> list[float]:
    return [seed["mean"] for seed in rlcli.eval(path, episodes=4)["seeds"]]


@pytest.mark.slow
def test_the_folder_is_evaluated_shown_and_continued(group, capsys):
    result = rlcli.eval(GROUP, episodes=4)
    assert [each["values"] for each in result["cells"]] == [
        {"optimizer.learning_rate": "0.1"},
        {"optimizer.learning_rate": "0.5"},
    ]
    for path, each in zip((SLOW, FAST), result["cells"], strict=True):
        assert Path(each["run"]) == path.absolute()
        assert [seed["mean"] for seed in each["seeds"]] == scores(path)

    lines = rlcli.show(str(GROUP)).splitlines()
    assert " ".join(lines[0].split()) == "learning_rate seed 0 seed 1 IQM 95 % interval"
    assert [line.split()[0] for line in lines[1:3]] == ["0.1", "0.5"]
    capsys.readouterr()
    assert main(["show", str(GROUP), "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)["cells"]
    assert [Path(each["run"]) for each in shown] == [SLOW, FAST]
    assert {each["status"] for each in shown} == {"finished"}

    ended = rlcli.study(GROUP, set=["train.steps=3_000"], quiet=True)
    assert [each.code for each in ended] == [0, 0]
    assert {read_metrics(path)[-1]["T"] for path in (SLOW, FAST)} == {3_000}
    before = [path.read_bytes() for path in sorted(GROUP.rglob("*")) if path.is_file()]
    assert [each.code for each in rlcli.study(GROUP)] == [0, 0]
    after = [path.read_bytes() for path in sorted(GROUP.rglob("*")) if path.is_file()]
    assert before == after

    ended = rlcli.study(GROUP, set=["train.steps=2_500"], quiet=True)
    assert [each.code for each in ended] == [1, 1]
    assert "has already made 3,000 steps" in ended[0].message


@pytest.mark.slow
def test_a_single_run_of_the_folder_is_the_best_one(group, capsys):
    best = max((SLOW, FAST), key=lambda path: np.mean(last_returns(path)))
    capsys.readouterr()
    assert main(["render", str(GROUP), "--output", "x.gif"]) == 0
    message = capsys.readouterr().err
    assert message.startswith(f"using `{best}`, the best of 2 runs")
    assert study().choose_best() == best
    other = SLOW if best == FAST else FAST
    record_study(GROUP, search={})  # of a sweep the winner counts
    (GROUP / "result.json").write_text(json.dumps({"winner": {"run": other.name}}))
    assert Path(rlcli.eval(GROUP, episodes=4)["run"]) == other.absolute()
    assert main(["eval", str(GROUP), "--episodes", "4"]) == 0
    assert f"using `{other}`, the best of 2 runs" in capsys.readouterr().err
    with pytest.raises(RlcliError, match=r"has several runs"):
        rlcli.resume(GROUP)


def study() -> Study:
    found = find_study(GROUP)
    assert found is not None
    return found


def last_returns(path: Path) -> list[float]:
    rows = [row for row in read_metrics(path) if "evaluation" in row]
    return [row["evaluation"]["mean"] for row in rows[-2:]]


@pytest.mark.slow
def test_cells_of_a_second_command_are_added(group):
    vary = ["optimizer.learning_rate=0.2"]
    rlcli.study(["lake.yaml"], vary=vary, run=GROUP, quiet=True, seed=7)
    assert [*(cell.label for cell in study().cells)] == [
        *("learning_rate=0.1", "learning_rate=0.5", "learning_rate=0.2")
    ]
    table = rlcli.show(str(GROUP)).splitlines()
    assert [line.count("–") for line in table[1:4]] == [1, 1, 3]


def test_a_folder_is_a_run_or_a_study(group):
    with pytest.raises(RlcliError, match=r"already contains a study"):
        rlcli.train("lake.yaml", run=GROUP, quiet=True)
    with pytest.raises(RlcliError, match=r"already contains a run"):
        rlcli.study(["lake.yaml"], vary=RATES, run=SLOW, quiet=True)


@pytest.mark.slow
def test_the_best_run_has_a_policy_and_has_not_failed(folder):
    """A run whose seeds are all frozen keeps the return of its training."""
    train(["optimizer.learning_rate=1e38,1e-30"])
    failed, other = study().runs
    assert json.loads((failed / "run.json").read_text())["status"] == "failed"
    assert study().choose_best() == other
    assert main(["eval", str(GROUP), "--episodes", "4"]) == 0


def test_what_is_refused_leaves_no_folder(folder):
    with pytest.raises(RlcliError, match=r"is listed twice"):
        train(["tracer.gamma=0.9,0.9"])
    for options in (
        {"name": "a/b"},
        {"jobs": 0},
        {"engine": "slurm", "cpus": math.nan},
    ):
        with pytest.raises(RlcliError, match="cannot"):
            rlcli.study(["lake.yaml"], run="runs/study", **options)
    with pytest.raises(ValueError, match="expected a duration"):
        rlcli.study(["lake.yaml"], engine="slurm", max_time="soon")
    assert not Path("runs").exists()
    ended = train(["tracer.gamma=2,3"])
    assert [each.code for each in ended] == [1, 1]
    assert not GROUP.exists()


@pytest.mark.slow
def test_a_removed_run_does_not_stop_the_others(folder, capsys):
    """One of them was trained together with it, and cannot continue alone."""
    train([*RATES, "updater.name=q_learning,sarsa"])
    shutil.rmtree(study().runs[0])
    capsys.readouterr()
    assert main(["resume", str(GROUP), "--set", "train.steps=3_000"]) == 1
    errors = capsys.readouterr().err
    assert "was trained together with" in errors and "missing" in errors
    steps = [read_metrics(path)[-1]["T"] for path in study().runs]
    assert sorted(steps) == [2_000, 3_000, 3_000, 3_000]


def test_a_process_that_is_training_is_not_disturbed(group):
    with Run(FAST).lock():
        (refused, *_) = rlcli.study(GROUP, set=["train.steps=3_000"], quiet=True)
    assert refused.code == 1 and "already training into" in refused.message


CELL = {"recipe": "lake", "digest": "", "set": [], "values": {}, "tags": []}


@pytest.mark.parametrize(
    "cells",
    [
        3,
        {},
        {"..": CELL},
        {"a/../../b": CELL},
        {"/a": CELL},
        {"a": CELL, "/a": CELL},
        {"a/" * 3_000 + "a": CELL},
        {"a" * 300: CELL},
        {"a": 3},
        {"a": CELL | {"set": [3]}},
        {"a": CELL | {"values": {"x": 3}}},
        {"a": CELL | {"recipe": 3}},
        {"a": CELL | {"recipe": {"name": "../a", "data": {}}}},
        {"a": CELL | {"tags": None}},
        {"a": CELL | {"name": ["b"]}},
    ],
)
def test_a_damaged_record_of_cells_is_one_clear_error(cells):
    GROUP.mkdir(parents=True)
    record = {"format": 1, "cells": cells}
    (GROUP / "study.json").write_text(json.dumps(record))
    with pytest.raises(RlcliError, match=r"study\.json` is damaged"):
        rlcli.study(GROUP)


def test_a_record_of_a_newer_rlcli_says_to_upgrade(folder):
    GROUP.mkdir(parents=True)
    record = {"format": FORMAT + 1, "cells": {}}
    (GROUP / "study.json").write_text(json.dumps(record))
    with pytest.raises(RlcliError, match="has format version 2, but") as caught:
        rlcli.study(GROUP)
    assert "pip install --upgrade rlcli" in caught.value.hint


def test_a_program_of_which_some_runs_were_not_created_begins_anew(folder):
    """A process was killed while it created them."""
    cells = plan(["0.1", "0.5", "0.7"])
    record_study(cells[0].study, cells)
    for cell in cells[:2]:
        create_run(
            "lake", run=cell.folder, members=[each.folder.name for each in cells]
        )
    assert group_cells(cells, trust=True) == ([cells], {})
    assert not any(cell.exists for cell in cells)
    for cell in cells:  # all were created: the program continues
        create_run(
            "lake", run=cell.folder, members=[each.folder.name for each in cells]
        )
    assert group_cells(cells, trust=True) == ([cells], {})
    assert all(cell.exists for cell in cells)


def plan(rates):
    vary = [(f"optimizer.learning_rate={rate}",) for rate in rates]
    return plan_cells(grid_of(["lake.yaml"], combinations=vary), GROUP.absolute())


def test_cells_of_one_program_are_a_group_and_wrong_ones_are_refused(folder):
    first, wrong, other = cells = plan(["0.1", "-1", "0.7"])
    groups, refused = group_cells(cells, trust=True)
    assert groups == [[first, other]]
    assert [*refused] == [wrong.label]


@pytest.mark.slow
def test_cells_that_never_began_begin_when_the_study_continues(group, capsys):
    shutil.rmtree(FAST)
    info = json.loads((SLOW / "run.json").read_text()) | {"members": [SLOW.name]}
    (SLOW / "run.json").write_text(json.dumps(info))
    assert "missing" in rlcli.show(str(GROUP))
    before = (SLOW / "metrics.jsonl").read_bytes()
    assert main(["resume", str(GROUP), "--quiet"]) == 0
    assert read_metrics(FAST)[-1]["T"] == 2_000
    assert (SLOW / "metrics.jsonl").read_bytes() == before
    info = json.loads((FAST / "run.json").read_text())
    assert (info["name"], info["seeds"]) == ("rates", [0, 1])


def test_a_cell_that_has_not_begun_needs_the_recipe_of_its_study(group, folder):
    shutil.rmtree(FAST)
    text = (GROUP / "study.json").read_text()
    recipe = json.loads(text)["cells"][FAST.name]["recipe"]
    (GROUP / "study.json").write_text(text.replace(recipe, str(folder / "lake.yaml")))
    Path("lake.yaml").write_text(LAKE.replace("2_000", "2_500"))
    (ended,) = rlcli.study(GROUP, cell=["learning_rate=0.5"], quiet=True)
    assert ended.code == 1 and "has changed since" in ended.message
    assert not FAST.exists()
    with pytest.raises(RlcliError, match="has no cell `learning_rate=5`"):
        rlcli.study(GROUP, cell=["learning_rate=5"])


def plan_study(recipe):
    rlcli.study([recipe], vary=["train.seed=1,2"], run="lab/runs/n", engine="slurm")
    return "runs/n"


def plan_sweep(recipe):
    pytest.importorskip("optuna")
    space = {"optimizer.learning_rate": {"uniform": [0.1, 0.5]}}
    options = {"sampler": "random", "trials": 2, "seeds": 1, "engine": "slurm"}
    rlcli.sweep(recipe, space=space, run="lab/sweep", **options)
    return "sweep"


def plan_suite(recipe):
    rlcli.bsuite(recipe, ["bandit/0", "bandit/1"], run="lab/suite", engine="slurm")
    return "suite"


@pytest.mark.parametrize("plan", [plan_study, plan_sweep, plan_suite])
@pytest.mark.parametrize("imports", [False, True])
def test_a_study_that_moves_with_its_recipe_can_begin_its_cells(
    folder, monkeypatch, plan, imports
):
    """Those that import a module only with `--trust`: it is not where it was signed."""
    monkeypatch.setenv("XDG_DATA_HOME", str(folder / "data"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(folder / "config"))
    Path("lab").mkdir()
    text = LAKE
    if imports:
        Path("lab/own_parts.py").write_text(
            "def mine(*, learning_rate: float = 0.1):\n"
            "    import optax\n    return optax.sgd(learning_rate)\n"
        )
        text = text.replace("name: sgd", "name: 'own_parts:mine'")
    Path("lab/lake.yaml").write_text(text)
    place = plan("lab/lake.yaml")
    study = Path("lab", place)
    assert OpenedFolder(study).admits_code == imports
    Path("lab").rename("elsewhere")
    study = Path("elsewhere", place)
    cells = find_study(study).cells
    assert {str(cell.recipe) for cell in cells} == {str(folder / "lab/lake.yaml")}
    assert {read_cell(cell).path for cell in cells} == {folder / "elsewhere/lake.yaml"}
    assert not OpenedFolder(study).admits_code
    groups, refused = group_cells(cells, trust=False)
    found = [cell for group in groups for cell in group]
    if imports:
        with pytest.raises(RlcliError, match="would import code"):
            load_to_train(read_cell(cells[0]), trust=False)
    else:
        assert found == [*cells] and not refused
    assert load_to_train(read_cell(cells[0]), trust=True)
    # Another recipe that takes its place is refused, and so is one that has gone.
    Path("elsewhere/lake.yaml").write_text(text.replace("table", "linear"))
    with pytest.raises(RlcliError, match="has changed since"):
        read_cell(find_study(study).cells[0])
    Path("elsewhere/lake.yaml").unlink()
    with pytest.raises(RlcliError, match=r"lab/lake\.yaml"):
        read_cell(find_study(study).cells[0])


@pytest.mark.parametrize("plan", [plan_study, plan_sweep])
@pytest.mark.parametrize("begins", [False, True])
def test_recipes_of_a_moved_study_are_looked_for_only_to_begin_cells(
    folder, plan, monkeypatch, begins
):
    """A record of others may name places that contact a host when they are read."""
    place = Path("lab", plan("lake.yaml"))
    record = json.loads((place / "study.json").read_text())
    for cell in record["cells"].values():
        cell["recipe"] = "/net/host/lake.yaml"
    if "search" in record:
        record["search"]["recipe"] = "/net/host/lake.yaml"
    (place / "study.json").write_text(json.dumps({**record, "folder": "/net/host/x"}))
    looked = []
    stat = os.stat

    def record_stat(path, *rest, **keywords):
        looked.append(str(path))
        return stat(path, *rest, **keywords)

    monkeypatch.setattr(os, "stat", record_stat)
    cell = find_study(place).cells[0]
    assert not OpenedFolder(place).admits_code
    rlcli.show(str(place))
    rlcli.runs(place.parent)
    if begins:
        with pytest.raises(RlcliError, match="/net/host/lake"):
            read_cell(cell)
    assert any(str(place.name) in path for path in looked)
    assert any("/net/" in path for path in looked) == begins


def test_a_study_that_exists_takes_no_options_of_a_new_one(group):
    with pytest.raises(RlcliError, match="cannot change: `seed`, `seeds`, `tag`"):
        rlcli.study(GROUP, seed=0, seeds=3, tag=["x"], vary=[])


def test_cells_of_a_foreign_study_import_no_code(group, capsys):
    marker = Path("ran").absolute()
    Path("evil.py").write_text(f"open({str(marker)!r}, 'w')\n")
    record = json.loads((GROUP / "study.json").read_text())
    record["cells"]["evil"] = CELL | {"set": ["network=evil:net"]}
    record["cells"]["evil"] |= {"recipe": "qlearning_frozenlake"}
    document = read_recipe("qlearning_frozenlake")
    record["cells"]["evil"]["digest"] = digest_of(document)
    (GROUP / "study.json").write_text(json.dumps(record))
    assert main(["study", str(GROUP), "--cell", "evil", "--quiet"]) == 1
    assert "would import code" in capsys.readouterr().err
    assert not marker.exists() and not (GROUP / "evil").exists()


@pytest.mark.slow
def test_an_interrupted_study_continues_to_the_same_policies(folder):
    vary = [*RATES, "updater.name=q_learning,sarsa"]
    train(vary)
    shutil.move(GROUP, "undisturbed")
    command = [sys.executable, "-m", "rlcli", "train", "lake.yaml", "--name", "rates"]
    for text in vary:
        command += ["--vary", text]
    process = subprocess.Popen(
        [*command, "--jobs", "2", "--seeds", "2"], stderr=subprocess.DEVNULL
    )
    while len([*GROUP.glob("*/metrics.jsonl")]) < 2:
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 143
    ended = rlcli.study(GROUP, quiet=True)
    assert {each.code for each in ended} == {0}
    for path in study().runs:
        policy = Path("undisturbed", path.name, "policy.pkl.lz4")
        assert scores(path) == scores(policy)


@pytest.mark.slow
def test_a_refusal_of_every_process_is_reported(capsys):
    train([*RATES, "updater.name=q_learning,sarsa"])
    capsys.readouterr()
    assert main(["resume", str(GROUP), "--set", "train.steps=1_000"]) == 1
    error = capsys.readouterr().err
    assert error.count("has already made 2,000 steps") == 1
    assert "4 cells, `runs/lake/rates/" in error
