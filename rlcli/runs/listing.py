"""Listing: finds the runs below a folder; the function behind `rlcli runs`."""

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from rlcli.errors import RlcliError, quote, suggest
from rlcli.runs.conditions import parse_condition, select
from rlcli.runs.formatting import format_count, format_number
from rlcli.runs.records import Record, read_record
from rlcli.runs.result import Records
from rlcli.runs.result_tables import Table
from rlcli.runs.run_folder import TIME

MAX_DEPTH = 7  # folders between the given one and a run
SORTS = ("created", "return", "steps", "status", "recipe", "name")
_DESCENDING = ("created", "return", "steps")
# Files that mark a folder as a run, even if `run.json` is lost.
_MARKS = frozenset(("run.json", "resolved.yaml", "metrics.jsonl", "checkpoints.json"))


def runs(
    folder: str | Path = "runs",
    *,
    filter: Sequence[str] = (),
    tag: Sequence[str] = (),
    sort: str = "created",
) -> Records:
    """Returns a record of every run below a folder (`rlcli.runs.records.read_record`).

    The fields of a record are attributes, too, and a notebook shows a table.

    Args:
        folder: a folder with runs, such as `runs`, or a run.
        filter: conditions such as `KEY=VALUE`, also with `!=`, `<`, `<=`, `>` and `>=`,
            which all have to hold. `KEY` is an option of the recipe, such as
            `updater.name`, or a field of the records, such as `return`; `*` and `?` in
            `VALUE` match any characters.
        tag: only runs that have all these tags.
        sort: `created`, `return` or `steps`, the highest first; or `status`, `recipe`
            or `name`, in alphabetical order.
    """
    if sort not in SORTS:
        raise RlcliError(
            f"runs cannot be sorted by {quote(sort)}", suggest(sort, SORTS)
        )
    found = _sort(select_runs(find_runs(Path(folder)), filter, tag), sort)
    return Records(found, _table)


def _table(records: Sequence[Record]) -> Table:
    """The runs in a notebook."""
    rows = [
        [
            each["run"],
            each["status"],
            format_count(each["steps"]),
            format_number(each["return"] and each["return"]["mean"]),
            str(len(each["seeds"])),
        ]
        for each in records
    ]
    return Table("", ["run", "status", "steps", "return", "seeds"], rows)


def select_runs(
    folders: Iterable[Path], filter: Sequence[str], tag: Sequence[str]
) -> list[Record]:
    """The records of the runs that satisfy all conditions and have all tags."""
    conditions = [parse_condition(text) for text in filter]
    records = [read_record(path) for path in folders]
    records = [record for record in records if {*tag} <= {*record["tags"]}]
    for condition in conditions:
        records = select(records, condition)
    return records


def find_runs(folder: Path, *, follows: bool = True) -> Iterator[Path]:
    """The folders of all runs below a folder, also of those with lost files.

    `follows`: also links to folders of runs.
    """
    if not folder.is_dir():
        hint = "`rlcli train` creates runs, by default in `runs`"
        raise RlcliError(f"there is no folder {quote(folder)}", hint)
    return _walk(os.fspath(folder), folder.name, MAX_DEPTH, follows)


def _walk(path: str, name: str, depth: int, follows: bool) -> Iterator[Path]:
    """`follows`: also links. There is one on each way: several could lead anywhere."""
    try:
        with os.scandir(path) as entries:
            found = {
                entry.name: entry
                for entry in entries
                if entry.name in _MARKS or _is_folder(entry, follows)
            }
    except OSError:  # no permission, or removed in the meantime
        return
    if _MARKS & found.keys() or (not found and TIME.match(name)):
        yield Path(path)
    elif depth:
        for each, below in found.items():
            is_more = follows and not below.is_symlink()
            yield from _walk(below.path, each, depth - 1, is_more)


def _is_folder(entry: os.DirEntry[str], follows: bool) -> bool:
    """Whether it may contain runs; not a link to a folder that contains the link."""
    if entry.name.startswith(".") or not entry.is_dir():
        return False
    if not entry.is_symlink():
        return True
    if not follows:
        return False
    target = os.path.realpath(entry.path)
    parent = os.path.realpath(os.path.dirname(entry.path))
    return os.path.commonpath([target, parent]) != target


def _sort(records: Sequence[Record], name: str) -> list[Record]:
    """The records in order of a field; those without it are last."""
    newest_first = sorted(records, key=_start_order, reverse=True)
    if name == "created":
        return newest_first
    is_descending = name in _DESCENDING

    def order(record: Record) -> tuple[bool, Any]:
        value = record[name]
        if name == "return":
            value = value and value["iqm"]
        if value is None or value != value:  # NaN
            return True, 0
        return False, -value if is_descending else value

    return sorted(newest_first, key=order)


def _start_order(record: Record) -> tuple[str, int, str]:
    match = TIME.match(Path(record["run"]).name)
    number = int(match[2] or 1) if match else 1
    return record["created"] or "", number, record["run"]
