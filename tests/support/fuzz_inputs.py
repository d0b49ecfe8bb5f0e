"""Inputs of fuzzing: what each command reads, and cases for data sets and commands.

`COMMAND_INPUTS` has a row for each command; its kinds are the rows of the threat model
in SECURITY.md, and each has targets in `fuzz_targets`.
"""

from __future__ import annotations

import contextlib
import functools
import io
import json
import os
import random
import re
import shutil
import warnings
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

import fuzz_values
import gymnasium
import numpy as np

import rlcli
from rlcli.cli import main
from rlcli.errors import RlcliError
from rlcli.replays.datasets.dataset_arrays import DatasetArrays
from rlcli.replays.datasets.dataset_files import dump_dataset, load_dataset
from rlcli.replays.datasets.recipe_dataset import Dataset
from rlcli.results.board.page_parts import PartMaker, Selection
from rlcli.results.board.run_index import RunIndex
from rlcli.runs.files import explain_file_errors, to_json
from rlcli.runs.locate import find_trained_together, locate_policy
from rlcli.runs.run_folder import Run
from rlcli.training.tracking.track_records import Marks
from rlcli.types import External

if TYPE_CHECKING:
    from fuzz_targets import Place

# The kinds of files and folders that come from elsewhere, and the targets of each.
KINDS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "recipe": ("recipe data", "recipe bytes", "--set", "names", "plug-ins"),
        "checkpoint": ("checkpoints",),
        "policy": ("checkpoints", "policy names"),
        "data set": ("data sets", "stored data sets"),
        "run folder": ("run files", "links", "reports", "commands"),
        "`trackers.json`": ("tracker files",),
        "folder of several runs": ("studies", "groups"),
        "folder of a sweep": ("sweep files", "sweep links", "populations", "jobs"),
        "of bsuite": ("bsuite",),
        "database of `--storage`": ("databases",),
    }
)
_POLICY = ("policy", "checkpoint", "run folder", "folder of several runs")
COMMAND_INPUTS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "train": ("recipe", "data set"),
        "resume": (
            *("run folder", "checkpoint", "data set", "`trackers.json`"),
            "folder of several runs",
        ),
        "eval": _POLICY,
        "render": ("recipe", *_POLICY),
        "export": _POLICY,
        "collect": _POLICY,
        "list": (),
        "show": ("recipe", *_POLICY),
        "check": ("recipe", "data set"),
        "runs": ("run folder", "folder of several runs"),
        "diff": ("recipe", "run folder"),
        "watch": ("run folder",),
        "inspect": ("run folder", "checkpoint", "data set"),
        "plot": ("run folder", "folder of several runs"),
        "compare": ("run folder", "folder of several runs"),
        "claim": ("folder of several runs",),
        "report": _POLICY,
        "board": ("run folder", "folder of several runs"),
        "trust": (),
        "study": ("recipe", "folder of several runs"),
        "sweep": ("recipe", "folder of a sweep", "database of `--storage`"),
        "bsuite": ("recipe", "of bsuite"),
        "new": ("recipe",),
        "schema": (),
        "doctor": (),
        "reproduce": ("run folder", "checkpoint", "data set"),
        "verify_resume": ("recipe", "data set"),
    }
)

_EXTERNAL = External(
    gymnasium.spaces.Box(-1.0, 1.0, (2,), np.float32), gymnasium.spaces.Discrete(3)
)
_STEPS = 6
_MEMBERS = (
    *("observations", "actions", "rewards", "terminations", "truncations"),
    *("final_observations", "metadata", "x", "observations/a", "../x", "a\nb", ""),
)
_DTYPES = (
    *("<f4", "<f8", "<f2", "<i8", "|u1", "|b1", "<c8", "|O", "<U9", "|S4", "<M8[s]"),
    *("V8", ">f4", "<i4", "|V0", "<U0", "not a dtype", "[('a', '<f4')]"),
)
_SHAPES = ((), (0,), (6,), (6, 2), (1, 2), (6, 0), (2**62,), (10**30,), (-1,))


@functools.cache
def _dataset() -> bytes:
    """A sound data set of six steps in two episodes."""
    ends = np.array([False, False, True, False, False, True])
    data = DatasetArrays(
        observations={"": np.zeros((_STEPS, 2), np.float32)},
        actions={"": np.arange(_STEPS) % 3},
        rewards=np.ones(_STEPS, np.float32),
        terminations=ends,
        truncations=np.zeros(_STEPS, bool),
        final_observations={"": np.zeros((2, 2), np.float32)},
    )
    return dump_dataset(data)


def data_sets(draw: random.Random, place: Place) -> Callable[[], object]:
    """A data set with changed bytes, members, headers or arrays."""
    path = place.folder / "case.npz"
    if draw.random() < 0.4:
        path.write_bytes(fuzz_values.mutate(draw, _dataset()))
    else:
        path.write_bytes(_changed_archive(draw))
    if draw.random() < 0.3:
        return lambda: load_dataset(path)
    name = f"{path}#sha256={'0' * 64}" if draw.random() < 0.1 else str(path)
    return lambda: Dataset.parse(name).read(_EXTERNAL, "environment `x`")


def _changed_archive(draw: random.Random) -> bytes:
    """The archive with one to three members changed, removed, repeated or added."""
    with zipfile.ZipFile(io.BytesIO(_dataset())) as archive:
        members = [(name, archive.read(name)) for name in archive.namelist()]
    for _ in range(draw.choice((1, 1, 2, 3))):
        action, index = draw.randrange(6), draw.randrange(len(members) or 1)
        if action == 0 and members:
            del members[index]
        elif action == 1:
            members.append((f"{draw.choice(_MEMBERS)}.npy", _array_bytes(draw)))
        elif action == 2 and members:
            members[index] = (members[index][0], _array_bytes(draw))
        elif action == 3 and members:
            members.append(members[index])
        elif members:
            name, data = members[index]
            members[index] = (name, fuzz_values.mutate(draw, data))
    out = io.BytesIO()
    method = draw.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2))
    with warnings.catch_warnings(), zipfile.ZipFile(out, "w", method) as archive:
        warnings.simplefilter("ignore")  # two members of one name
        for name, data in members:
            archive.writestr(name, data)
    return out.getvalue()


def _array_bytes(draw: random.Random) -> bytes:
    """A `.npy` file: a sound one, or a header that claims anything."""
    if draw.random() < 0.5:
        shape = draw.choice(((), (6,), (6, 2), (2, 2), (5,), (0,)))
        values = draw.choice((0.0, 1.0, np.nan, np.inf, 1e300, -1.0, 7.0))
        dtype = draw.choice(("f4", "f8", "i8", "u1", "?", "f2", "c8", "U9", "S4"))
        buffer = io.BytesIO()
        with np.errstate(all="ignore"):
            array = np.full(shape, values).astype(dtype)
        np.save(buffer, array, allow_pickle=False)
        return buffer.getvalue()
    header = {
        "descr": draw.choice(_DTYPES),
        "fortran_order": draw.choice((True, False, 1, "x")),
        "shape": draw.choice((*_SHAPES, "x", (1.5,))),
    }
    text = draw.choice((repr(header), repr(header), "{", "__import__('os')", "(" * 200))
    line = text.encode() + b"\n"
    size = draw.choice((len(line), len(line), 65_535, 0))
    version = draw.choice(((1, 0), (2, 0), (3, 0), (9, 9)))
    length = size.to_bytes(2 if version == (1, 0) else 4, "little")
    return b"\x93NUMPY" + bytes(version) + length + line + draw.randbytes(96)


def stored_data_sets(draw: random.Random, place: Place) -> Callable[[], object]:
    """The option of a stored recipe that names a data set: any path, link or pipe."""
    path = place.folder / "case.npz"
    path.unlink(missing_ok=True)
    kind = draw.randrange(6)
    if kind == 0:
        os.mkfifo(path)
    elif kind == 1:
        path.symlink_to("/dev/zero")
    elif kind == 2:
        path.symlink_to(path)
    name = draw.choice((str(path), str(path), *fuzz_values.TEXTS))
    if draw.random() < 0.3:
        name += f"#sha256={draw.choice(fuzz_values.TEXTS)}"
    dataset = Dataset.parse(name)

    def case() -> None:
        try:
            dataset.read(_EXTERNAL, "environment `x`")
        finally:
            path.unlink(missing_ok=True)

    return case


def tracker_files(draw: random.Random, place: Place) -> Callable[[], object]:
    """The file of what trackers have, with any content."""
    file = place.run.copy() / "trackers.json"
    data = json.loads(file.read_bytes())
    if draw.random() < 0.5:
        file.write_bytes(fuzz_values.to_json(fuzz_values.change(draw, data)))
    else:
        file.write_bytes(fuzz_values.mutate(draw, file.read_bytes()))

    def case() -> None:
        marks = Marks(file)
        if not re.fullmatch(r"[\w-]{1,64}", marks.id):
            raise AssertionError(f"a server would get the id {marks.id!r}")
        marks.set_step("mlflow", marks.step("mlflow") + 1)

    return case


def reports(draw: random.Random, place: Place) -> Callable[[], object]:
    """The page of a run with changed files, without episodes, and that of a board."""
    folder = place.run.spoil(draw)
    page = place.folder / "report.html"
    query = {"x": draw.choice(("steps", "seconds", "updates")), "filter": ""}

    def case() -> None:
        maker = PartMaker(RunIndex([folder.parent]))
        rows = maker.list_runs("", 0, 0)["rows"]
        for part in ("learning", "diagnostics", "recipes", "provenance", "films"):
            with contextlib.suppress(RlcliError):  # the page shows it in its section
                to_json(maker.make(part, Selection.parse(query)))
        if "\n" in "".join(row["reason"] for row in rows):
            raise AssertionError("a reason has several lines")
        rlcli.report(folder, output=page, episodes=0)
        # Without its own scripts: nothing of the run is a tag.
        text = re.sub(r"<script\b.*?</script>", "", page.read_text(), flags=re.DOTALL)
        own = '<link rel="icon" href="data:,">'
        text = text.replace(own, "")
        if found := re.search(r"<(?:script|iframe|object|embed|link)\b", text):
            raise AssertionError(f"the page contains {found[0]}")

    return case


def groups(draw: random.Random, place: Place) -> Callable[[], object]:
    """Runs that name each other as trained together, with changed names."""
    folder = place.run.copy()
    info = json.loads((folder / "run.json").read_bytes())
    members = [folder.name, place.run.folder.name]
    info["members"] = draw.choice(
        (members, fuzz_values.change(draw, members), fuzz_values.value(draw))
    )
    info["population"] = draw.choice((True, False, None, 1))
    (folder / "run.json").write_bytes(fuzz_values.to_json(info))

    def case() -> None:
        with explain_file_errors():  # as `rlcli resume`: a name may be too long
            for run in find_trained_together(Run(folder)):
                run.read_info()

    return case


def policy_names(draw: random.Random, place: Place) -> Callable[[], object]:
    """The name of a policy: of the zoo, of a file or of anything else."""
    del place
    name = draw.choice(fuzz_values.TEXTS)
    if draw.random() < 0.5:
        name = f"zoo/{name}"
    if draw.random() < 0.5:
        data = fuzz_values.mutate(draw, name.encode("utf-8", "replace"))
        name = data.decode("utf-8", "replace")
    best = draw.random() < 0.2
    return lambda: locate_policy(name, best=best)


# Commands of a folder of a run, which the case changes: words and weight. Others start
# processes, or are as these; their inputs have targets of their own.
_LINES: tuple[tuple[int, str], ...] = (
    *((12, "show RUN"), (12, "runs RUN"), (10, "diff RUN TEMPLATE"), (8, "plot RUN")),
    *((8, "compare RUN TEMPLATE"), (6, "watch RUN"), (4, "show RUN --json")),
    *((4, "plot RUN --json"), (4, "compare RUN --output OUT/a.md"), (2, "resume RUN")),
    *((2, "reproduce RUN --to OUT/again --max-time 1ms"), (1, "eval RUN --episodes 1")),
    *((1, "collect RUN --steps 3 --output OUT/a.npz"), (3, "check RUN/recipe.yaml")),
    *(
        (2, "export RUN --format numpy --output OUT/a.py"),
        (3, "diff RUN ppo_cartpole"),
    ),
    *((1, "render RUN --episodes 1 --output OUT/a.gif"), (4, "sweep show RUN")),
    *((4, "bsuite RUN --resume"), (2, "report RUN --episodes 0 --output OUT/a.html")),
    *((2, "sweep export RUN OUT/a.yaml"), (2, "sweep RUN --resume"), (2, "claim RUN")),
)


def commands(draw: random.Random, place: Place) -> Callable[[], object]:
    """The command line, with a run folder or a recipe that has changed."""
    folder = place.run.spoil(draw)
    out = place.folder / "out"
    shutil.rmtree(out, ignore_errors=True)
    line = draw.choices([text for _, text in _LINES], [share for share, _ in _LINES])[0]
    words = line.split()
    names = {"RUN": str(folder), "TEMPLATE": str(place.run.folder), "OUT": str(out)}
    words = [re.sub(r"RUN|TEMPLATE|OUT", lambda m: names[m[0]], word) for word in words]
    text = draw.choice(fuzz_values.TEXTS)
    # These search folders, and the root of the machine takes a while.
    searches = words[0] in ("runs", "plot", "compare", "report")
    if draw.random() < 0.2 and not (searches and text in ("/", "..", "~")):
        words[1] = text
    out.mkdir()
    return functools.partial(_run_command, words, out)


def _run_command(words: list[str], folder: Path) -> None:
    out, err = io.StringIO(), io.StringIO()
    with (
        contextlib.chdir(folder),  # where commands write by default
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        exit_code = main(words)
    lines = err.getvalue()
    if exit_code and "error: " not in lines:
        raise AssertionError(f"exit code {exit_code} of {words[0]}: {lines[:300]}")
    if "Traceback" in lines or "\x1b" in lines + out.getvalue():
        raise AssertionError(f"{words[0]}: {lines[-300:]!r}")
