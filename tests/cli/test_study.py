"""`rlcli study`: scripts for SLURM, and studies in other commands."""

import contextlib
import json
from pathlib import Path

import pytest
from folders import write_run
from sweeps import write_info

import rlcli
from rlcli.cli import main, study_screen
from rlcli.runs import locks
from rlcli.runs.run_folder import Run
from rlcli.runs.study_record import Cell, record_study
from rlcli.studies.engines.engine_options import EngineOptions
from rlcli.studies.study_loop import CellEnd, announce

PAPER = """\
recipes: [qlearning_frozenlake]
vary: {updater.name: [q_learning, sarsa]}
"""


@pytest.fixture
def study(folder):
    """The folder of a study with a cell that has finished, and one without a run."""
    place = Path("study")
    cells = [Cell(place / name, place, "lake", "") for name in ("a", "b")]
    record_study(place, cells)
    write_run(cells[0].folder)
    return place


def test_a_script_is_written_and_the_next_commands_are_named(folder, capsys):
    Path("paper.yaml").write_text(PAPER)
    words = [
        "study",
        "paper.yaml",
        "--run",
        "here",
        "--engine",
        "slurm",
        "--script",
        "my array.sh",
    ]
    assert main([*words, "--seeds", "3"]) == 0
    out, err = capsys.readouterr()
    assert out == "here\n"
    assert err == "next: sbatch --wait 'my array.sh'; rlcli resume here\n"
    record = json.loads(Path("here/study.json").read_text())
    assert [cell["set"][-1] for cell in record["cells"].values()] == [
        "train.seeds=3"
    ] * 2


@pytest.mark.parametrize("words", [["--dry-run"], ["--jobs", "2"], ["--seeds", "2"]])
def test_an_error_of_several_cells_is_said_once_with_its_place(words, folder, capsys):
    Path("paper.yaml").write_text(
        "recipes: [qlearning_frozenlake]\n"
        "vary: {tracer.gamm: [0.8, 0.9, 0.95, 0.99], train.seed: [1, 2]}\n"
    )
    assert main(["study", "paper.yaml", *words]) == 1
    error = capsys.readouterr().err
    assert error.count("has no option `gamm`") == error.count("`gamma`?") == 1
    assert "8 cells, `" in error and "`, …: " in error
    assert "paper.yaml:2: tracer" in error


@pytest.mark.slow
def test_a_study_from_a_file_has_an_axis_more_with_vary(folder, capsys):
    Path("paper.yaml").write_text(PAPER)
    words = ["study", "paper.yaml", "--vary", "tracer.gamma=0.8,0.9", "--dry-run"]
    assert main([*words, "--json"]) == 0
    cells = [each["cell"] for each in json.loads(capsys.readouterr().out)]
    assert cells == [
        f"updater={name},gamma={gamma}"
        for name in ("q_learning", "sarsa")
        for gamma in ("0.8", "0.9")
    ]


def test_a_study_that_was_stopped_is_not_watched(study, capsys):
    assert main(["watch", str(study)]) == 0
    lines = capsys.readouterr().err.splitlines()
    assert lines == ["2 cells: 1 finished, 1 missing", "next: rlcli resume study"]
    assert main(["watch", str(study), "--json"]) == 0
    cells = json.loads(capsys.readouterr().out)["cells"]
    assert [each["status"] for each in cells] == ["finished", "missing"]


@pytest.mark.parametrize("kind", ["process", "array"])
def test_a_study_is_watched_as_long_as_its_cells_may_begin(
    kind, study, monkeypatch, capsys
):
    """No cell is in training; after a while `b` begins, and then it has finished."""
    lock = contextlib.ExitStack()
    if kind == "process":
        lock.enter_context(announce(study))
    else:
        (study / "slurm").mkdir()
    looks = []

    def go_on(seconds):
        looks.append(seconds)
        assert len(looks) < 9
        if len(looks) == 2:
            write_run(study / "b", status="running")
            lock.enter_context(locks.hold(study / "b"))
        if len(looks) == 4:
            write_info(study / "b", status="finished")
            lock.close()

    monkeypatch.setattr(study_screen.time, "sleep", go_on)
    assert main(["watch", str(study)]) == 0
    what = {
        "process": "its process to begin the next cell, 1 left",
        "array": "a task of its job array to begin, 1 cell left",
    }
    assert capsys.readouterr().err.splitlines() == [
        f"2 cells: 1 finished, 1 missing; waiting for {what[kind]}",
        "2 cells: 1 finished, 1 running",
        "2 cells: 2 finished",
        "next: rlcli compare study",
    ]
    assert len(looks) == 4


def test_a_sweep_that_has_ended_is_complete_with_trials_that_were_pruned(study, capsys):
    write_run(study / "b", status="terminated")
    record_study(study, search={})
    for status, command in (
        ("finished", "sweep show study"),
        ("killed", "resume study"),
    ):
        (study / "result.json").write_text(json.dumps({"status": status}))
        assert main(["watch", str(study)]) == 0
        lines = capsys.readouterr().err.splitlines()
        assert lines == [
            "2 cells: 1 finished, 1 terminated",
            f"next: rlcli {command}",
        ]


@pytest.mark.parametrize("words", [["train", "dqn_cartpole"], ["resume", "study/a"]])
def test_engines_are_for_studies_and_not_for_a_single_run(words, study, capsys):
    for option in (["--engine", "ray"], ["--cpus", "2"], ["--run-storage", "s3://b"]):
        assert main([*words, *option]) == 2
        error = capsys.readouterr().err
        assert f"{option[0]}: is for a study, not for a single run" in error


def test_runs_and_show_tell_the_states_of_the_cells(study, capsys):
    assert main(["runs", "."]) == 0
    assert "study: 2 cells: 1 finished, 1 missing" in capsys.readouterr().out
    assert main(["show", str(study)]) == 0
    assert "2 cells: 1 finished, 1 missing" in capsys.readouterr().out


def test_resume_continues_the_search_of_a_sweep(study, monkeypatch, capsys):
    calls = []

    def sweep(recipe, **keywords):
        calls.append((Path(recipe), keywords["resume"], keywords["jobs"]))
        return recipe

    monkeypatch.setitem(vars(rlcli), "sweep", sweep)
    record_study(study, search={})
    assert main(["resume", str(study), "--jobs", "3", "--quiet"]) == 1
    assert calls == [(study, True, 3)]
    assert "study.json` is damaged: `recipe`" in capsys.readouterr().err
    assert main(["study", str(study)]) == 1
    assert "`rlcli sweep study --resume` continues it" in capsys.readouterr().err
    assert Run(study / "b").read_info() == {}


@pytest.mark.parametrize(
    ("storage", "command"),
    [
        (None, "rlcli resume study"),
        ("s3://b", "rlcli resume study --engine ray --run-storage s3://b"),
    ],
)
def test_a_study_that_was_stopped_says_how_to_go_on(
    study, storage, command, capsys, monkeypatch
):
    cell = Cell(study / "a", study, "lake", "")

    def stop(*_, **keywords):
        return [CellEnd(cell, 143, "")]

    monkeypatch.setitem(vars(rlcli), "study", stop)
    engines = EngineOptions(run_storage=storage)._asdict()
    assert study_screen.train_and_report(quiet=False, **engines) == 143
    assert capsys.readouterr().err.endswith(f"next: {command}\n")
