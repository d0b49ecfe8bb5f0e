"""Listing: finds runs below a folder, and selects them by `KEY=VALUE` or `KEY>VALUE`.

The function behind `rlcli runs`.
"""

import operator
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeGuard

from rlcli.errors import RlcliError, quote, suggest
from rlcli.runs.files import read_bytes
from rlcli.runs.formatting import format_count, format_number
from rlcli.runs.records import FIELDS, Record, read_record
from rlcli.runs.result import Records, Table
from rlcli.runs.run_folder import TIME, Run

MISSING = object()
_ORDERS = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}
_SIGN = re.compile("(!=|<=|>=|=|<|>)")
_HINT = "for example `--filter updater.name=ppo`"


class Condition(NamedTuple):
    """Compares the value of a field or an option, by its dotted key."""

    text: str
    key: str
    value: Any  # a compiled pattern if it contains `*` or `?`
    sign: str  # as in `_SIGN`


def parse_condition(text: str) -> Condition:
    """Parses `KEY=VALUE`, with `=`, `!=`, `<`, `<=`, `>` or `>=`.

    The value is YAML or a pattern; that of an order is a number.
    """
    from rlcli.recipe import documents

    key, sign, value = map(str.strip, [*_SIGN.split(text, 1), "", ""][:3])
    if not sign or not all(key.split(".")):
        raise RlcliError(f"--filter {quote(text)}: expected `KEY=VALUE`", _HINT)
    parsed: Any
    if sign in ("=", "!=") and ("*" in value or "?" in value):
        pattern = re.escape(value).replace(r"\*", ".*").replace(r"\?", ".")
        parsed = re.compile(pattern, re.DOTALL)
    else:
        source = f"--filter {text}"
        parsed = documents.load_document(f"value: {value}", source).data["value"]
    if sign not in ("=", "!=") and not _is_number(parsed):
        message = f"--filter {quote(text)}: {quote(value)} is not a number"
        raise RlcliError(message, "compare with a number: `return>=400`")
    return Condition(text, key, parsed, sign)


def select(records: Sequence[Record], condition: Condition) -> list[Record]:
    """The records that satisfy a condition; an error if none has its key."""
    found = [(record, find_value(record, condition.key)) for record in records]
    if found and all(value is MISSING for _, value in found):
        recipes = (read_recipe(Path(record["run"])) for record in records)
        # Of the newest readable recipe.
        names = [*FIELDS, *_dotted_keys(next(filter(None, recipes), {}))]
        key = quote(condition.key)
        message = f"--filter {quote(condition.text)}: no run has {key}"
        raise RlcliError(message, suggest(condition.key, names))
    return [
        record
        for record, value in found
        if value is not MISSING and _holds(condition, value)
    ]


def _holds(condition: Condition, value: Any) -> bool:
    wanted = condition.value
    if isinstance(value, Mapping) and not isinstance(wanted, Mapping):
        value = value.get("name", value.get("iqm"))  # of a part, or a return
    if condition.sign in ("=", "!="):
        return _is_equal(value, wanted) == (condition.sign == "=")
    if not (_is_number(value) and _is_number(wanted)):
        return False
    return _ORDERS[condition.sign](value, wanted)


def _is_number(value: Any) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_equal(value: Any, wanted: Any) -> bool:
    if isinstance(wanted, re.Pattern):
        return value is not None and bool(wanted.fullmatch(str(value)))
    return isinstance(value, bool) == isinstance(wanted, bool) and value == wanted


def find_value(record: Record, key: str) -> Any:
    """A field of the record, or an option of its recipe."""
    first, *rest = key.split(".")
    if first in FIELDS:
        return get_nested_value(record, first, *rest)
    return get_nested_value(read_recipe(Path(record["run"]), first), first, *rest)


def get_nested_value(value: Any, *keys: str, default: Any = MISSING) -> Any:
    """The value at a path of keys in nested mappings."""
    for key in keys:
        if not isinstance(value, Mapping) or key not in value:
            return default
        value = value[key]
    return value


def read_recipe(
    folder: Path, section: str = "", *, as_written: bool = False
) -> dict[str, Any]:
    """The resolved recipe of a run, or one section; {} if it cannot be read.

    `as_written`: the recipe as the user wrote it, without defaults.

    Parses only the lines of the section, which takes a tenth of the time.
    """
    from rlcli.recipe import documents  # here: takes a fifth of a second

    try:
        run = Run(folder)
        path = run.recipe if as_written else run.resolved_recipe
        text = read_bytes(path, "", most=documents.MAX_BYTES).decode()
        if section:
            pattern = rf"^{re.escape(section)}:.*\n?(?:[ \t#].*\n?|\n)*"
            match = re.search(pattern, text, re.MULTILINE)
            text = match[0] if match else "{}"
        return documents.load_document(text).data
    except (OSError, ValueError, RlcliError):
        return {}


def _dotted_keys(value: Any, place: str = "") -> Iterator[str]:
    if place:
        yield place
    if isinstance(value, Mapping):
        for key, below in value.items():
            yield from _dotted_keys(below, f"{place}.{key}" if place else str(key))


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
        message = f"runs cannot be sorted by {quote(sort)}"
        raise RlcliError(message, suggest(sort, SORTS))
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
            str(len(each["seeds"] or ())),
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
    if not os.path.isdir(folder):  # nor can be
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
    if not (follows and entry.is_symlink()):
        return not entry.is_symlink()
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
