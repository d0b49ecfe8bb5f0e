"""Run folder: the files of a run, by default in `runs/<recipe>/<time>[-n]/`.

`rlcli.runs.creation` creates it. `INFO_FIELDS` are the fields of `run.json` that rlcli
reads, and their types.
"""

import contextlib
import re
import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rlcli.errors import RlcliError, shell_path
from rlcli.replays.datasets.names import POLICY_SUFFIX as SUFFIX
from rlcli.runs import files, locks, ownership, predicates, signed_code
from rlcli.runs.files import merge_json, read_json
from rlcli.runs.provenance import command_line, program


def _is_folder_name(value: Any) -> bool:
    """Whether a value names a folder, and does not lead out of the one around it."""
    return predicates.is_word(value) and Path(value).name == value not in ("", "..")


def _is_members(value: Any) -> bool:
    """Whether a value is a list of different names of folders."""
    is_list = predicates.list_of(_is_folder_name)(value)
    return is_list and len({*value}) == len(value) > 0


def _is_init(value: Any) -> bool:
    is_numbers = predicates.list_of(predicates.is_int)
    return isinstance(value, dict) and all(
        is_numbers(value.get(key, [])) for key in ("seeds", "steps")
    )


def _is_resume(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and predicates.is_text(value.get("time", ""))
        and predicates.is_int(value.get("step", 0))
    )


_is_pair = predicates.list_of(lambda value: True, 2)  # a value before, and after
INFO_FIELDS: Mapping[str, predicates.Predicate] = {
    "recipe": _is_folder_name,
    "name": predicates.or_none(predicates.is_text),
    "tags": predicates.list_of(predicates.is_text),
    "changes": predicates.or_none(predicates.mapping_of(_is_pair)),
    "frozen": predicates.or_none(predicates.is_mapping),
    "status": predicates.is_text,
    "reason": predicates.is_text,
    "seeds": predicates.list_of(predicates.is_int),
    "layout": predicates.is_mapping,
    "command": predicates.or_none(predicates.is_text),
    "smoke": predicates.or_none(predicates.is_flag),
    "total_steps": predicates.is_int,
    "created": predicates.is_text,
    "ended": predicates.or_none(predicates.is_text),
    "imports": predicates.list_of(predicates.is_text),
    "trackers": predicates.list_of(predicates.is_text),
    "members": _is_members,
    "population": predicates.is_flag,
    "init": _is_init,
    "code": predicates.is_mapping,
    "resumes": predicates.list_of(_is_resume),
    "signature": predicates.or_none(predicates.is_text),
}


_RESTORE = "restore the file, or remove it: `rlcli resume` recreates it"
TIME = re.compile(r"(\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d)(?:-(\d+))?")
_CHECKPOINT = re.compile(rf"(\d{{9,18}}){re.escape(SUFFIX)}")
_FILM = r"\d{9,18}\.gif"


class _Entry:
    """A file or folder in that of a run, by its name."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __get__(self, run: "Run", owner: type) -> Path:
        return run.folder / self.name


@dataclass(frozen=True)
class Run:
    """The folder of a run, with the paths of its files."""

    folder: Path
    # Whether this process created the folder, and so may remove it.
    is_new: bool = field(default=False, compare=False)
    # Whether it is in a folder of a recipe's runs, which may be removed when empty.
    is_below_recipe: bool = field(default=False, compare=False)

    recipe = _Entry("recipe.yaml")  # as the user wrote it
    resolved_recipe = _Entry("resolved.yaml")  # with every default filled in
    info = _Entry("run.json")  # versions, hardware, command, seeds, status, resumes
    metrics = _Entry("metrics.jsonl")  # one row per seed and log point
    log = _Entry("log.txt")  # the lines of the monitor
    code = _Entry(signed_code.CODE)  # copies of the user's modules that it imports
    checkpoints = _Entry("checkpoints")  # the whole state, for resume
    policy = _Entry(f"policy{SUFFIX}")  # the latest: what acting needs of the state
    best = _Entry(f"best{SUFFIX}")  # the policy of each seed at its best evaluation
    init = _Entry(f"init{SUFFIX}")  # what it has started from, if its recipe has `init`
    index = _Entry("checkpoints.json")  # the latest checkpoint, and the best policies
    trackers = _Entry("trackers.json")  # its id in trackers, and the last step of each
    hook_records = _Entry("hooks.jsonl")  # see `rlcli.runs.hook_records`
    films = _Entry("films")  # the folder of the films of evaluations

    def film(self, step: int) -> Path:
        """The film of the evaluation at a step: `films/000050000.gif`."""
        return self.films / f"{step:09d}.gif"

    def checkpoint(self, step: int) -> Path:
        """The checkpoint of a step: `checkpoints/000050000.pkl.lz4`."""
        return self.checkpoints / f"{step:09d}{SUFFIX}"

    def latest_checkpoint(self) -> Path | None:
        """The checkpoint from which the run continues; None before the first one."""
        return next(iter(self.newest_first()), None)

    def newest_first(self) -> list[Path]:
        """All checkpoints: the latest by the index, then by descending step."""
        named = self.checkpoints / str(self.read_index().get("latest"))
        by_step = sorted(self.list_checkpoints(), key=checkpoint_step, reverse=True)
        return sorted(by_step, key=lambda path: path != named)

    def is_missing_checkpoints(self) -> bool:
        """Whether checkpoints were written, but none exists any more."""
        return not self.list_checkpoints() and "latest" in self.read_index()

    def prune_checkpoints(self, keep: int, step: int) -> None:
        """Removes all checkpoints up to a step except the newest `keep`.

        Checkpoints beyond the step remain from before a resume at an older checkpoint.
        The run will reach and replace them again.
        """
        if keep < 1:
            raise ValueError(f"expected to keep at least 1 checkpoint, got {keep}")
        by_step = sorted(self.list_checkpoints(), key=checkpoint_step)
        older = [path for path in by_step if checkpoint_step(path) <= step]
        for path in older[:-keep]:
            with files.name_file_in_errors(path, "removed"):
                path.unlink(missing_ok=True)

    def remove_temporaries(self) -> None:
        """Removes temporary files of killed processes; requires the lock."""
        written = (self.policy, self.best, self.init, self.recipe, self.resolved_recipe)
        written += (self.info, self.index, self.trackers, self.hook_records)
        names = [re.escape(path.name) for path in written]
        files.remove_temporaries(self.folder, names)
        files.remove_temporaries(self.checkpoints, [_CHECKPOINT.pattern])
        if not self.films.is_symlink():
            files.remove_temporaries(self.films, [_FILM])

    def make_films_folder(self) -> None:
        """Creates the folder of the films; refuses a link, which leads elsewhere."""
        files.make_folder(self.folder, self.films.name)

    def refuse_linked_checkpoints(self) -> None:
        """Refuses a link in place of the folder of the checkpoints.

        A user may have made it, but the author of a run from elsewhere may, too.
        """
        try:
            files.refuse_link(self.checkpoints)
        except RlcliError as error:
            hint = "pass `--trust` if you have made the link, or remove it"
            raise RlcliError(error.message, hint) from error

    def make_checkpoints_folder(self) -> None:
        """Creates the folder of the checkpoints, unless it or a link to one exists."""
        with files.name_file_in_errors(self.checkpoints, "created"):
            self.checkpoints.mkdir(exist_ok=True)

    def read_resolved(self) -> str:
        """The text of `resolved.yaml`; an `RlcliError` if it cannot be read."""
        return files.read_text(self.resolved_recipe, _RESTORE)

    def resolved_data(self) -> dict[str, Any] | None:
        """The data of `resolved.yaml`; None if it is missing or empty."""
        from rlcli.recipe import documents  # here, to keep `--help` fast

        path = self.resolved_recipe
        if not files.exists(path) or not (text := self.read_resolved()):
            return None
        return documents.load_document(text, source=str(path)).data

    def read_info(self) -> dict[str, Any]:
        """The content of `run.json`; an `RlcliError` if a field has a wrong type."""
        info = read_json(self.info)
        files.check_fields(self.info, info, INFO_FIELDS, _RESTORE)
        return info

    def command(
        self, verb: str, *, trust: bool = True, folder: Path | None = None
    ) -> str:
        """The command line that continues with this run: `rlcli eval runs/a`.

        With `--trust` if the command needs it, and `trust`: pass False for a run
        that another process wrote, whose author may not be the user. `folder`: that of
        several runs like this one.
        """
        option = " --trust" if trust and self.needs_trust(verb) else ""
        return f"{program()} {verb} {shell_path(folder or self.folder)}{option}"

    def needs_trust(self, verb: str) -> bool:
        """Whether a command runs code, or starts trackers, only with `--trust`.

        Not for a run that the user's rlcli has signed, or in a folder that it trusts.
        """
        info = self.read_info()
        starts_trackers = bool(verb == "resume" and info.get("trackers"))
        if not info.get("imports") and not starts_trackers:
            return False
        try:
            data = self.resolved_data() or {}
        except RlcliError:
            return True
        signed = signed_code.find_signed_code(self.folder, info, [data])
        if signed and (signed.trackers or not starts_trackers):
            return False
        return not ownership.is_remembered(self.folder)

    def write_info(self, **fields: Any) -> None:
        """Sets fields of `run.json`, and keeps the others."""
        merge_json(self.info, fields)

    def record_resume(self, **fields: Any) -> None:
        """Appends a resume to `run.json`: its time, its command, and `fields`."""
        resume = {"time": timestamp(), "command": command_line(), **fields}
        self.write_info(resumes=[*self.read_info().get("resumes", []), resume])

    def read_index(self) -> dict[str, Any]:
        """`{"latest": file name, "best": {seed: {"step", "return"}}}`, or {}.

        Seeds are strings, as in JSON.
        """
        index = read_json(self.index)
        hint = "remove it: the next checkpoint recreates it"
        files.check_fields(self.index, index, {"best": predicates.is_mapping}, hint)
        return index

    def write_index(self, **fields: Any) -> None:
        """Sets fields of `checkpoints.json`."""
        merge_json(self.index, fields)

    def lock(self) -> contextlib.AbstractContextManager[None]:
        """Prevents other processes from training into this folder."""
        return locks.hold(self.folder)

    def sign_lock(self) -> None:
        """Writes the number of this process into the lock, which it holds."""
        locks.sign(self.folder)

    def is_abandoned(self) -> bool:
        """Whether no process is training into this folder; False if unknown."""
        return locks.is_free(self.folder)

    def discard(self) -> None:
        """Removes the folder of a run that never started, but no files of the user.

        A folder that existed before (`--run`) remains, without the files of
        `create_run`.
        """
        if self.list_checkpoints():
            raise ValueError(f"expected no checkpoint in {self.folder}")
        if self.is_new:
            shutil.rmtree(self.folder)
            if self.is_below_recipe:
                with contextlib.suppress(OSError):  # not empty: runs of the recipe
                    self.folder.parent.rmdir()
            return
        if self.read_info().get("code"):
            shutil.rmtree(self.code, ignore_errors=True)
        written = (self.recipe, self.resolved_recipe, self.info, self.init)
        for path in (*written, self.folder / locks.FILE_NAME):
            path.unlink(missing_ok=True)

    def list_checkpoints(self) -> list[Path]:
        """All checkpoints, unordered; skips folders, pipes and other names."""
        with (
            files.name_file_in_errors(self.checkpoints, "read"),
            contextlib.suppress(FileNotFoundError, NotADirectoryError),
        ):
            return [
                path
                for path in self.checkpoints.iterdir()  # `glob` hides errors
                if _CHECKPOINT.fullmatch(path.name) and path.is_file()
            ]
        return []


def is_run(folder: Path) -> bool:
    """Whether a folder has a `run.json`, or checkpoints to recreate it from."""
    return (folder / "run.json").is_file() or bool(Run(folder).list_checkpoints())


def trust_option(trust: bool | None) -> list[str]:
    """The option that tells another command whom to trust."""
    return {True: ["--trust"], False: ["--no-trust"], None: []}[trust]


def timestamp() -> str:
    """The current time in the format of `run.json`: `2026-11-20T10:00:00Z`."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def checkpoint_step(checkpoint: Path) -> int:
    """The step in the name of a checkpoint."""
    return int(checkpoint.name.removesuffix(SUFFIX))
