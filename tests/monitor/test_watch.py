"""Watching: the progress of a run that another process trains."""

import fcntl
import json

import pytest
from folders import evaluation, imports_jax, snapshot, write_run

import rlcli
from rlcli.monitor import watch
from rlcli.monitor.lines import LEGEND


def row(step, **more):
    return json.dumps({"T": step, "seed": 0, "ep": 1, "avg_G": 2.0, **more}) + "\n"


@pytest.fixture
def run(tmp_path):
    """A run in progress: this process holds its lock."""
    folder = write_run(tmp_path / "run", means=(10.0,), status="running", ended=None)
    (folder / "metrics.jsonl").write_text(row(100) + row(200))
    with (folder / ".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield folder


@pytest.fixture
def script(monkeypatch):
    """What happens to the run in each pause: functions, one after the other."""
    actions = []
    monkeypatch.setattr(watch.time, "sleep", lambda seconds: actions.pop(0)())
    return actions


def append(run, text):
    with (run / "metrics.jsonl").open("a") as file:
        file.write(text)


def edit(run, **fields):
    info = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps(info | fields))


def steps(capsys):
    """The steps in the lines on stderr; evaluations are negative."""
    lines = capsys.readouterr().err.splitlines()
    return [
        -int(line.split("step ")[1].replace(",", ""))
        if "evaluation" in line
        else int(line.split("T: ")[1].split(", ")[0].replace(",", ""))
        for line in lines
        if LEGEND not in line
    ]


def test_a_run_that_has_ended_is_shown_and_left_alone(tmp_path, capsys):
    run = write_run(tmp_path / "run", means=(10.0,))
    before = snapshot(run)
    record = rlcli.watch(run)
    assert record == rlcli.runs(run)[0]
    assert steps(capsys) == [50_000, -50_000]
    assert snapshot(run) == before


def test_a_run_is_shown_until_it_ends(run, script, capsys):
    script += [
        lambda: append(run, row(300) + row(400)[:9]),
        lambda: append(run, row(400)[9:] + row(400, evaluation=evaluation(1.0))),
        lambda: None,
        lambda: (append(run, row(500)), edit(run, status="interrupted")),
    ]
    assert rlcli.watch(run)["status"] == "interrupted"
    assert steps(capsys) == [100, 200, 300, 400, -400, 500]
    assert script == []


def test_returns_that_are_not_finite_are_shown(tmp_path, capsys):
    run = write_run(tmp_path / "run", means=(10.0,))
    append(run, row(60_000, avg_G=None, evaluation=evaluation(None)))
    rlcli.watch(run)
    assert "evaluation: G – ± – (95 % over 5 episodes)" in capsys.readouterr().err


def test_an_evaluation_from_elsewhere_may_lack_numbers(tmp_path, capsys):
    run = write_run(tmp_path / "run", means=(10.0,))
    append(run, row(60_000, time=None, evaluation={"mean": 5.0}))
    rlcli.watch(run)
    assert "evaluation: G 5, 1 episode" in capsys.readouterr().err
    others = [{"mean": 3.0, "x": 1.0}, {"mean": 5.0, "episodes": 2}]
    for seed, each in enumerate(others):
        append(run, row(70_000, seed=seed, evaluation=each))
    rlcli.watch(run)
    assert "evaluation: G 4, IQM 4" in capsys.readouterr().err


def test_a_run_that_is_killed_ends(tmp_path, capsys):
    run = write_run(tmp_path / "run", means=(10.0,), status="running")
    assert rlcli.watch(run)["status"] == "killed"
    assert steps(capsys) == [50_000, -50_000]


def test_a_resume_that_removes_rows_begins_again(run, script, capsys):
    script += [
        lambda: (run / "metrics.jsonl").write_text(row(100)),
        lambda: append(run, row(150)),
        lambda: edit(run, status="finished"),
    ]
    rlcli.watch(run)
    assert steps(capsys) == [100, 200, 100, 150]


def test_a_run_that_is_being_built_is_waited_for(run, script, capsys):
    info = json.loads((run / "run.json").read_text())
    total = info.pop("total_steps")
    (run / "run.json").write_text(json.dumps(info | {"status": "created"}))
    script += [
        lambda: edit(run, status="created", total_steps=total),
        lambda: edit(run, status="finished"),
    ]
    assert rlcli.watch(run)["status"] == "finished"
    assert steps(capsys) == [100, 200]


def test_the_clock_of_a_resumed_run_begins_with_the_resume(run, monkeypatch):
    resumes = [{"time": "2026-11-20T12:00:00Z", "step": 7_000}]
    edit(run, resumes=resumes, status="finished", ended="2026-11-20T12:01:05Z")
    given = {}

    class Watched(watch.Monitor):
        def __init__(self, **keywords):
            given.update(keywords)
            super().__init__(**keywords)

        def begin(self, *arguments, **keywords):
            given.update(keywords)
            super().begin(*arguments, **keywords)

    monkeypatch.setattr(watch, "Monitor", Watched)
    rlcli.watch(run)
    assert given["start"] == 7_000
    assert given["start_time"] == 1_795_168_800 + 7_200
    assert given["title"] == "dqn_cartpole"


def test_a_run_is_watched_without_jax(tmp_path):
    run = write_run(tmp_path / "run")
    assert not imports_jax(f"rlcli.watch({str(run)!r})")
