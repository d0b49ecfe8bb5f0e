"""Targets of fuzzing: random cases by kind, each a function to call.

What a case does depends only on its random generator.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib
import random
import shutil
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import fuzz_inputs
import fuzz_parts
import fuzz_sweeps
import fuzz_values
import lz4.frame
from folders import checkpoint_bytes, write_run
from fuzz_folders import SECRET, Template, spoil_file

import rlcli
from rlcli import recipe, registry
from rlcli.assembly import build
from rlcli.recipe import documents
from rlcli.recipe.loading import check_document
from rlcli.runs import checkpoint, code, pickles, snapshots
from rlcli.runs.description import show_data
from rlcli.runs.listing import find_runs
from rlcli.runs.locate import locate_policy, locate_run
from rlcli.runs.metrics import Metrics, MetricsReader, read_metrics
from rlcli.runs.records import read_record
from rlcli.runs.run_folder import Run
from rlcli.runs.study_record import FILE_NAME, Cell, record_study
from rlcli.training import recovery

KEPT = Path(__file__).parents[1] / "runs" / "formats" / "0.1.0" / "lake"


class Target(NamedTuple):
    """A kind of cases."""

    share: int  # of all cases, in parts of 100
    make: Callable[[random.Random, Place], Callable[[], object]]
    is_data: bool = True  # whether nothing that it names may be imported


class Place:
    """The folder of the cases: a run to copy, and a file outside of it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.file = folder / "case.yaml"
        self.secret = folder / "outside" / "secret"
        self.secret.parent.mkdir()
        self.secret.write_bytes(SECRET)
        self.run = Template(_make_run(folder / "template"), folder / "run")
        # Libraries take seconds to import and write settings, which no case should do.
        importlib.import_module("matplotlib.figure")
        rlcli.report(self.run.copy(), output=folder / "report.html", episodes=0)

    @functools.cached_property
    def _sweeps(self) -> dict[str, Template]:
        (self.folder / "sweeps").mkdir()
        return fuzz_sweeps.make_sweeps(self.folder / "sweeps")

    def sweep(self, name: str) -> Template:
        """The folder of a sweep to copy, by its sampler; `bsuite` is that of bsuite."""
        return self._sweeps[name]

    @contextlib.contextmanager
    def unchanged_secret(self) -> Iterator[None]:
        """Checks that nothing outside of a folder has changed."""
        try:
            yield
        finally:
            others = [path for path in self.secret.parent.iterdir()]
            if self.secret.read_bytes() != SECRET or others != [self.secret]:
                shutil.rmtree(self.secret.parent)
                self.secret.parent.mkdir()
                self.secret.write_bytes(SECRET)
                raise AssertionError("a file outside of the folder has changed")


def _make_run(folder: Path) -> Path:
    """The folder of a run with a checkpoint and a policy, without any training."""
    saved = KEPT / "checkpoints" / "000000040.pkl.lz4"
    content = checkpoint.read(saved)
    write_run(folder, resolved=content["recipe"], step=1_000)
    (folder / "recipe.yaml").write_text(content["recipe"])
    (folder / "checkpoints").mkdir()
    shutil.copy(saved, folder / "checkpoints" / "000001000.pkl.lz4")
    shutil.copy(KEPT / "policy.pkl.lz4", folder / "policy.pkl.lz4")
    (folder / "log.txt").write_text("step 1,000\n")
    (folder / "trackers.json").write_text('{"id": "a", "steps": {"mlflow": 5}}')
    (folder / ".lock").write_text("1")
    return folder


@functools.cache
def _recipes() -> list[tuple[str, bytes]]:
    return [(n, p.read_bytes()) for n, p in sorted(recipe.shipped_recipes().items())]


@functools.cache
def _schema() -> dict[str, Any]:
    return rlcli.schema()


@functools.cache
def _resolved(name: str) -> dict[str, Any]:
    return recipe.resolve(recipe.load_recipe(name))


def recipe_data(draw: random.Random, place: Place) -> Callable[[], object]:
    """A recipe that the schema describes, or a built-in one with a part replaced."""
    del place
    if draw.random() < 0.5:
        data = fuzz_values.from_schema(draw, _schema())
    else:
        data = fuzz_values.change(draw, _resolved(draw.choice(_recipes())[0]))
    is_stored = draw.random() < 0.5
    if not isinstance(data, dict):
        return lambda: documents.load_document(str(data)[:10_000], source="case")
    return lambda: recipe.load_recipe(data, trusted=False, is_stored=is_stored)


def recipe_bytes(draw: random.Random, place: Place) -> Callable[[], object]:
    """A recipe file of which some bytes have changed."""
    _, data = draw.choice(_recipes())
    data = fuzz_values.mutate(draw, data, [draw.choice(_recipes())[1]])
    place.file.write_bytes(data)
    if draw.random() < 0.3:
        return lambda: check_document(place.file, [])
    return lambda: recipe.load_recipe(place.file, trusted=False)


def settings(draw: random.Random, place: Place) -> Callable[[], object]:
    """Options of `--set`."""
    del place
    name, _ = draw.choice(_recipes())
    sets = []
    for _ in range(draw.choice((1, 1, 2, 3))):
        section = draw.choice([*_resolved(name)])
        inner = _resolved(name)[section]
        option = draw.choice(
            [*inner, "name", "x"] if isinstance(inner, dict) else ["x"]
        )
        text = draw.choice((*fuzz_values.TEXTS, *fuzz_values.DOCUMENTS))
        if draw.random() < 0.5:
            text = fuzz_values.to_json(fuzz_values.value(draw)).decode()
        each = f"{section}.{option}={text}"
        if draw.random() < 0.3:
            each = fuzz_values.mutate(draw, each.encode("utf-8", "replace")).decode(
                "utf-8", "replace"
            )
        sets.append(each)
    return lambda: recipe.load_recipe(name, sets, trusted=False)


def checkpoints(draw: random.Random, place: Place) -> Callable[[], object]:
    """A checkpoint or policy with changed bytes, pickle, or content."""
    name = draw.choice(("checkpoints/000001000.pkl.lz4", "policy.pkl.lz4"))
    data, kind = place.run.content(Path(name)), draw.random()
    if kind < 0.4:
        data = fuzz_values.mutate(draw, data)
    elif kind < 0.6:
        content = b"".join(pickles.encode(checkpoint.from_bytes(data)))
        data = _with_header(fuzz_values.mutate(draw, content, [b"\x8c\x05posix\x93."]))
    else:
        content = fuzz_values.change(draw, checkpoint.from_bytes(data))
        with contextlib.suppress(TypeError, ValueError):  # what no file can contain
            data = checkpoint_bytes(content)
    path = place.folder / "case.pkl.lz4"
    path.write_bytes(data)
    if draw.random() < 0.05:
        return lambda: snapshots.load_snapshot(path)
    if draw.random() < 0.5:
        return lambda: snapshots.read_checkpoint(path)
    return lambda: snapshots.snapshot_recipe(path)


def _with_header(pickle: bytes) -> bytes:
    """A file with this pickle whose header and checksum are right."""
    frame = lz4.frame.compress(pickle)
    head = struct.pack(
        "<8sIQ", checkpoint.MAGIC, checkpoint.FORMAT_VERSION, len(pickle)
    )
    return head + hashlib.sha256(head + frame).digest() + frame


def run_files(draw: random.Random, place: Place) -> Callable[[], object]:
    """A run folder in which one or two files have changed."""
    folder = place.run.spoil(draw)
    return draw.choice(_READERS)(folder, draw)


def studies(draw: random.Random, place: Place) -> Callable[[], object]:
    """The folder of a study whose record has changed."""
    copy = place.run.copy()
    file = place.folder / FILE_NAME
    file.unlink(missing_ok=True)
    cells = [
        Cell(
            *(place.folder / name, place.folder, "dqn_cartpole", "", ("a.b=1",)),
            values={"recipe": name, "train.seed": "0"},
        )
        for name in (place.run.folder.name, copy.name, "missing")
    ]
    test = {"baseline": copy.name, "effect": 1.5, "max_seeds": 10}
    record_study(place.folder, cells, test={**test, "seeds": 2, "seed": 0})
    spoil_file(draw, file)
    read = draw.choice((locate_run, rlcli.show, show_data, rlcli.plot, rlcli.claim))

    def case() -> None:
        try:
            read(str(place.folder))
        finally:
            file.unlink(missing_ok=True)

    return case


def links(draw: random.Random, place: Place) -> Callable[[], object]:
    """A run folder in which something is a link, a pipe, a device or a folder."""
    folder = place.run.misplace(draw, place.secret, ("films", "code"))
    read = draw.choice(_WRITERS if draw.random() < 0.7 else _READERS)(folder, draw)

    def case() -> None:
        with place.unchanged_secret():
            read()

    return case


def _resume_reading(folder: Path, draw: random.Random) -> Callable[[], object]:
    """What `rlcli resume` reads before it builds anything."""
    del draw
    run = Run(folder)

    def read() -> None:
        saved, _ = recovery.newest_common([run])
        before, *_ = recovery.recorded_recipe(run, saved[0], [], False)
        recovery.recorded_seeds(run, saved[0], before)

    return read


_READERS: tuple[Callable[[Path, random.Random], Callable[[], object]], ...] = (
    _resume_reading,
    lambda folder, draw: lambda: rlcli.runs(folder.parent),
    lambda folder, draw: lambda: rlcli.show(str(folder)),
    lambda folder, draw: lambda: rlcli.diff(folder, folder.parent / "template"),
    lambda folder, draw: lambda: read_metrics(folder),
    lambda folder, draw: lambda: MetricsReader(folder).read(),
    lambda folder, draw: lambda: read_record(folder),
    lambda folder, draw: lambda: rlcli.plot(folder),
    lambda folder, draw: lambda: rlcli.compare([folder, folder.parent / "template"]),
    lambda folder, draw: lambda: locate_policy(folder),
    lambda folder, draw: lambda: [*find_runs(folder), locate_run(folder)],
    lambda folder, draw: lambda: code.use_code(Run(folder)),
)


def _hold_and_clean(folder: Path, draw: random.Random) -> Callable[[], object]:
    run, step = Run(folder), draw.choice((None, 0, 500, 1_000))

    def write() -> None:
        with run.lock():
            run.sign_lock()
            run.remove_temporaries()
            with Metrics(folder, step) as rows:
                rows.append([{"T": 1_000, "seed": 0}])

    return write


_WRITERS: tuple[Callable[[Path, random.Random], Callable[[], object]], ...] = (
    _hold_and_clean,
    lambda folder, draw: lambda: Run(folder).record_resume(step=5, inexact=""),
    lambda folder, draw: lambda: Run(folder).write_index(latest="000001000.pkl.lz4"),
    lambda folder, draw: lambda: Run(folder).prune_checkpoints(1, 1_000),
    lambda folder, draw: lambda: Run(folder).make_films_folder(),
    lambda folder, draw: lambda: Run(folder).make_checkpoints_folder(),
    lambda folder, draw: lambda: checkpoint.write(Run(folder).policy, {"a": 1}),
)


def plug_ins(draw: random.Random, place: Place) -> Callable[[], object]:
    """A part whose factory raises, or returns something else than its kind."""
    del place
    kind = draw.choice(
        ("updater", "tracer", "replay", "optimizer", "policy", "network")
    )
    options = {"x": fuzz_values.value(draw)} if draw.random() < 0.5 else {}
    return use_part(kind, f"fuzz_parts:{draw.choice(bad_parts())}", options)


def use_part(kind: str, name: str, options: dict[str, Any]) -> Callable[[], object]:
    """Builds a recipe with this part."""
    data = {
        "environment": "CartPole-v1",
        "network": {"name": "mlp", "layers": [4]},
        "updater": "q_learning",
        "replay": {"name": "uniform", "capacity": 100, "batch_size": 2},
        "train": {"steps": 100},
        kind: {"name": name, **options},
    }
    return lambda: build(recipe.load_recipe(data))


def bad_parts() -> list[str]:
    """The names of the parts in `fuzz_parts`."""
    return sorted(name for name in vars(fuzz_parts) if name.startswith("part_"))


def registered_names(draw: random.Random, place: Place) -> Callable[[], object]:
    """The lookup of a part, and of its options, by any name."""
    del place
    kind = draw.choice([*registry.KINDS, *fuzz_values.TEXTS[:12]])
    name = draw.choice(fuzz_values.TEXTS)
    return lambda: rlcli.show(kind, name)


TARGETS: dict[str, Target] = {
    "recipe data": Target(20, recipe_data),
    "recipe bytes": Target(16, recipe_bytes),
    "--set": Target(12, settings),
    "checkpoints": Target(16, checkpoints),
    "run files": Target(8, run_files),
    "studies": Target(1, studies),
    "groups": Target(1, fuzz_inputs.groups),
    "links": Target(8, links),
    "data sets": Target(8, fuzz_inputs.data_sets),
    "stored data sets": Target(1, fuzz_inputs.stored_data_sets),
    "tracker files": Target(2, fuzz_inputs.tracker_files),
    "policy names": Target(1, fuzz_inputs.policy_names),
    "reports": Target(1, fuzz_inputs.reports),
    "sweep files": Target(4, fuzz_sweeps.sweep_files),
    "sweep links": Target(3, fuzz_sweeps.sweep_links),
    "populations": Target(1, fuzz_sweeps.populations),
    "jobs": Target(1, fuzz_sweeps.jobs),
    "databases": Target(1, fuzz_sweeps.databases),
    "bsuite": Target(2, fuzz_sweeps.suites),
    "names": Target(2, registered_names),
    "commands": Target(2, fuzz_inputs.commands),
    "plug-ins": Target(1, plug_ins, is_data=False),
}


def cases(seed: int, count: int) -> Iterator[tuple[str, random.Random]]:
    """The kinds of so many cases, each with its own random generator."""
    names = [*TARGETS]
    shares = [target.share for target in TARGETS.values()]
    for index in range(seed, seed + count):
        draw = random.Random(index)
        yield draw.choices(names, shares)[0], draw
