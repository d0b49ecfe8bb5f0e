"""Merging: changes options of a part, and keeps those that the change does not name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

DEFAULT = "default"  # the network or optimizer of functions without their own
SHARED = "shared"  # the torso shared by all functions
INNER_PARTS: Mapping[str, tuple[str, ...]] = {"network": ("head", "memory")}


def merge_part(kind: str, base: Any, change: Any) -> Any:
    """A part with the options of `change`; other options stay as in `base`.

    A change that names another part replaces the whole part. The value of an option is
    replaced, never merged; only a part within the part is merged in the same way.
    """
    base, change = as_mapping(base), as_mapping(change)
    if not isinstance(base, Mapping) or not isinstance(change, Mapping):
        return change
    if "name" in change and change["name"] != base.get("name"):
        return change
    inner_parts = {
        key: merge_part(key, base[key], change[key])
        for key in INNER_PARTS.get(kind, ())
        if key in base and key in change
    }
    return {**base, **change, **inner_parts}


def as_mapping(part: Any) -> Any:
    """A part as a mapping: `NAME` is `{name: NAME}`; other values are unchanged."""
    return {"name": part} if isinstance(part, str) else part


def is_by_function(value: Any, is_option: Callable[[str], bool]) -> bool:
    """Whether a network or optimizer has a part for each function: `{policy: …}`.

    Otherwise it is a single part, whose keys satisfy `is_option`.
    """
    if not isinstance(value, Mapping) or "name" in value or not value:
        return False
    if DEFAULT in value or SHARED in value:
        return True
    return not any(_is_value(item) or is_option(key) for key, item in value.items())


def _is_value(value: Any) -> bool:
    """Whether this can only be the value of an option: no part, or a schedule."""
    if isinstance(value, Mapping):
        return "from" in value or "steps" in value
    return not isinstance(value, str | None)
