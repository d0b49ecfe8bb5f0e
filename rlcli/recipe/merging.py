"""Merging: changes options of parts and sections, and keeps all others.

The value of an option is replaced, never merged: a schedule is one value. Parts within
a part and sections within a section are merged like those around them.
"""

import contextlib
from collections.abc import Mapping
from typing import Any, TypeGuard

from rlcli import registry
from rlcli.errors import RlcliError
from rlcli.recipe.part_index import built_in_options, load_index
from rlcli.registry import KINDS

DEFAULT = "default"  # the network or optimizer of functions without their own
SHARED = "shared"  # the torso shared by all functions
BY_FUNCTION = ("network", "optimizer")  # sections that may have a part per function
# The parts within a part, and the sections within a section.
INNER: Mapping[str, tuple[str, ...]] = {
    "network": ("head", "memory"),
    "train": ("log", "evaluate", "checkpoint", "stop"),
}
NETWORK_KEYS = (*INNER["network"], "preprocess")  # of every network
_EMPTY = {"wrappers": [], "preprocess": [], "each": {}}  # else null


def merge_part(kind: str, base: Any, change: Any) -> Any:
    """A part with the options of `change`; other options stay as in `base`.

    A change that names another part replaces the whole part.
    """
    own, new = as_mapping(base), as_mapping(change)
    if not isinstance(own, Mapping) or not isinstance(new, Mapping):
        return change
    if "name" in new and new["name"] != own.get("name"):
        return change
    return _merge_options(kind, own, new)


def merge_recipe(base: Mapping[str, Any], change: Mapping[str, Any]) -> dict[str, Any]:
    """The data of a recipe with the changes of another, section by section.

    If only one of them has a part for each function, the change replaces the section.
    """
    merged = {
        key: _merge_section(key, base[key], value) if key in base else value
        for key, value in change.items()
    }
    return {**base, **merged}


def find_changes(base: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """The sections and options in which a resolved recipe differs from `base`."""
    changes = {
        key: _find_change(key, base.get(key), value)
        for key, value in other.items()
        if key not in base or value != base[key]
    }
    return changes | {key: None for key in base if key not in other}


def as_mapping(part: Any) -> Any:
    """A part as a mapping: `NAME` is `{name: NAME}`; other values are unchanged."""
    return {"name": part} if isinstance(part, str) else part


def is_by_function(value: Any, kind: str, part: Any) -> TypeGuard[Mapping[str, Any]]:
    """Whether a network or optimizer has a part for each function: `{policy: …}`.

    Otherwise it is a single part, with options of `part` or of a built-in one.
    """
    if not isinstance(value, Mapping) or "name" in value or not value:
        return False
    if DEFAULT in value or SHARED in value:
        return True
    return not any(
        _is_value(item) or is_option(kind, key, part) for key, item in value.items()
    )


def is_option(kind: str, key: str, part: Any = None) -> bool:
    """Whether a key is an option of a built-in part of a kind, or of `part`."""
    if key in built_in_options(kind) or (kind == "network" and key in NETWORK_KEYS):
        return True
    data = as_mapping(part)
    name = data.get("name") if isinstance(data, Mapping) else None
    # Import paths may not be trusted.
    if not isinstance(name, str) or ":" in name or name in load_index()[kind]:
        return False
    with contextlib.suppress(RlcliError):  # reading the part reports the error
        return key in registry.options(registry.find(kind, name).factory)
    return False


def _is_value(value: Any) -> bool:
    """Whether this can only be the value of an option: no part, or a schedule."""
    if isinstance(value, Mapping):
        return "from" in value or "steps" in value
    return not isinstance(value, str | None)


def _merge_section(kind: str, base: Any, change: Any) -> Any:
    if kind in BY_FUNCTION and is_by_function(change, kind, base):
        is_mapping = isinstance(base, Mapping)
        return _merge_functions(kind, base, change) if is_mapping else change
    if kind in KINDS:
        return merge_part(kind, base, change)
    if isinstance(base, Mapping) and isinstance(change, Mapping):
        return _merge_options(kind, base, change)
    return change


def _merge_functions(
    kind: str, base: Mapping[str, Any], change: Mapping[str, Any]
) -> Mapping[str, Any]:
    if SHARED in change and SHARED not in base:  # heads are no networks
        return change
    merged = {
        key: merge_part(kind, base[key], part) if key in base else part
        for key, part in change.items()
    }
    return {**base, **merged}


def _merge_options(
    kind: str, base: Mapping[str, Any], change: Mapping[str, Any]
) -> dict[str, Any]:
    inner = {
        key: merge_part(key, base[key], change[key])
        for key in INNER.get(kind, ())
        if key in base and key in change
    }
    varied = _varied_options(change)
    kept = {key: value for key, value in base.items() if key not in varied}
    if not varied and not _varied_options(base).isdisjoint(change):
        each = base["each"].items()
        kept["each"] = {key: values for key, values in each if key not in change}
    return {**kept, **change, **inner}


def _varied_options(part: Mapping[str, Any]) -> set[str]:
    """The options of an environment that `each` sets instead of the option itself."""
    varied = part.get("each")
    return set(varied) if isinstance(varied, Mapping) else set()


def _find_change(kind: str, base: Any, other: Any) -> Any:
    """What to merge into a resolved part or section to get another."""
    if not isinstance(base, Mapping) or not isinstance(other, Mapping):
        return other
    if kind in BY_FUNCTION and "name" not in other:
        return _find_function_changes(kind, base, other)
    if base.get("name") != other.get("name"):
        return other
    inner = INNER.get(kind, ())
    changes = {
        key: _find_change(key, base.get(key), value) if key in inner else value
        for key, value in other.items()
        if key not in base or value != base[key]
    }
    present = other.keys() | _varied_options(other)
    return changes | {key: _EMPTY.get(key) for key in base if key not in present}


def _find_function_changes(
    kind: str, base: Mapping[str, Any], other: Mapping[str, Any]
) -> Mapping[str, Any]:
    """The changes of each function's part, from its part in the base or the default."""
    base = {DEFAULT: base} if "name" in base else base
    if SHARED in other and SHARED not in base:
        return other
    return {
        key: _find_change(kind, base.get(key, base.get(DEFAULT)), part)
        for key, part in other.items()
        if key not in base or part != base[key]
    }
