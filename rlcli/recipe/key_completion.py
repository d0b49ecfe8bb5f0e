"""Key completion: how a shell can continue `--set key=value`. Imports no JAX.

The keys are those of the recipe on the command line: its own parts, or the defaults of
its updater, with the options in `part_index`. Options of plug-ins are not listed, only
their names.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rlcli.errors import RlcliError
from rlcli.recipe.defaults import default_head, default_part
from rlcli.recipe.documents import Document
from rlcli.recipe.extending import shipped_recipes
from rlcli.recipe.merging import DEFAULT, SHARED, as_mapping, is_by_function, merge_part
from rlcli.recipe.part_index import (
    SECTIONS,
    Field,
    format_values,
    load_index,
    part_names,
)
from rlcli.recipe.reading import read_recipe
from rlcli.recipe.settings import apply_settings

# The sections that are one part, and the lists of parts in sections.
_PARTS = ("environment", "updater", "policy", "tracer", "replay", "intrinsic_reward")
_LISTS = {
    "environment": {"wrappers": "wrapper"},
    "train": {"trackers": "tracker", "hooks": "hook"},
}
Values = list[str] | str  # to choose from; those of a kind are the names of its parts
Keys = Iterator[tuple[str, Values]]  # dotted keys that have a value, `train.log.every`


def complete_setting(text: str, recipe: str, sets: Sequence[str] = ()) -> list[str]:
    """What `text`, the beginning of `key=value`, may become.

    `recipe` is a name or a file, `sets` are the settings before this one.
    """
    keys = dict(_recipe_keys(_read(recipe, sets)))
    key, equals, value = text.partition("=")
    if not equals:
        return _complete_key(text, keys)
    values = _list_values(keys.get(key, []))
    return [f"{key}={item}" for item in values if item.startswith(value)]


def _complete_key(text: str, keys: Mapping[str, Values]) -> list[str]:
    """The keys that begin with `text`, up to the next dot.

    A single one is extended by what follows, since shells add a space to a single
    candidate.
    """
    start = text.rfind(".") + 1
    found = dict.fromkeys(
        key[:start] + key[start:].partition(".")[0]
        for key in keys
        if key.startswith(text)
    )
    candidates: list[str] = []
    for key in found:
        has_keys = any(each.startswith(f"{key}.") for each in keys)
        candidates += [f"{key}="] * (key in keys) + [f"{key}."] * has_keys
    if len(candidates) != 1:
        return candidates
    (single,) = candidates
    if single.endswith("."):
        return _complete_key(single, keys)
    values = [f"{single}{value}" for value in _list_values(keys[single[:-1]])]
    return values if len(values) > 1 else [single, *values]


def _list_values(values: Values) -> list[str]:
    if isinstance(values, str):
        return [name for name in part_names(values) if not name.endswith("/")]
    return values


def _read(recipe: str, sets: Sequence[str]) -> Mapping[str, Any]:
    """The recipe merged with its bases and settings; {} if it cannot be read."""
    is_file = Path(recipe).is_file()
    path = Path(recipe) if is_file else shipped_recipes().get(recipe)
    document = Document({})
    with contextlib.suppress(RlcliError):
        if path is not None:
            document = read_recipe(path).merged_document
    for setting in sets:
        with contextlib.suppress(RlcliError):
            document = apply_settings(document, [setting])
    return document.data


def _recipe_keys(data: Mapping[str, Any]) -> Keys:
    index = load_index()
    updater = _mapping(as_mapping(data.get("updater"))).get("name")
    defaults = index["updater"].get(str(updater), {}).get("defaults", {})
    optimizer = default_part("optimizer", defaults)
    for kind in _PARTS:
        yield from _part_keys(kind, kind, data.get(kind), default_part(kind, defaults))
    yield from _network_keys(data.get("network"), defaults)
    yield from _function_keys(
        "optimizer",
        data.get("optimizer"),
        lambda path, item, _: _part_keys(path, "optimizer", item, optimizer),
    )
    for name, field in index[SECTIONS].items():
        value = _mapping(as_mapping(data.get(name)))
        yield from _option_keys(name, field, value)
        for key, kind in _LISTS.get(name, {}).items():
            yield from _list_keys(f"{name}.{key}", kind, value.get(key))


def _part_keys(path: str, kind: str, value: Any, default: Any = None) -> Keys:
    """The keys of a part: its name, and its options."""
    merged = _mapping(as_mapping(merge_part(kind, default or {}, value or {})))
    yield path, kind
    yield f"{path}.name", kind
    for key, field in _options(kind, merged.get("name")).items():
        yield from _option_keys(f"{path}.{key}", field, merged.get(key))


def _option_keys(path: str, field: Field, value: Any) -> Keys:
    """The keys of an option: its current value is the first to choose."""
    if not isinstance(field, dict):
        current = [] if value is None else format_values([value])
        yield path, [*dict.fromkeys([*current, *field])]
        return
    inner = _mapping(value)
    for key, item in field.items():
        if key:
            yield from _option_keys(f"{path}.{key}", item, inner.get(key))
        else:  # the values of one that may also be plain
            yield path, item


def _options(kind: str, name: Any) -> Mapping[str, Field]:
    """The options of a part; without a name those of all built-in parts of its kind."""
    parts = load_index()[kind]
    if name is None:
        options = (part["options"].items() for part in parts.values())
        return dict(itertools.chain.from_iterable(options))
    adapter = "".join(str(name).partition("/")[:2])
    part = parts.get(name) or parts.get(adapter) or {"options": {}}
    return part["options"]


def _function_keys(
    kind: str, value: Any, keys_of: Callable[[str, Any, str], Keys]
) -> Keys:
    """The keys of one part, or of a part for each function or group of parameters."""
    if not is_by_function(value, kind, None):
        yield from keys_of(kind, value, DEFAULT)
        return
    for function, item in value.items():
        yield from keys_of(f"{kind}.{function}", item, function)


def _network_keys(value: Any, defaults: Mapping[str, Any]) -> Keys:
    """The keys of one network, one per function, or heads on a shared one."""

    def keys_of(path: str, item: Any, function: str) -> Keys:
        head = {"name": "scalar", **default_head(defaults, function)}
        if SHARED in _mapping(value) and function != SHARED:
            yield from _part_keys(path, "head", item, head)
            return
        own = _mapping(as_mapping(item))
        yield from _part_keys(path, "network", item, default_part("network", defaults))
        yield from _part_keys(f"{path}.head", "head", own.get("head"), head)
        yield from _part_keys(f"{path}.memory", "memory", own.get("memory"))
        yield from _list_keys(f"{path}.preprocess", "preprocess", own.get("preprocess"))

    return _function_keys("network", value, keys_of)


def _list_keys(path: str, kind: str, values: Any) -> Keys:
    """The keys of a list of parts, which are numbers from 0."""
    yield path, []
    for index, value in enumerate(values if isinstance(values, list) else ()):
        yield from _part_keys(f"{path}.{index}", kind, value)


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
