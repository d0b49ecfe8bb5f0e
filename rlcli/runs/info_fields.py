"""Info fields: the fields of `run.json` that rlcli reads, and their types."""

from collections.abc import Callable, Mapping
from pathlib import Path
from types import NoneType
from typing import Any


def _is_list_of(kind: type) -> Callable[[Any], bool]:
    return lambda value: (
        isinstance(value, list) and all(type(item) is kind for item in value)
    )


def _is_members(value: Any) -> bool:
    """Whether a value is a list of different names of folders."""
    return (
        _is_list_of(str)(value)
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
        _is_list_of(int)(value.get(key, [])) for key in ("seeds", "steps")
    )


def _is(*kinds: type) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, kinds)


INFO_FIELDS: Mapping[str, Callable[[Any], bool]] = {
    "recipe": _is_folder_name,
    "name": _is(str, NoneType),
    "tags": _is_list_of(str),
    "changes": _is_changes,
    "frozen": _is(dict, NoneType),
    "status": _is(str),
    "reason": _is(str),
    "seeds": _is_list_of(int),
    "layout": _is(dict),
    "command": _is(str, NoneType),
    "smoke": _is(bool, NoneType),
    "total_steps": _is(int),
    "created": _is(str),
    "ended": _is(str, NoneType),
    "imports": _is_list_of(str),
    "trackers": _is_list_of(str),
    "members": _is_members,
    "population": _is(bool),
    "init": _is_init,
    "code": _is(dict),
    "resumes": _is_list_of(dict),
    "signature": _is(str, NoneType),
}
