"""Info fields: the fields of `run.json` that rlcli reads, and their types."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rlcli.runs import plain


def _is_members(value: Any) -> bool:
    """Whether a value is a list of different names of folders."""
    return (
        plain.list_of(plain.is_text)(value)
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
        plain.list_of(plain.is_int)(value.get(key, [])) for key in ("seeds", "steps")
    )


INFO_FIELDS: Mapping[str, plain.Predicate] = {
    "recipe": _is_folder_name,
    "name": plain.or_none(plain.is_text),
    "tags": plain.list_of(plain.is_text),
    "changes": _is_changes,
    "frozen": plain.or_none(plain.is_mapping),
    "status": plain.is_text,
    "reason": plain.is_text,
    "seeds": plain.list_of(plain.is_int),
    "layout": plain.is_mapping,
    "command": plain.or_none(plain.is_text),
    "smoke": plain.or_none(plain.is_flag),
    "total_steps": plain.is_int,
    "created": plain.is_text,
    "ended": plain.or_none(plain.is_text),
    "imports": plain.list_of(plain.is_text),
    "trackers": plain.list_of(plain.is_text),
    "members": _is_members,
    "population": plain.is_flag,
    "init": _is_init,
    "code": plain.is_mapping,
    "resumes": plain.list_of(plain.is_mapping),
    "signature": plain.or_none(plain.is_text),
}
