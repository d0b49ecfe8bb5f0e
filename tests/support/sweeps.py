"""Sweeps without training: an engine whose runs are written by hand."""

import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from folders import evaluation, metric_rows

from rlcli.errors import RlcliError
from rlcli.recipe import documents
from rlcli.runs.run_folder import is_run
from rlcli.runs.study_record import Cell
from rlcli.studies.engines import engine_options
from rlcli.studies.engines.engine_options import EngineOptions
from rlcli.studies.engines.jobs import Job, ProcessEnd
from rlcli.studies.search.layout import Settings, Sweep, create_sweep, open_sweep
from rlcli.studies.search.space import load_space
from rlcli.studies.search.sweep import train_trials
from rlcli.studies.search.trial_source import SweepProgress
from rlcli.studies.search.trials import Trials, fixed_values

RUNGS = (100, 200, 300)  # steps of the evaluations of a run
Options = Mapping[str, Any]


def learning_curve(options: Options, seed: int, step: int) -> float | None:
    """A return that grows with training, and is largest for x = 3."""
    return step / 100 * (10 - abs(options["x"] - 3)) + seed / 1000


class FakeEngine:
    """Writes the next evaluation of each run whenever it is asked for ends.

    `codes` are the exit codes of the processes of a job, one after the other; without
    one a process trains to the end, with the status `end`. `kill_after`: raises
    `KeyboardInterrupt` at this call, as if the driver were killed.
    """

    def __init__(
        self,
        room: int = 2,
        *,
        curve: Callable[[Options, int, int], float | None] = learning_curve,
        codes: Mapping[str, list[int]] = {},
        kill_after: int = 10**9,
        end: str = "finished",
        frozen: Mapping[str, str] = {},
    ) -> None:
        self.period = 0.0
        self.end = end
        self.frozen = frozen  # reasons by seed, in `run.json`
        self.room = room
        self.curve = curve
        self.codes = {key: [*values] for key, values in codes.items()}
        self.kill_after = kill_after
        self.calls = 0
        self.started: list[tuple[str, str]] = []  # keys, and `train` or `resume`
        self.signals: list[tuple[int, str | None]] = []
        self.running: dict[str, Job] = {}

    @property
    def jobs(self) -> int:
        return self.room

    def close(self) -> None:
        assert not self.running

    @property
    def has_room(self) -> bool:
        return len(self.running) < self.room

    def start(self, job: Job) -> None:
        self.started.append((job.key, find_verb(job)))
        self.running[job.key] = job
        names = [folder.name for folder in job.folders]
        fields = {"members": names} if len(names) > 1 else {}
        for folder in job.folders:
            folder.mkdir(parents=True, exist_ok=True)
            write_info(folder, status="running", total_steps=RUNGS[-1], **fields)
            (folder / "metrics.jsonl").touch()

    def collect(self) -> list[ProcessEnd]:
        self.calls += 1
        if self.calls > self.kill_after:
            raise KeyboardInterrupt
        ends = []
        for key, job in [*self.running.items()]:
            if self.codes.get(key):
                code = self.codes[key].pop(0)
                ends.append(ProcessEnd(key, code, "error: it does not work"))
                del self.running[key]
            elif all([self._evaluate(job, folder) for folder in job.folders]):
                for folder in job.folders:
                    write_info(folder, status=self.end, frozen=self.frozen)
                ends.append(ProcessEnd(key, 0, ""))
                del self.running[key]
        return ends

    def send_signal(self, number: int, key: str | None = None) -> None:
        self.signals.append((number, key))
        for each in [key] if key is not None else [*self.running]:
            for folder in self.running[each].folders:
                write_info(folder, status="terminated")
            self.codes.setdefault(each, []).insert(0, 143)

    def _evaluate(self, job: Job, folder: Path) -> bool:
        """Writes the next evaluation of a run; whether it was the last."""
        path = folder / "metrics.jsonl"
        done = {json.loads(line)["T"] for line in path.read_text().splitlines()}
        step = next(step for step in RUNGS if step not in done)
        options = read_settings(job, folder)
        first, count = (options[f"train.{name}"] for name in ("seed", "seeds"))
        with path.open("a") as file:
            for seed in range(first, first + count):
                row = {"T": step, "seed": seed}
                row["evaluation"] = evaluation(self.curve(options, seed, step))
                file.write(json.dumps(row) + "\n")
        return step == RUNGS[-1]


def skip_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets files reach no disk."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


def find_verb(job: Job) -> str:
    """What the process of a job does with its runs."""
    return "resume" if any(map(is_run, job.folders)) else "train"


def group_by_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trials with the same `kind` have the same structure."""

    def group(
        cells: Sequence[Cell], *, trust: bool
    ) -> tuple[list[list[Cell]], dict[str, RlcliError]]:
        del trust
        kinds = [cell.values.get("kind") for cell in cells]
        groups = [
            [cell for cell, kind in zip(cells, kinds, strict=True) if kind == wanted]
            for wanted in dict.fromkeys(kinds)
        ]
        return groups, {}

    monkeypatch.setattr("rlcli.studies.study_loop.group_cells", group)


def use_fake_engines(
    monkeypatch: pytest.MonkeyPatch, curve: Callable[[Options, int, int], float]
) -> list[FakeEngine]:
    """Gives `rlcli.sweep` engines that train nothing; returns those that it makes."""
    engines: list[FakeEngine] = []

    def make_engine(jobs: int, environment: Mapping[str, str]) -> FakeEngine:
        del environment
        engines.append(FakeEngine(jobs, curve=curve))
        return engines[-1]

    monkeypatch.setattr(engine_options, "LocalEngine", make_engine)
    skip_disk(monkeypatch)
    return engines


def read_settings(job: Job, folder: Path) -> dict[str, Any]:
    """The options with which a run of a job was begun."""
    record = json.loads(job.record or (job.study / "study.json").read_bytes())
    fields = record["cells"][folder.relative_to(job.study).as_posix()]
    texts = [text.partition("=") for text in fields["set"]]
    return {key: documents.parse(value, "").data for key, _, value in texts}


def write_info(folder: Path, **fields: Any) -> None:
    """Sets fields of `run.json`."""
    path = folder / "run.json"
    before = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps(before | fields))


def write_trial(folder: Path, curves: Mapping[int, list[tuple[int, float]]]) -> None:
    """The evaluations of a run by seed."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = metric_rows(curves, "evaluation.mean")
    lines = sorted(rows, key=lambda row: row["T"])
    (folder / "metrics.jsonl").write_text(
        "".join(json.dumps(row) + "\n" for row in lines)
    )


SPACE = {"x": {"int": [0, 9]}, "kind": {"choice": ["a", "b"]}}


def settings(**changes: Any) -> Settings:
    """The settings of a small sweep."""
    fields = {
        **{"recipe": "a.yaml", "digest": "", "set": ()},
        **{"trials": 6, "seed": 0, "seeds": 2},
        **{"sampler": "random", "pruner": "none", "objective": "return"},
        **{"confirm": 2, "confirm_seeds": 3, "storage": None, "study": "a"},
        **{"together": 1, "ready": None},
    }
    return Settings(**fields | changes)


def make_sweep(folder: Path, space: Mapping[str, Any] = SPACE, **changes: Any) -> Sweep:
    """A sweep that has not begun."""
    sweep = Sweep(folder, settings=settings(**changes), space=load_space(space))
    create_sweep(sweep)
    return sweep


def drive(
    sweep: Sweep,
    engine: FakeEngine,
    report: Callable[[SweepProgress], None] = lambda progress: None,
    **keywords: Any,
) -> str:
    """Runs a sweep to its end, or until a signal, and returns its status."""

    class GivenEngine(EngineOptions):
        def open(self, *_: Any, **__: Any) -> Any:
            engine.close = lambda: None  # processes of a killed driver may still run
            return engine

    try:
        opened = open_sweep(sweep.folder)
        train_trials(opened, RUNGS[0], GivenEngine(), report=report, **keywords)
    except (KeyboardInterrupt, SystemExit) as stop:
        if not hasattr(stop, "run"):  # the engine was killed
            raise
    return sweep.read_result()["status"]


def train_cell(sweep: Sweep, number: int) -> None:
    """Trains a trial without the driver, as a task of a job array."""
    opened = open_sweep(sweep.folder)
    values = fixed_values(opened, number)
    assert values is not None
    cell = opened.make_cell(sweep.trial(number), opened.space.settings(values))
    opened.write_settings([cell])
    engine = FakeEngine(1)
    engine.start(Job(sweep.folder, (cell.label,)))
    while not engine.collect():
        pass


def read_study(sweep: Sweep) -> Trials:
    """The study of a sweep, only to be read."""
    return Trials(open_sweep(sweep.folder), is_reader=True)


def list_trials(sweep: Sweep) -> list[tuple[int, str, Mapping[str, Any], Any]]:
    """Number, state, options and objective of all trials."""
    return [
        (each.number, each.state, each.values, each.value)
        for each in read_study(sweep).trials()
    ]


def read_winner(sweep: Sweep) -> dict[str, Any]:
    """The winner and the confirmed trials, without the status of the sweep."""
    result = sweep.read_result()
    return {key: value for key, value in result.items() if key != "status"}
