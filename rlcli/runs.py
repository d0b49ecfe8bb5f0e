"""Runs: the folder that a run leaves, `runs/<recipe>/<time>[-n]/`, and finding it."""

from __future__ import annotations

import contextlib
import difflib
import fcntl
import os
import re
import shlex
import shutil
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rlcli.errors import RlcliError
from rlcli.files import merge_json, read_json, to_json
from rlcli.provenance import command

SUFFIX = ".pkl.lz4"
_TIME = re.compile(r"(\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d)(?:-(\d+))?")


@dataclass(frozen=True)
class Run:
    """The folder of a run, and the names of what lies in it."""

    folder: Path
    made: bool = field(default=False, compare=False)  # by us, just now: ours to remove

    @property
    def recipe(self) -> Path:
        """The recipe as the user wrote it."""
        return self.folder / "recipe.yaml"

    @property
    def resolved(self) -> Path:
        """The recipe with every default filled in."""
        return self.folder / "resolved.yaml"

    @property
    def info(self) -> Path:
        """Versions, hardware, command, seeds, status, every resume: `run.json`."""
        return self.folder / "run.json"

    @property
    def metrics(self) -> Path:
        """One row per seed and log point."""
        return self.folder / "metrics.jsonl"

    @property
    def log(self) -> Path:
        """The plain lines of the monitor."""
        return self.folder / "log.txt"

    @property
    def checkpoints(self) -> Path:
        """The folder of everything, for resume."""
        return self.folder / "checkpoints"

    @property
    def policy(self) -> Path:
        """What acting needs, as it was last."""
        return self.folder / f"policy{SUFFIX}"

    @property
    def best(self) -> Path:
        """What acting needs, as it was when each seed evaluated best."""
        return self.folder / f"best{SUFFIX}"

    @property
    def index(self) -> Path:
        """The names of the latest checkpoint and of the best steps."""
        return self.folder / "checkpoints.json"

    def checkpoint(self, step: int) -> Path:
        """The checkpoint of a step: `checkpoints/000050000.pkl.lz4`."""
        return self.checkpoints / f"{step:09d}{SUFFIX}"

    def latest(self) -> Path | None:
        """The checkpoint from which the run goes on; None before the first one."""
        named = self.checkpoints / str(self.read_index().get("latest"))
        if named.is_file():
            return named
        return max(self._kept(), key=_step, default=None)

    def prune(self, keep: int) -> None:
        """Removes all checkpoints but the newest `keep`, and what a killed one left."""
        if keep < 1:
            raise ValueError(f"expected to keep at least 1 checkpoint, got {keep}")
        for path in sorted(self._kept(), key=_step)[:-keep]:
            path.unlink()
        for path in self.checkpoints.glob(".*"):
            path.unlink(missing_ok=True)

    def read_info(self) -> dict[str, Any]:
        """All that `run.json` says."""
        return read_json(self.info)

    def write_info(self, **fields: Any) -> None:
        """Sets these fields of `run.json`, and leaves the others as they are."""
        merge_json(self.info, fields)

    def note_resume(self, **fields: Any) -> None:
        """Adds to the list of resumes: when, by which command, and `fields`."""
        resume = {"time": now(), "command": command(), **fields}
        self.write_info(resumes=[*self.read_info().get("resumes", []), resume])

    def read_index(self) -> dict[str, Any]:
        """`{"latest": file name, "best": {seed: {"step", "return"}}}`; {} before it.

        Seeds are strings, as JSON has it.
        """
        return read_json(self.index)

    def write_index(self, **fields: Any) -> None:
        """Sets these fields of `checkpoints.json`."""
        merge_json(self.index, fields)

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Keeps other processes from training into this folder.

        The operating system lets go of it when the process ends, however it ends.
        """
        with (self.folder / ".lock").open("a+", encoding="ascii") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                file.seek(0)
                raise RlcliError(
                    f"process {file.read().strip() or '?'} trains into `{self.folder}`",
                    "wait for its end, or train into a folder of its own",
                ) from None
            except OSError:
                # Some network file systems know no locks: then there is none to hold.
                pass
            file.truncate(0)
            file.write(str(os.getpid()))
            file.flush()
            yield

    def discard(self) -> None:
        """Removes the folder of a run that never got going, and nothing of the user's.

        A folder that was there before (`--run`) stays, without what `create` put in it.
        """
        if any(self._kept()):
            raise ValueError(f"expected no checkpoint in {self.folder}")
        if self.made:
            shutil.rmtree(self.folder)
            if _TIME.fullmatch(self.folder.name):
                with contextlib.suppress(OSError):  # not empty: runs of the recipe
                    self.folder.parent.rmdir()
            return
        for path in (self.recipe, self.resolved, self.info, self.folder / ".lock"):
            path.unlink(missing_ok=True)

    def _kept(self) -> list[Path]:
        return list(self.checkpoints.glob(f"[0-9]*{SUFFIX}"))


def create(
    recipe: str, *, runs: str | Path = "runs", run: str | Path | None = None
) -> Run:
    """Makes the folder of a new run: `<runs>/<recipe>/<UTC time>[-n]`, or `run` itself.

    Two processes never get the same one. Called once the recipe is known to be sound:
    a refused recipe leaves no folder.
    """
    if recipe in ("", ".", "..") or Path(recipe).name != recipe:
        raise ValueError(f"expected the name of a recipe, no path, got {recipe!r}")
    fields = {"recipe": recipe, "status": "created", "created": now()}
    try:
        if run is not None:
            return _claimed(Path(run), fields)
        parent = Path(runs) / recipe
        parent.mkdir(parents=True, exist_ok=True)
        return _numbered(parent, fields)
    except OSError as error:
        raise RlcliError(
            f"`{error.filename}` cannot be made: {error.strerror}",
            "`--runs` or `--run` names another place",
        ) from error


def _numbered(parent: Path, fields: Mapping[str, Any]) -> Run:
    name = time.strftime("%Y-%m-%dT%H-%M-%S", time.gmtime())
    n = 1
    while True:
        folder = parent / (name if n == 1 else f"{name}-{n}")
        try:
            os.mkdir(folder)  # fails where it exists: whoever makes it owns it
        except FileExistsError:
            n += 1
            continue
        run = Run(folder, made=True)
        run.write_info(**fields)
        return run


def _claimed(folder: Path, fields: Mapping[str, Any]) -> Run:
    folder.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.mkdir(folder)
        run = Run(folder, made=True)
    except FileExistsError:
        if not folder.is_dir():
            raise
        run = Run(folder)
    try:
        # "x" fails where it exists, so that of two claims only one succeeds.
        with run.info.open("x", encoding="utf-8") as file:
            file.write(to_json(fields, indent=2) + "\n")
    except FileExistsError:
        raise RlcliError(
            f"`{folder}` holds a run already",
            f"`rlcli resume {shlex.quote(str(folder))}` goes on with it",
        ) from None
    return run


def locate(path: str | Path, *, best: bool = False) -> tuple[Run | None, Path]:
    """The run and the policy file that a user means, for eval and render.

    `path` is a run's folder, the folder of a recipe's runs (the newest is meant), or a
    policy or checkpoint file anywhere, which may belong to no run. A run is meant by
    its `policy.pkl.lz4`, or by `best.pkl.lz4` if `best`.
    """
    path = Path(path)
    if path.is_file():
        run = _owner(path)
        if best and (run is None or path != run.best):
            raise RlcliError(
                f"`--best` chooses from a run, and `{path}` is one file",
                "name the folder of the run, or leave out `--best`",
            )
        return run, path
    run = locate_run(path)
    if best:
        return run, _best(run)
    policy = run.policy if run.policy.is_file() else run.latest()
    if policy is None:
        raise RlcliError(
            f"run `{run.folder}` has no policy yet",
            "its first checkpoint brings one; "
            f"`rlcli resume {shlex.quote(str(run.folder))}` goes on with it",
        )
    return run, policy


def locate_run(path: str | Path) -> Run:
    """The run that a user means: its folder, any file of it, or its recipe's folder."""
    path = Path(path)
    if path.is_file():
        run = _owner(path)
        if run is None:
            raise RlcliError(
                f"`{path}` lies in no run",
                "name the folder of a run, `runs/<recipe>/<time>`",
            )
        return run
    if not path.is_dir():
        raise RlcliError(f"there is no `{path}`", _nearest_path(path))
    if _is_run(path):
        return Run(path)
    whole = path.absolute()  # "." has no name
    if whole.name == "checkpoints" and _is_run(whole.parent):
        return Run(path.parent if path.name else whole.parent)
    inside = [info.parent for info in path.glob("*/run.json")]
    if inside:
        return Run(max(inside, key=_age))
    recipes = sorted({info.parents[1] for info in path.glob("*/*/run.json")})
    raise RlcliError(
        f"`{path}` holds no run",
        "name one of its folders: " + ", ".join(f"`{each}`" for each in recipes)
        if recipes
        else "a run is a folder with a `run.json`, made by `rlcli train`",
    )


def _best(run: Run) -> Path:
    if not run.best.is_file():
        raise RlcliError(
            f"run `{run.folder}` has no best policy",
            "evaluations find it while training: `train.evaluate` in the recipe; "
            "without `--best` the latest policy is taken",
        )
    return run.best


def _owner(path: Path) -> Run | None:
    """The run that a file lies in, itself or among the checkpoints."""
    parents = path.parents if len(path.parents) > 1 else path.absolute().parents
    if parents[0].name == "checkpoints" and _is_run(parents[1]):
        return Run(parents[1])
    return Run(path.parent) if _is_run(path.parent) else None


def _is_run(folder: Path) -> bool:
    return (folder / "run.json").is_file()


def _age(folder: Path) -> tuple[str, int]:
    """Sorts runs by when they began: by name, or, for a name of the user's, by file."""
    match = _TIME.fullmatch(folder.name)
    if match:
        return match[1], int(match[2] or 1)
    made = time.gmtime((folder / "run.json").stat().st_mtime)
    return time.strftime("%Y-%m-%dT%H-%M-%S", made), 1


def _nearest_path(path: Path) -> str:
    """What beside a path that is not there has nearly its name, or such a recipe."""
    known = Path("runs") / path
    if known.exists():
        return f"did you mean `{known}`?"
    while not path.parent.is_dir():
        path = path.parent
    beside = [each.name for each in path.parent.iterdir()]
    close = difflib.get_close_matches(path.name, beside, n=1)
    if close:
        return f"did you mean `{path.parent / close[0]}`?"
    return "`rlcli train` makes runs, `runs/<recipe>/<time>`"


def now() -> str:
    """The time, as runs note it: `2026-11-20T10:00:00Z`."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def _step(checkpoint: Path) -> int:
    return int(checkpoint.name.removesuffix(SUFFIX))
