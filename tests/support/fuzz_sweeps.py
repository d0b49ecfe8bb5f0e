"""Sweeps of fuzzing: folders of sweeps, populations and bsuite, from elsewhere.

No process is started: engines write what training would.
"""

from __future__ import annotations

import contextlib
import json
import random
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import fuzz_values
import pytest
from fuzz_folders import Template, spoil_file
from suites import write_suite
from sweeps import FakeEngine, skip_disk, use_fake_engines

import rlcli
from rlcli.errors import RlcliError
from rlcli.runs import population_rounds
from rlcli.studies import shared_programs
from rlcli.studies.bsuite import results
from rlcli.studies.engines import engine_options
from rlcli.studies.engines.jobs import Job, ProcessEnd
from rlcli.studies.search.layout import open_sweep
from rlcli.studies.search.pbt import read_lineages

if TYPE_CHECKING:
    from fuzz_targets import Place

RECIPE = """\
environment: FrozenLakeNonSlippery-v0
network: table
updater: {name: q_learning, loss: mse}
optimizer: {name: sgd, learning_rate: 0.5}
train: {steps: 2_000, evaluate: {every: 500, episodes: 2}}
"""
KEY = "optimizer.learning_rate"
SPACE = {
    KEY: {"log_uniform": [0.01, 1.0]},
    "updater.loss": {"choice": ["mse", "huber"]},
}
DATABASE = "trials.db"
SAMPLERS = ("random", "cmaes", "tpe")


def make_sweeps(folder: Path) -> dict[str, Template]:
    """Folders of sweeps that have ended, by sampler, of a population and of bsuite."""
    recipe = folder / "lake.yaml"
    recipe.write_text(RECIPE)
    templates = {}
    with pytest.MonkeyPatch.context() as patch:
        use_fake_engines(patch, _curve)
        for sampler in SAMPLERS:
            name = f"sweep-{sampler}"
            rlcli.sweep(
                str(recipe),
                space=SPACE,
                trials=3,
                seeds=2,
                jobs=1,
                confirm=1,
                together=1,
                run=folder / name,
                sampler=sampler,
                pruner="none",
            )
            templates[sampler] = Template(folder / name, folder / "sweep")
        templates["database"] = _make_database(recipe, folder)
    suite = write_suite(folder / "suite-template")
    templates["population"] = _make_population(templates["random"], folder)
    templates["bsuite"] = Template(suite, folder / "suite")
    return templates


def _make_database(recipe: Path, folder: Path) -> Template:
    """A sweep whose trials are in a database, which is in the folder as well."""
    made, copy = folder / "database-template", folder / "database"
    rlcli.sweep(
        str(recipe),
        space=SPACE,
        trials=2,
        seeds=1,
        jobs=1,
        confirm=0,
        together=1,
        run=copy,
        storage=_url(folder),
        sampler="random",
        pruner="none",
    )
    shutil.copytree(copy, made)
    shutil.move(folder / DATABASE, made / DATABASE)
    return Template(made, copy)


def _url(folder: Path) -> str:
    return f"sqlite:///{folder / DATABASE}"


def databases(draw: random.Random, place: Place) -> Callable[[], object]:
    """The database of `--storage` with changed bytes, values or columns."""
    copy = place.sweep("database").copy()
    file = copy.parent / DATABASE
    file.unlink(missing_ok=True)
    if draw.random() < 0.4:
        file.write_bytes(fuzz_values.mutate(draw, (copy / DATABASE).read_bytes()))
    else:
        shutil.copy(copy / DATABASE, file)
        _change_database(draw, file)

    def case() -> None:
        before = file.read_bytes()
        rlcli.show_sweep(copy, storage=_url(copy.parent))
        if file.read_bytes() != before:
            raise AssertionError("a reader has changed the database")

    return case


def _change_database(draw: random.Random, file: Path) -> None:
    """Sets a column of a table, in one row or in all, to any value, or drops it."""
    with contextlib.closing(sqlite3.connect(file)) as database, database:
        query = "SELECT name FROM sqlite_master WHERE type = 'table'"
        table = draw.choice(sorted(name for (name,) in database.execute(query)))
        columns = [row[1] for row in database.execute(f"PRAGMA table_info({table})")]
        value = draw.choice((*fuzz_values.NUMBERS, *fuzz_values.TEXTS, None, b"\xff"))
        if isinstance(value, str):
            value = value.encode("utf-8", "replace").decode()
        if isinstance(value, int) and abs(value) >= 2**63:
            value = str(value)
        where = draw.choice(("", " WHERE rowid = 1"))
        with contextlib.suppress(sqlite3.Error):  # a constraint
            if draw.random() < 0.1:
                database.execute(f"DROP TABLE {table}")
            else:
                column = draw.choice(columns)
                database.execute(f"UPDATE {table} SET {column} = ?{where}", (value,))


def _make_population(sweep: Template, folder: Path) -> Template:
    """The same trials as the members of a population, after one round."""
    made = shutil.copytree(sweep.folder, folder / "population-template")
    record = json.loads((made / "study.json").read_text())
    record["search"] |= {"sampler": "pbt", "ready": 1}
    record["search"] |= {"space": f"{KEY}: {{log_uniform: [0.01, 1.0]}}\n"}
    (made / "study.json").write_text(json.dumps(record))
    names = [f"{number:04d}" for number in range(3)]
    option = population_rounds.SearchedOption(KEY, (KEY,), 0.01, 1.0, True)
    settings = population_rounds.PopulationSettings(
        seed=0, ready=1, members=tuple(names), options=(option,)
    )
    population_rounds.write_settings(made / "trials", settings)
    entries = {
        name: population_rounds.RoundEntry(1.0, None if index else names[1], {KEY: 0.1})
        for index, name in enumerate(names)
    }
    population_rounds.write_rounds(
        made / "trials", [population_rounds.Round(1, 500, entries)]
    )
    return Template(made, folder / "sweep")


def _curve(options: object, seed: int, step: int) -> float:
    del options
    return step + seed / 7


class _Engine(FakeEngine):
    """Writes nothing: the process of each job ends at once, with an error."""

    def start(self, job: Job) -> None:
        self.running[job.key] = job

    def collect(self) -> list[ProcessEnd]:
        ends = [ProcessEnd(key, 1, "error: it does not work") for key in self.running]
        self.running.clear()
        return ends

    def close(self) -> None:
        self.running.clear()


def sweep_files(draw: random.Random, place: Place) -> Callable[[], object]:
    """The folder of a sweep in which one or two files have changed."""
    folder = place.sweep(draw.choice(SAMPLERS)).spoil(draw)
    return _read_sweep(draw, place, folder)


def sweep_links(draw: random.Random, place: Place) -> Callable[[], object]:
    """The folder of a sweep in which something is a link, a pipe or a folder."""
    template = place.sweep(draw.choice(SAMPLERS))
    more = ("confirm", "slurm", ".lock", "journal.log.lock", "trials/0003")
    read = _read_sweep(draw, place, template.misplace(draw, place.secret, more))

    def case() -> None:
        with place.unchanged_secret():
            read()

    return case


def _read_sweep(
    draw: random.Random, place: Place, folder: Path, *, resumes: bool = True
) -> Callable[[], object]:
    """What a command does with the folder; `--resume` with an engine of tests."""
    output, action = place.folder / "best.yaml", draw.randrange(6 if resumes else 3)
    if action == 0:
        return lambda: rlcli.export_sweep(folder, output)
    if action == 1:
        return lambda: rlcli.export_sweep(folder, output, trial=draw.randrange(4))
    if action == 2:
        return lambda: rlcli.show_sweep(folder)

    def resume() -> None:
        with pytest.MonkeyPatch.context() as patch:
            skip_disk(patch)
            patch.setattr(engine_options, "LocalEngine", lambda jobs, _: _Engine(jobs))
            trials = draw.choice((None, 4))
            rlcli.sweep(str(folder), resume=True, trials=trials, jobs=1)

    return resume


def populations(draw: random.Random, place: Place) -> Callable[[], object]:
    """A sweep whose trials are a population, with a changed record of its rounds."""
    template = place.sweep("population")
    folder = template.copy()
    names = draw.choice(
        (
            [f"trials/{population_rounds.FILE_NAME}"],
            [f"trials/{population_rounds.ROUNDS}"],
            [f"trials/{population_rounds.FILE_NAME}", "study.json"],
            [f"trials/{population_rounds.ROUNDS}", "study.json"],
        )
    )
    for name in names:
        spoil_file(draw, folder / name)
    action = draw.randrange(3)
    if action == 0:
        return lambda: population_rounds.read_settings(folder / "trials")
    if action == 1:
        return lambda: read_lineages(open_sweep(folder))
    return _read_sweep(draw, place, folder, resumes=False)


def jobs(draw: random.Random, place: Place) -> Callable[[], object]:
    """The record of cells, of which a task trains one."""
    folder = place.sweep("random").copy()
    shutil.rmtree(folder / "trials" / "0001")
    file = folder / "study.json"
    record = fuzz_values.change(draw, json.loads(file.read_text()))
    data = fuzz_values.to_json(record)
    file.write_bytes(data if draw.random() < 0.7 else fuzz_values.mutate(draw, data))

    def case() -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(shared_programs, "train_together", _stop)
            patch.setattr(shared_programs, "resume", _stop)
            ended = rlcli.study(folder, cell=["trials/0001"], trust=False, quiet=True)
            raise RlcliError(ended[0].message or "nothing to train")

    return case


def _stop(*_: object, **__: object) -> NoReturn:
    raise RlcliError("here the training would begin")


def suites(draw: random.Random, place: Place) -> Callable[[], object]:
    """The folder of a sweep of bsuite with changed files, or links; scored again."""
    template = place.sweep("bsuite")
    more = ("results", "scores.json", "scores.md", "results.png", "results/catch.csv")
    if draw.random() < 0.6:
        folder = template.spoil(draw)
    else:
        folder = template.misplace(draw, place.secret, more)
    draws = draw.random() < 0.05

    def case() -> None:
        with place.unchanged_secret(), pytest.MonkeyPatch.context() as patch:
            if not draws:  # takes most of a second
                patch.setattr(results, "draw_radar", lambda *_: None)
            rlcli.bsuite(folder)

    return case
