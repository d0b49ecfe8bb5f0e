"""Key completion: how a shell can continue `--set key=value`. Imports no JAX.

The keys are those of the recipe on the command line: its own parts, or the defaults of
its updater, with the options in `part_index`. Options of plug-ins are not listed, only
their names.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

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


class Key(NamedTuple):
    """A key of a recipe: values to choose from, and the keys within its value."""

    values: Sequence[str] = ()
    children: Mapping[str, Key] = {}
    kind: str = ""  # of the part that is its value
    is_section: bool = False  # has no value to choose, only keys within it


def complete_setting(text: str, recipe: str, sets: Sequence[str] = ()) -> list[str]:
    """What `text`, the beginning of `key=value`, may become.

    `recipe` is a name or a file, `sets` are the settings before this one.
    """
    root = _recipe_key(_read(recipe, sets))
    dotted_key, equals, value = text.partition("=")
    parents = dotted_key.split(".")
    if equals:
        values = _values(_find(root, parents))
        return [f"{dotted_key}={item}" for item in values if item.startswith(value)]
    prefix = parents.pop()
    path, key = "".join(f"{parent}." for parent in parents), _find(root, parents)
    return _extend(path, key, lambda name: name.startswith(prefix))


def _extend(
    path: str, key: Key, is_match: Callable[[str], bool] = lambda name: True
) -> list[str]:
    """The keys within a key.

    A single one is extended by what follows, since shells add a space to a single
    candidate.
    """
    children = {name: child for name, child in key.children.items() if is_match(name)}
    candidates = [
        f"{path}{name}{sign}"
        for name, child in children.items()
        for sign in "=" * (not child.is_section) + "." * bool(child.children)
    ]
    if len(candidates) != 1:
        return candidates
    ((name, child),) = children.items()
    if child.children:
        return _extend(f"{path}{name}.", child)
    values = [f"{path}{name}={value}" for value in _values(child)]
    return values if len(values) > 1 else [*candidates, *values]


def _find(root: Key, names: Iterable[str]) -> Key:
    """The key at the end of a path; one without values if there is none."""
    key = root
    for name in names:
        key = key.children.get(name, Key())
    return key


def _values(key: Key) -> Sequence[str]:
    names = part_names(key.kind) if key.kind else []
    return key.values or [name for name in names if not name.endswith("/")]


def _read(recipe: str, sets: Sequence[str]) -> Mapping[str, Any]:
    """The recipe merged with its bases and settings; {} if it cannot be read."""
    is_file = Path(recipe).is_file()
    path = Path(recipe) if is_file else shipped_recipes().get(recipe)
    document = Document({})
    with contextlib.suppress(RlcliError):
        if path is not None:
            document = read_recipe(path).merged
    for setting in sets:
        with contextlib.suppress(RlcliError):
            document = apply_settings(document, [setting])
    return document.data


def _recipe_key(data: Mapping[str, Any]) -> Key:
    index = load_index()
    sections = {
        name: _option_key(field, data.get(name))
        for name, field in index[SECTIONS].items()
    }
    for name, kinds in _LISTS.items():
        value = _mapping(as_mapping(data.get(name)))
        lists = {key: _part_list(kind, value.get(key)) for key, kind in kinds.items()}
        children = {**sections[name].children, **lists}
        sections[name] = sections[name]._replace(children=children)
    common = {"environment": sections.pop("environment").children}
    updater = _mapping(as_mapping(data.get("updater"))).get("name")
    defaults = index["updater"].get(str(updater), {}).get("defaults", {})
    parts = {
        kind: _part_key(
            kind, data.get(kind), default_part(kind, defaults), common.get(kind, {})
        )
        for kind in _PARTS
    }
    optimizer = default_part("optimizer", defaults)
    by_function = {
        "network": _network_key(data.get("network"), defaults),
        "optimizer": _by_function_key(
            "optimizer",
            data.get("optimizer"),
            lambda item, _: _part_key("optimizer", item, optimizer),
        ),
    }
    return Key(children={**parts, **by_function, **sections})


def _part_key(
    kind: str, value: Any, default: Any = None, common: Mapping[str, Key] = {}
) -> Key:
    """The key of a part: its name, or its options; `common` are keys of all parts."""
    merged = _mapping(as_mapping(merge_part(kind, default or {}, value or {})))
    name = merged.get("name")
    options = {
        key: _option_key(field, merged.get(key))
        for key, field in _options(kind, name).items()
    }
    return Key(children={"name": Key(kind=kind), **options, **common}, kind=kind)


def _option_key(field: Field, value: Any) -> Key:
    """The key of an option: its current value first, then others."""
    if isinstance(field, dict):
        inner = _mapping(value)
        keys = {key: _option_key(item, inner.get(key)) for key, item in field.items()}
        plain = keys.pop("", None)  # the values of one that may also be plain
        return Key(field.get("", ()), keys, is_section=plain is None)
    current = [] if value is None else format_values([value])
    return Key([*dict.fromkeys([*current, *field])])


def _options(kind: str, name: Any) -> Mapping[str, Field]:
    """The options of a part; without a name those of all built-in parts of its kind."""
    parts = load_index()[kind]
    if name is None:
        options = (part["options"].items() for part in parts.values())
        return dict(itertools.chain.from_iterable(options))
    adapter = "".join(str(name).partition("/")[:2])
    part = parts.get(name) or parts.get(adapter) or {"options": {}}
    return part["options"]


def _by_function_key(kind: str, value: Any, key_of: Callable[[Any, str], Key]) -> Key:
    """The key of one part, or of a part for each function or group of parameters."""
    if not is_by_function(value, kind, None):
        return key_of(value, DEFAULT)
    keys = {function: key_of(item, function) for function, item in value.items()}
    return Key(children=keys, is_section=True)


def _network_key(value: Any, defaults: Mapping[str, Any]) -> Key:
    """The key `network`: one network, one per function, or heads on a shared one."""

    def key_of(item: Any, function: str) -> Key:
        head = default_head(defaults, function)
        has_shared = isinstance(value, Mapping) and SHARED in value
        if has_shared and function != SHARED:
            return _head_key(item, head)
        return _single_network_key(item, default_part("network", defaults), head)

    return _by_function_key("network", value, key_of)


def _single_network_key(value: Any, default: Any, default_head: Any) -> Key:
    own = _mapping(as_mapping(value))
    common = {
        "head": _head_key(own.get("head"), default_head),
        "memory": _part_key("memory", own.get("memory")),
        "preprocess": _part_list("preprocess", own.get("preprocess")),
    }
    return _part_key("network", value, default, common)


def _head_key(value: Any, default: Any) -> Key:
    return _part_key("head", value, {"name": "scalar", **(default or {})})


def _part_list(kind: str, values: Any) -> Key:
    """The key of a list of parts, whose keys are numbers from 0."""
    values = values if isinstance(values, list) else []
    return Key(children={str(i): _part_key(kind, v) for i, v in enumerate(values)})


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
