"""Info fields: the fields of `run.json` that rlcli reads, and their types."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rlcli.runs import predicates


def _is_members(value: Any) -> bool:
    """Whether a value is a list of different names of folders."""
    return (
        predicates.list_of(predicates.is_text)(value)
        and len({*value}) == len(value) > 0
        and all(map(_is_folder_name, value))
    )


def _is_folder_name(value: Any) -> bool:
    """Whether a value names a folder, and does not lead out of the one around it."""
    is_name = isinstance(value, str) and Path(value).name == value not in ("", "..")
    return is_name and "\0" not in value


def _is_changes(value: Any) -> bool:
    """Whether a value is `{option: [value before, value]}`, or null."""
    return value is None or (
        isinstance(value, dict)
        and all(isinstance(pair, list) and len(pair) == 2 for pair in value.values())
    )


def _is_init(value: Any) -> bool:
    """Whether a value says where a run started from."""
    return isinstance(value, dict) and all(
        predicates.list_of(predicates.is_int)(value.get(key, []))
        for key in ("seeds", "steps")
    )


INFO_FIELDS: Mapping[str, predicates.Predicate] = {
    "recipe": _is_folder_name,
    "name": predicates.or_none(predicates.is_text),
    "tags": predicates.list_of(predicates.is_text),
    "changes": _is_changes,
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
    "resumes": predicates.list_of(predicates.is_mapping),
    "signature": predicates.or_none(predicates.is_text),
}
