"""Conditions: selects the records of runs by `KEY=VALUE`, or `KEY>VALUE`."""

import operator
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeGuard

from rlcli.errors import RlcliError, quote, suggest
from rlcli.runs.files import open_regular
from rlcli.runs.records import FIELDS, Record
from rlcli.runs.run_folder import Run

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
        raise _unknown_key(records, condition)
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
        with open_regular(path, os.O_RDONLY, encoding="utf-8") as file:
            documents.refuse_long(os.fstat(file.fileno()).st_size, str(path))
            text = file.read()
        if section:
            pattern = rf"^{re.escape(section)}:.*\n?(?:[ \t#].*\n?|\n)*"
            match = re.search(pattern, text, re.MULTILINE)
            text = match[0] if match else "{}"
        return documents.load_document(text).data
    except (OSError, ValueError, RlcliError):
        return {}


def _unknown_key(records: Sequence[Record], condition: Condition) -> RlcliError:
    """An error that suggests a similar key, from the newest readable recipe."""
    names = [*FIELDS]
    for record in records:
        if recipe := read_recipe(Path(record["run"])):
            names += _dotted_keys(recipe)
            break
    return RlcliError(
        f"--filter {quote(condition.text)}: no run has {quote(condition.key)}",
        suggest(condition.key, names),
    )


def _dotted_keys(value: Any, place: str = "") -> Iterator[str]:
    if place:
        yield place
    if isinstance(value, Mapping):
        for key, below in value.items():
            yield from _dotted_keys(below, f"{place}.{key}" if place else str(key))
