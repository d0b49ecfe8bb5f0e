"""Variants: the runs of a recipe that differ in varied options, in one folder.

`variants.json` in that folder, written before the first run begins, lists the runs and
the values of their options, and how those that never began are trained.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rlcli.errors import RlcliError
from rlcli.runs.files import read_json, write_json
from rlcli.runs.records import Record, read_record
from rlcli.runs.run_folder import is_run

FILE_NAME = "variants.json"
_LONGEST = 255  # bytes of a name in the file systems of Linux and macOS
_REMEDY = "remove it: the runs beside it can be used one by one"


class Variant(NamedTuple):
    """A run, and how it is trained."""

    name: str  # of its folder
    recipe: str  # a file, or the name of a built-in recipe
    values: tuple[str, ...]  # of the varied options: `KEY=VALUE`
    sets: tuple[str, ...]  # all options, with those values
    arguments: tuple[str, ...]  # further arguments of `rlcli train`

    @property
    def options(self) -> dict[str, str]:
        """The values of the varied options, by their names."""
        pairs = (text.partition("=") for text in self.values)
        return {key: value for key, _, value in pairs}


class Variants(NamedTuple):
    """The variants in a folder, in the order in which they are trained."""

    folder: Path
    variants: tuple[Variant, ...]

    @property
    def options(self) -> tuple[str, ...]:
        """The names of all varied options."""
        return tuple(
            dict.fromkeys(key for each in self.variants for key in each.options)
        )

    @property
    def runs(self) -> dict[Path, Variant]:
        """The run folders that exist."""
        folders = {self.folder / each.name: each for each in self.variants}
        return {path: each for path, each in folders.items() if is_run(path)}

    def choose_best(self) -> Path:
        """The folder of the run with the highest IQM of its returns over seeds."""
        if not self.runs:
            raise RlcliError(
                f"no run of `{self.folder}` has begun",
                "`rlcli resume` of this folder trains them",
            )
        return max(self.runs, key=lambda path: _score(read_record(path)))


def _score(record: Record) -> float:
    result = record["return"]
    score = float("nan") if result is None else result["iqm"]
    return score if score == score else float("-inf")  # NaN: the run has failed


def record_variants(folder: Path, variants: Sequence[Variant]) -> None:
    """Adds variants to those of a folder, which is created if it is missing."""
    found = find_variants(folder)
    known = found.variants if found else ()
    names = {each.name for each in known}
    new = [each for each in variants if each.name not in names]
    if new:
        folder.mkdir(parents=True, exist_ok=True)
        rows = [each._asdict() for each in (*known, *new)]
        write_json(folder / FILE_NAME, {"variants": rows})


def discard_variants(folder: Path) -> None:
    """Removes the file, and the folder if it is empty, unless a run has begun."""
    found = find_variants(folder)
    if found and not found.runs:
        (folder / FILE_NAME).unlink()
        if not any(folder.iterdir()):
            folder.rmdir()


def find_variants(path: str | Path) -> Variants | None:
    """The variants in a folder; None if it is no folder of variants."""
    file = Path(path) / FILE_NAME
    fields = read_json(file, _REMEDY)
    if not fields:
        return None
    try:
        variants = tuple(map(_parse, fields["variants"]))
    except (LookupError, TypeError, ValueError) as error:
        raise RlcliError(f"`{file}` is damaged: {error}", _REMEDY) from error
    return Variants(Path(path), variants)


def _parse(fields: Mapping[str, Any]) -> Variant:
    name, recipe = fields["name"], fields["recipe"]
    lists = [fields[field] for field in ("values", "sets", "arguments")]
    texts = [name, recipe, *(text for each in lists for text in each)]
    if not all(isinstance(text, str) for text in texts) or name in ("", ".", ".."):
        raise ValueError("a variant has a field of another type")
    if Path(name).name != name or "\0" in name or len(os.fsencode(name)) > _LONGEST:
        raise ValueError(f"{name!r} is not the name of a folder")
    return Variant(name, recipe, *map(tuple, lists))
