"""Several runs: combinations of options, and processes of their own."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from sweeps import FakeEngine, skip_disk

import rlcli
from rlcli.errors import RlcliError
from rlcli.recipe import read_recipe
from rlcli.runs import files, study_record
from rlcli.runs.metrics import read_metrics
from rlcli.runs.run_folder import Run
from rlcli.runs.study_record import Cell, record_study
from rlcli.studies import train_study
from rlcli.studies.engines import engine_options
from rlcli.studies.engines.jobs import ProcessEnd
from rlcli.studies.study_grid import combine, grid_of, plan_cells
from rlcli.studies.study_loop import (
    CellEnd,
    CellSource,
    StudyLoop,
    describe_end,
    exit_code,
)

LAKE = """
environment: FrozenLakeNonSlippery-v0
network: table
updater: {name: q_learning, loss: mse}
optimizer: {name: sgd, learning_rate: 0.5}
train: {steps: 2_000}
"""


@pytest.fixture(autouse=True)
def _files(folder):
    (folder / "lake.yaml").write_text(LAKE)


@pytest.fixture
def start_process():
    """Starts a process that ignores SIGINT at first; it does not outlive the test."""
    processes = []

    def start(command: list[str]) -> subprocess.Popen[str]:
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # as a job in a script
        try:
            process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
            )
        finally:
            signal.signal(signal.SIGINT, before)
        processes.append(process)
        return process

    yield start
    for process in processes:
        process.terminate()
        process.communicate(timeout=60)


@pytest.mark.parametrize(
    ("vary", "zipped", "expected"),
    [
        ([], [], [()]),
        (["a.b=1,2"], [], [("a.b=1",), ("a.b=2",)]),
        (["a=1,2", "b=x"], [], [("a=1", "b=x"), ("a=2", "b=x")]),
        (["a=[1,2],{x: 1, y: 2}"], [], [("a=[1,2]",), ("a={x: 1, y: 2}",)]),
        (["a='1,2',\"3,4\""], [], [("a='1,2'",), ('a="3,4"',)]),
        ([], ["a=1,2", "b=3,4"], [("a=1", "b=3"), ("a=2", "b=4")]),
        (["c=5"], ["a=1,2", "b=3,4"], [("c=5", "a=1", "b=3"), ("c=5", "a=2", "b=4")]),
    ],
)
def test_the_combinations_are_a_grid_of_lists_and_of_zipped_lists(
    vary, zipped, expected
):
    assert [*combine(vary, zipped)] == expected


@pytest.mark.parametrize(
    ("vary", "zipped", "message"),
    [
        (["a"], [], "expected options to vary as KEY=VALUE,VALUE, got `a`"),
        (["=1,2"], [], "expected options to vary"),
        (["a=1,,2"], [], "expected options to vary"),
        (["a=1,1"], [], "`a=1` is listed twice"),
        (["a=1"], ["a=2"], "`a` is varied twice"),
        ([], ["a=1,2", "b=3"], "same number of values for each option: `a` 2, `b` 1"),
    ],
)
def test_wrong_variations_are_refused(vary, zipped, message):
    with pytest.raises(RlcliError, match=message):
        [*combine(vary, zipped)]


def labels(recipes, vary=(), vary_zip=(), **fields):
    """The folders of the cells of recipes in that of their study."""
    grid = grid_of(recipes, combinations=[*combine(vary, vary_zip)], **fields)
    return [cell.label for cell in plan_cells(grid, Path("here"))]


def test_every_cell_has_a_folder_of_its_own(folder):
    vary = ["optimizer.learning_rate=0.1,0.5", "updater.name=dqn"]
    assert labels(["lake.yaml"], vary) == [
        "learning_rate=0.1,updater=dqn",
        "learning_rate=0.5,updater=dqn",
    ]
    assert labels(["lake.yaml"]) == ["lake"]
    (folder / "pole.yaml").write_text(LAKE)
    assert labels(["lake.yaml", "pole.yaml"], ["tracer.gamma=0.8,0.9"]) == [
        *("lake/gamma=0.8", "lake/gamma=0.9", "pole/gamma=0.8", "pole/gamma=0.9")
    ]
    values = ",".join(f"0.1{30 * '0'}{n}" for n in range(2))  # shortened in names
    first, second = labels(["lake.yaml"], [f"tracer.gamma={values}"])
    assert second == f"{first}-2"


class PlannedError(Exception):
    """What ends a test in place of training."""


def test_a_new_study_is_below_its_recipe_or_among_the_studies(folder, monkeypatch):
    def refuse(cells, **_):
        raise PlannedError(cells[0].study)

    monkeypatch.setattr(train_study, "train_recorded", refuse)
    (folder / "pole.yaml").write_text(LAKE)
    for recipes, place in (
        (["lake.yaml"], "runs/lake/n"),
        (["lake.yaml"], "runs/lake/n-2"),
        (["lake.yaml", "pole.yaml"], "runs/studies/lake+pole/n"),
    ):
        with pytest.raises(PlannedError, match=rf"{re.escape(place)}$"):
            rlcli.study(recipes, name="n")
        assert not (folder / place).exists()
        (folder / place).mkdir(parents=True)


def test_a_recipe_is_read_once_to_train_and_to_sign(folder, monkeypatch):
    def stop(cells, **_):
        raise PlannedError

    read = []

    def keep(recipe, *sets):
        read.append(recipe)
        return read_recipe(recipe, *sets)

    for module in ("study_file", "study_grid"):
        monkeypatch.setattr(f"rlcli.studies.{module}.read_recipe", keep)
    monkeypatch.setattr("rlcli.runs.study_ownership.read_recipe", keep)
    monkeypatch.setattr(train_study, "train_recorded", stop)
    study = {"recipes": [str(folder / "lake.yaml")], "vary": {"train.seed": [1, 2, 3]}}
    with pytest.raises(PlannedError):
        rlcli.study(study)
    assert len(read) == 1


@pytest.mark.parametrize("section", ["search", "bsuite"])
def test_the_folder_of_a_sweep_takes_no_other_runs_and_stays_as_it_is(folder, section):
    record_study(Path("sweep"), **{section: {"seed": 0}})
    before = Path("sweep/study.json").read_bytes()
    with pytest.raises(RlcliError, match="which chooses its own runs"):
        rlcli.study(["lake.yaml"], vary=["optimizer=none,sgd"], run="sweep")
    assert Path("sweep/study.json").read_bytes() == before


def test_a_record_that_could_not_be_read_again_is_not_written(folder, monkeypatch):
    place = Path("study")
    record_study(place, [Cell(place / "a", place, "lake.yaml", "")])
    before = Path("study/study.json").read_bytes()
    monkeypatch.setattr(files, "LARGEST_JSON", 2 * len(before))
    cells = [Cell(place / str(n), place, "lake.yaml", "") for n in range(9)]
    with pytest.raises(RlcliError, match="record of 10 cells"):
        record_study(place, cells)
    assert Path("study/study.json").read_bytes() == before


@pytest.mark.parametrize("option", ["seed", "seeds"])
def test_an_option_that_every_run_would_take_instead_is_refused(option, folder):
    with pytest.raises(RlcliError, match=f"--{option}: `train.{option}` is varied"):
        rlcli.study(["lake.yaml"], vary=[f"train.{option}=1,2"], **{option: 7})
    (folder / "lake.yaml").write_text(f"{LAKE}vary: {{train.{option}: [1, 2]}}\n")
    with pytest.raises(RlcliError, match=f"`train.{option}` is varied"):
        rlcli.study(["lake.yaml"], **{option: 7})
    assert not (folder / "runs").exists()


def test_processes_get_the_time_that_is_left(monkeypatch, folder):
    """Two runs of a minute each, one after the other, with a limit of 90 seconds."""
    clock = [1_000.0]
    commands = []

    class Engine:
        period, jobs = 0.0, 1
        has_room = property(lambda self: not self.running)

        def __init__(self):
            self.running = []

        def start(self, job):
            commands.append(job.arguments)
            self.running.append(job.key)

        def collect(self):
            clock[0] += 60
            ended = [ProcessEnd(key, 0, "") for key in self.running]
            self.running.clear()
            return ended

        def send_signal(self, number, key=None):
            pass

        def close(self):
            assert not self.running

    monkeypatch.setattr("rlcli.runs.durations.time.monotonic", lambda: clock[0])
    monkeypatch.setattr(engine_options, "LocalEngine", lambda jobs, variables: Engine())
    vary = ["updater.name=q_learning,sarsa,expected_sarsa"]
    ended = rlcli.study(["lake.yaml"], vary=vary, max_time=90, name="n", jobs=1)
    assert [words[:3] for words in commands] == [
        ["study", "--max-time", "90s"],
        ["study", "--max-time", "30s"],
    ]
    study = str(folder / "runs/lake/n")
    assert commands[0][-4:] == ["--cell", "updater=q_learning", "--", study]
    assert [(each.code, each.message) for each in ended][-1] == (
        75,
        "no time was left to start it",
    )
    assert exit_code(ended) == 75


def test_a_cell_whose_process_crashes_continues_three_times_at_most(
    monkeypatch, folder
):
    skip_disk(monkeypatch)
    codes = {"updater=q_learning": [137, 137], "updater=sarsa": [137] * 3}
    fake = FakeEngine(codes=codes, curve=lambda options, seed, step: step)
    monkeypatch.setattr(engine_options, "LocalEngine", lambda jobs, _: fake)
    vary = ["updater.name=q_learning,sarsa,expected_sarsa"]
    reports = []
    ended = rlcli.study(
        ["lake.yaml"],
        vary=vary,
        seed=0,
        seeds=1,
        report=lambda cells, ended: reports.append((len(cells), len(ended))),
    )
    by_label = {each.cell.label: each for each in ended}
    assert [by_label[f"updater={name}"].code for name in ("q_learning", "sarsa")] == [
        *(0, 137)
    ]
    assert "ended 3 times with exit code 137" in by_label["updater=sarsa"].message
    assert reports[-1] == (3, 3)


def test_a_cell_that_two_processes_begin_at_once_is_waited_for(monkeypatch, folder):
    skip_disk(monkeypatch)
    other = contextlib.ExitStack()  # the process that was first

    class Engine(FakeEngine):
        def collect(self):
            if self.calls == 0:
                other.enter_context(Run(Path("study/updater=sarsa")).lock())
            elif self.calls == 3:
                other.close()
            return super().collect()

    codes = {"updater=sarsa": [1]}  # it contains a run already
    fake = Engine(codes=codes, curve=lambda options, seed, step: step)
    monkeypatch.setattr(engine_options, "LocalEngine", lambda jobs, _: fake)
    vary = ["updater.name=q_learning,sarsa"]
    ended = rlcli.study(["lake.yaml"], vary=vary, seed=0, seeds=1, run="study")
    assert {each.cell.label: each.code for each in ended} == {
        "updater=q_learning": 0,
        "updater=sarsa": 0,
    }
    assert fake.started[-1] == ("updater=sarsa", "resume")


@pytest.mark.parametrize("wrong", [None, "learning_rate=0.5"])
def test_a_program_that_is_refused_is_divided(monkeypatch, folder, wrong):
    """It is too large, or one of its cells is wrong: the others are trained."""
    groups = []

    def refuse(cells, **_):
        groups.append([cell.label for cell in cells])
        raise RlcliError("there is not enough memory")

    skip_disk(monkeypatch)
    codes = {wrong: [1]} if wrong else {}
    fake = FakeEngine(codes=codes, curve=lambda options, seed, step: step)
    monkeypatch.setattr(engine_options, "LocalEngine", lambda jobs, _: fake)
    monkeypatch.setattr(train_study, "train_cells", refuse)
    vary = ["optimizer.learning_rate=0.1,0.5,0.9"]
    ended = rlcli.study(["lake.yaml"], vary=vary, seed=0, seeds=1)
    labels = [f"learning_rate={rate}" for rate in (0.1, 0.5, 0.9)]
    assert groups == [labels]
    assert [key for key, _ in fake.started] == labels
    codes = {each.cell.label: each.code for each in ended}
    assert codes == {label: int(label == wrong) for label in labels}


def test_a_source_chooses_cells_until_it_has_no_more(monkeypatch, folder):
    """Blocks of two, each when all others have ended."""
    skip_disk(monkeypatch)
    fake = FakeEngine(room=3, curve=lambda options, seed, step: seed)
    cells = plan_cells(
        grid_of(["lake.yaml"], combinations=[*combine(["train.seed=0,1,2,3,4"])]),
        folder / "study",
    )
    sets = "train.seeds=1"
    cells = [each._replace(sets=(*each.sets, sets), document=None) for each in cells]
    first, *left = cells
    asked, told = [], []

    def choose(ended):
        asked.append([each.cell.label for each in ended])
        has_ended = len(ended) + len(left) == len(cells)
        return [left.pop(0) for _ in left[:2]] if has_ended else []

    record_study(folder / "study", [first])
    study = study_record.find_study(folder / "study")
    loop = StudyLoop(
        study, CellSource(choose, told.append), fake, ["--no-trust"], trust=False
    )
    assert loop.run([[first]]) == ""
    labels = [f"seed={seed}" for seed in range(5)]
    assert [each.cell.label for each in loop.ended] == labels
    assert told == loop.ended and loop.cells == cells
    assert [*dict.fromkeys(map(len, asked))] == [0, 1, 3, 5]
    found = study_record.find_study(folder / "study")
    assert [cell.label for cell in found.cells] == labels


def test_recipes_of_the_same_name_have_folders_of_their_own(folder):
    for place in ("one", "two"):
        (folder / place).mkdir()
        (folder / place / "lake.yaml").write_text(LAKE)
    recipes = ["one/lake.yaml", "two/lake.yaml"]
    assert labels(recipes, ["tracer.gamma=0.8,0.9"]) == [
        *("lake/gamma=0.8", "lake/gamma=0.9", "lake-2/gamma=0.8", "lake-2/gamma=0.9")
    ]


def test_the_section_vary_is_one_more_axis(folder):
    (folder / "lake.yaml").write_text(
        f"""{LAKE}
vary:
  - {{tracer.gamma: 0.8, optimizer.learning_rate: 0.1}}
  - {{optimizer.learning_rate: 0.3, tracer.gamma: 0.7}}
"""
    )
    assert labels(["lake.yaml"], ["updater.loss=mse,huber"]) == [
        "gamma=0.8,learning_rate=0.1,loss=mse",
        "gamma=0.8,learning_rate=0.1,loss=huber",
        "learning_rate=0.3,gamma=0.7,loss=mse",
        "learning_rate=0.3,gamma=0.7,loss=huber",
    ]
    with pytest.raises(RlcliError, match="varied twice"):
        labels(["lake.yaml"], ["optimizer.learning_rate=0.5"])


@pytest.mark.parametrize(
    ("recipes", "options", "message"),
    [
        (["lake.yaml", "laek.yaml"], {}, "laek"),
        (["lake.yaml"], {"vary": ["trian.steps=1,2"]}, "no section `trian`"),
        (["lake.yaml"], {"name": "a/b"}, "cannot be the name of a run"),
        (["lake.yaml"] * 2, {"run": "lake.yaml"}, "cannot be created: Not a directory"),
    ],
)
def test_what_is_wrong_is_found_before_any_run_begins(
    recipes, options, message, folder
):
    with pytest.raises(RlcliError, match=message):
        rlcli.study(recipes, **options)
    assert not (folder / "runs").exists()


@pytest.mark.parametrize(
    ("codes", "expected"),
    [([0, 0], 0), ([0, 3], 3), ([3, 75, 1], 1), ([2, 0], 1), ([1, 130], 130), ([], 0)],
)
def test_the_exit_code_says_that_a_run_failed(codes, expected, tmp_path):
    cell = Cell(tmp_path / "a", tmp_path, "lake", "")
    assert exit_code([CellEnd(cell, code, "") for code in codes]) == expected


def test_a_run_of_several_in_a_process_ends_with_its_own_reason(folder):
    stderr = "`a`: all seeds are frozen\n`b`: all seeds are frozen"
    for status, code, message in (
        ("finished", 0, stderr),
        ("failed", 1, "all seeds are frozen"),
        ("interrupted", 130, stderr),
    ):
        info = {"status": status, "reason": "all seeds are frozen"}
        (folder / "run.json").write_text(json.dumps(info))
        cell = Cell(folder, folder, "lake", "")
        assert describe_end(cell, 1, stderr) == CellEnd(cell, code, message)


@pytest.mark.slow
def test_a_failure_does_not_stop_the_others_and_a_run_equals_one_trained_alone(folder):
    vary = ["optimizer.learning_rate=0.1,-1,0.5"]
    ended = rlcli.study(
        ["lake.yaml"], vary=vary, seeds=2, tag=["x"], name="rates", max_time=299.5
    )
    group = folder / "runs/lake/rates"
    codes = {each.cell.label: each.code for each in ended}
    assert codes == {
        "learning_rate=0.1": 0,
        "learning_rate=-1": 1,
        "learning_rate=0.5": 0,
    }
    assert "expected float" in "".join(each.message for each in ended)
    assert {path.name for path in group.iterdir()} == {
        "learning_rate=0.1",
        "learning_rate=0.5",
        "study.json",
    }
    info = json.loads((group / "learning_rate=0.1/run.json").read_text())
    assert (info["tags"], info["name"]) == (["x"], "rates")
    alone = rlcli.train(
        "lake.yaml", set=["optimizer.learning_rate=0.1"], seeds=2, run="alone"
    )
    ours, theirs = (
        (run / "policy.pkl.lz4").read_bytes()
        for run in (alone, group / "learning_rate=0.1")
    )
    assert ours == theirs


@pytest.mark.slow
def test_a_signal_stops_all_runs_with_a_checkpoint_and_starts_no_other(
    start_process, folder
):
    command = [sys.executable, "-m", "rlcli", "train", "lake.yaml", "--name", "long"]
    command += ["--vary", "train.seed=1,2,3", "--jobs", "2"]
    command += ["--set", "train.steps=500_000_000", "--set", "train.evaluate=null"]
    process = start_process(command)
    runs = [folder / f"runs/lake/long/seed={seed}" for seed in (1, 2)]
    deadline = time.monotonic() + 120
    # Until then programs compile, and a signal may end them without a checkpoint.
    while not all(map(read_metrics, runs)):
        assert time.monotonic() < deadline
        assert process.poll() is None
        time.sleep(0.1)
    os.kill(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert out.splitlines() == [str(run.relative_to(folder)) for run in runs]
    for run in runs:
        assert json.loads((run / "run.json").read_text())["status"] == "interrupted"
        assert [*(run / "checkpoints").iterdir()]
    assert "rlcli resume runs/lake/long\n" in err
    assert not runs[0].with_name("seed=3").exists()
