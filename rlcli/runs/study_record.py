"""Study record: which runs belong to a study, in `study.json` of its folder.

A study is several runs in one folder: recipes × environments × values of options, each
with its seeds, or the trials of a sweep. Each run of it is a cell. The file has a cell
before it begins, with what is needed to begin it. Other sections say how the cells are
chosen, and where they are kept: `search` of a sweep, `bsuite`, `run_storage`; and
`reference`: the returns that scores normalize to 0 and 1, by environment. `folder` is
where the record was written, so that recipes are found that are moved with the study.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from rlcli.errors import RlcliError, quote
from rlcli.runs import files, predicates
from rlcli.runs.moved_recipes import (
    FILE_NAME,
    FOLDER,
    REMEDY,
    absolute,
    find_recipe,
)
from rlcli.runs.naming import check_name, check_tags
from rlcli.runs.records import Record, read_record
from rlcli.runs.run_folder import Run, is_run

if TYPE_CHECKING:
    from rlcli.recipe import RecipeDocument

FORMAT = 1
SEARCH, BSUITE = "search", "bsuite"  # the sections of a sweep, and of `rlcli bsuite`
REFERENCE = "reference"  # the section of returns `[low, high]` by environment
_SIGNATURE = "signature"
_DEEPEST = 16  # folders of a cell below that of its study
_CELL_FIELDS: Mapping[str, predicates.Predicate] = {  # and `recipe`
    "digest": predicates.is_text,
    "set": predicates.list_of(predicates.is_text),
    "tags": predicates.list_of(predicates.is_text),
    "values": predicates.mapping_of(predicates.is_text),
    "name": predicates.or_none(predicates.is_text),
}
_LONGEST = 255  # bytes of a name in the file systems of Linux and macOS


class Cell(NamedTuple):
    """A run of a study, which may not have begun."""

    folder: Path
    study: Path  # the folder of the study
    # An absolute path, a built-in recipe, or `name` and `data`. A file that is moved
    # together with the study is found.
    recipe: str | Mapping[str, Any]
    digest: str  # of the recipe, merged with its bases, without `sets`
    sets: tuple[str, ...] = ()  # the settings for the recipe
    # What tells it from the others: `recipe`, `environment`, options of the recipe.
    values: Mapping[str, str] = {}
    name: str | None = None
    tags: tuple[str, ...] = ()
    is_smoke: bool = False
    # The recipe, in the process that has read it.
    document: RecipeDocument | None = None

    @property
    def label(self) -> str:
        """The path of its folder in that of the study, with `/`."""
        return self.folder.relative_to(self.study).as_posix()

    @property
    def exists(self) -> bool:
        """Whether its run has begun."""
        return is_run(self.folder)


class Study(NamedTuple):
    """The cells of a study, in the order in which they are trained."""

    folder: Path
    cells: tuple[Cell, ...]
    sections: Mapping[str, Any] = {}  # what else the record has

    @property
    def runs(self) -> list[Path]:
        """The folders of the runs that exist."""
        return [cell.folder for cell in self.cells if cell.exists]

    @property
    def is_search(self) -> bool:
        """Whether it is a sweep: its cells are trials, of which the best one counts."""
        return SEARCH in self.sections

    @property
    def result(self) -> Mapping[str, Any]:
        """The status and the winner of a sweep that has begun; else {}."""
        return files.read_json(self.folder / "result.json") if self.is_search else {}

    def choose_best(self) -> Path:
        """The folder of the winner of a sweep, or of the run with the highest IQM.

        Runs that have a policy and have not failed come first, and returns of
        evaluations before those of training.
        """
        winner = self.result.get("winner")
        if isinstance(winner, dict):
            for run in self.runs:
                if run.relative_to(self.folder).as_posix() == winner.get("run"):
                    return run
        if not self.runs:
            message = f"no run of `{self.folder}` exists"
            raise RlcliError(message, "`rlcli resume` begins them")
        return max(self.runs, key=lambda path: _rank(path, read_record(path)))


def _rank(path: Path, record: Record) -> tuple[bool, bool, bool, float]:
    result = record["return"] or {"source": None, "iqm": float("nan")}
    score = result["iqm"]
    return (
        Run(path).policy.is_file(),
        record["status"] != "failed",
        result["source"] == "evaluation",
        score if score == score else float("-inf"),  # NaN
    )


def record_study(
    folder: Path,
    cells: Sequence[Cell] = (),
    *,
    sign: bool | None = None,
    **sections: Any,
) -> None:
    """Adds cells, or replaces sections, of a study, whose folder is created for it.

    `sign`: whether the user has named what is added, and trusts it. A study that exists
    stays signed if it was, unless `sign` is False, and is never signed otherwise.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with _hold_record(folder):
        found = find_study(folder)
        signs = bool(sign) if found is None else sign is not False and is_signed(folder)
        before = found or Study(folder, ())
        known = {cell.label: cell for cell in (*before.cells, *cells)}
        _write(folder, known.values(), {**before.sections, **sections}, signs)


def discard_cells(
    cells: Sequence[Cell],
    added: Mapping[str, Any],
    before: Mapping[str, Any],
    *,
    with_parents: int,
) -> None:
    """Removes those cells that have no run, and folders that are empty then.

    The sections `added` with them become those of `before`, unless another process has
    changed them since. `with_parents`: how many folders above that of the study may go
    as well.
    """
    folder = cells[0].study
    labels = {cell.label for cell in cells if not cell.exists}
    with _hold_record(folder):
        now = find_study(folder) or Study(folder, ())
        kept = [cell for cell in now.cells if cell.label not in labels]
        sections = {**now.sections}
        for name, section in added.items():
            # As text: what were tuples are lists there.
            if files.to_json(section) == files.to_json(sections.get(name)):
                sections.pop(name, None)
                if name in before:
                    sections[name] = before[name]
        if kept:
            _write(folder, kept, sections, is_signed(folder))
        else:
            (folder / FILE_NAME).unlink(missing_ok=True)
    places = {parent for cell in cells for parent in cell.folder.parents}
    with contextlib.suppress(OSError):  # not empty
        for place in sorted(places, key=lambda path: -len(path.parts)):
            if place.is_relative_to(folder) and place != folder and place.is_dir():
                place.rmdir()
        for place in [folder, *folder.parents[:with_parents]]:
            place.rmdir()


def find_study(path: str | Path) -> Study | None:
    """The study in a folder; None if there is none, or the folder is that of a run."""
    folder = Path(path)
    fields = files.read_json(folder / FILE_NAME, REMEDY)
    if not fields or is_run(folder):
        return None
    for name in (_SIGNATURE, FOLDER):
        fields.pop(name, None)
    version, cells = fields.pop("format", None), fields.pop("cells", None)
    if type(version) is int and version > FORMAT:
        message = f"`{folder / FILE_NAME}` has format version {version}, but this rlcli"
        hint = "upgrade: `pip install --upgrade rlcli`"
        raise RlcliError(f"{message} only supports {FORMAT}", hint)
    if version != FORMAT or not isinstance(cells, dict) or not (cells or fields):
        raise _damage(folder, "it lists no cells")
    places = _Places(folder)
    read = tuple(_read_cell(places, *each) for each in cells.items())
    return Study(folder, read, fields)


def is_signed(folder: Path) -> bool:
    """Whether a study is the user's own, so that its cells may import code."""
    try:
        fields = files.read_json(folder / FILE_NAME, REMEDY)
    except RlcliError:
        return False
    if (signature := fields.pop(_SIGNATURE, None)) is None:
        return False
    from rlcli.runs.study_ownership import is_own_study  # here: it reads recipes

    return is_own_study(folder, fields, signature)


def refuse_options(folder: Path, given: Mapping[str, Any]) -> None:
    """Refuses options of a new study for one that exists; `given` are all of them."""
    refused = [name for name, each in given.items() if each or type(each) is int]
    if refused:
        raise RlcliError(
            f"{quote(folder)} is the folder of a study, whose options cannot change: "
            + ", ".join(f"`{name}`" for name in refused),
            "leave them out, or begin another study",
        )


class _Places:
    """The folders of cells that a record names; looks once at each folder above them.

    Refuses those outside, and links on the way.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._known: dict[str, tuple[Path, Container[str]]] = {}

    def find(self, label: str) -> Path:
        """The folder of a cell, which may be missing."""
        outer, _, name = label.rpartition("/")
        # `a` and `./a` would be one run, counted twice.
        is_name = name not in ("", ".", "..") and name.isprintable()
        is_inside = label[:1] != "/" and label.count("/") < _DEEPEST
        if not (is_name and is_inside) or len(name.encode()) > _LONGEST:
            raise _damage(self.folder, "a name of a folder")
        if (known := self._known.get(outer)) is None:
            parent = self.find(outer) if outer else self.folder
            known = self._known[outer] = parent, _find_links(parent)
        parent, links = known
        if name in links:
            files.refuse_link(parent / name)
        return parent / name


def _find_links(folder: Path) -> set[str]:
    """The names of symbolic links in a folder, which may be missing."""
    try:
        with os.scandir(folder) as entries:
            return {entry.name for entry in entries if entry.is_symlink()}
    except (FileNotFoundError, NotADirectoryError):
        return set()


def _read_cell(places: _Places, label: str, fields: Any) -> Cell:
    """A cell of a record that may come from elsewhere."""
    folder, place = places.folder, places.find(label)
    fields = {"name": None, **(fields if isinstance(fields, dict) else {})}
    checks = {"recipe": is_recipe, **_CELL_FIELDS}.items()
    if not all(key in fields and is_sound(fields[key]) for key, is_sound in checks):
        raise _damage(folder, f"what its cell `{label}` is")
    return Cell(
        place,
        folder,
        fields["recipe"],
        fields["digest"],
        tuple(fields["set"]),
        fields["values"],
        None if fields["name"] is None else check_name(fields["name"]),
        tuple(check_tags(fields["tags"])),
        fields.get("smoke") is True,
    )


def is_recipe(value: Any) -> bool:
    """Whether a value is a recipe of a cell; a name becomes that of a folder."""
    if not isinstance(value, dict):
        return isinstance(value, str)
    name, data = value.get("name"), value.get("data")
    is_name = isinstance(name, str) and name not in ("", ".", "..") and "/" not in name
    return is_name and isinstance(data, dict)


def _damage(folder: Path, what: str) -> RlcliError:
    return RlcliError(f"`{folder / FILE_NAME}` is damaged: {what}", REMEDY)


def _write(
    folder: Path, cells: Iterable[Cell], sections: Mapping[str, Any], signs: bool
) -> None:
    cells = [*cells]
    sections = {FOLDER: absolute(folder), **sections}
    for name, section in sections.items():
        if isinstance(section, dict) and "recipe" in section:
            recipe = find_recipe(folder, section["recipe"])
            sections[name] = {**section, "recipe": recipe}
    content = format_record(cells, sections)
    if signs:
        from rlcli.runs.study_ownership import sign_study  # here: it reads recipes

        signature = None
        with contextlib.suppress(RlcliError):  # its runs say that they have none
            read = [cell.document for cell in cells if cell.document is not None]
            signature = sign_study(folder, files.parse_json(content.decode()), read)
        if signature is not None:
            content = format_record(cells, {_SIGNATURE: signature, **sections})
    if len(content) > files.LARGEST_JSON:  # nobody could read it
        raise RlcliError(
            f"the record of {len(cells):,} cells in `{folder}` would have "
            f"{len(content):,} bytes, more than {files.LARGEST_JSON:,}",
            "divide the study into several",
        )
    files.replace_file(folder / FILE_NAME, content)


def format_record(cells: Iterable[Cell], sections: Mapping[str, Any] = {}) -> bytes:
    """The content of `study.json`, with a line for each cell."""
    text = files.to_json({"format": FORMAT, **sections}, indent=2).removesuffix("\n}")
    entries = {cell.label: _fields(cell) for cell in cells}.items()
    lines = (f"    {files.to_json(k)}: {files.to_json(each)}" for k, each in entries)
    listing = ",\n".join(lines)
    return f'{text},\n  "cells": {{\n{listing}\n  }}\n}}\n'.encode()


def _fields(cell: Cell) -> dict[str, Any]:
    return {
        "recipe": find_recipe(cell.study, cell.recipe),
        "digest": cell.digest,
        "set": [*cell.sets],
        "values": dict(cell.values),
        "name": cell.name,
        "tags": [*cell.tags],
        "smoke": cell.is_smoke,
    }


@contextlib.contextmanager
def _hold_record(folder: Path) -> Iterator[None]:
    """Context in which no other process changes the record of a folder."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):  # a file system without locks
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
