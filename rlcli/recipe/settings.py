"""Settings: values that replace those of a recipe, as in `--set train.steps=1_000`."""

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rlcli.errors import RlcliError, quote, shorten
from rlcli.recipe import documents
from rlcli.recipe.documents import Document, Mark, Place

LONGEST = 80  # characters of a setting in messages


class Setting(str):
    """A setting that a file contains: errors name its place instead of `--set`."""

    __slots__ = ("origin",)

    def __new__(cls, text: str, origin: str = "") -> "Setting":
        """`origin` is the prefix of errors, such as `paper.yaml:8`."""
        setting = super().__new__(cls, text)
        setting.origin = origin.removesuffix(": ")
        return setting


def apply_settings(document: Document, sets: Sequence[str]) -> Document:
    """The document with values replaced; each of `sets` is `a.b.c=value`.

    Values are YAML. To set an option of a part written as its name only, `NAME` becomes
    `{name: NAME}`; of `init: PATH`, it becomes `{from: PATH}`.
    """
    data = documents.copy_plain(document.data)
    marks = dict(document.marks)
    for setting in sets:
        dotted_key, equals, text = setting.partition("=")
        place = setting.origin if isinstance(setting, Setting) else ""
        origin = place or f"--set {quote(setting, LONGEST)[1:-1]}"
        documents.refuse_long(len(setting), origin)
        keys = dotted_key.strip().split(".")
        if not equals or not all(keys):
            hint = "for example `--set train.steps=10_000`"
            raise RlcliError(f"{origin}: expected `key=value`", hint)
        if len(keys) > documents.MAX_NESTING:
            raise RlcliError(f"{origin}: nested more than {documents.MAX_NESTING} deep")
        value = documents.parse(text, origin).data
        place = _set_value(data, keys, value, origin)
        marks = {key: mark for key, mark in marks.items() if key[: len(place)] != place}
        marks[place] = Mark(origin, is_setting=True)
        # Refuses data that several settings have made too large.
        data = documents.copy_plain(data)
    return dataclasses.replace(document, data=data, marks=marks)


def init_settings(source: str | Path | None) -> list[str]:
    """The setting with which a new run starts from a source; none without one."""
    if source is None:
        return []
    return [f"init.from={documents.format_inline(str(source))}"]


def seed_settings(
    seed: int | None,
    seeds: int | None,
    find_origin: Callable[[str], str] = lambda key: f"--{key}",
) -> list[Setting]:
    """The settings of `seed` and `seeds`, whose errors name the origin of each."""
    return [
        Setting(f"train.{key}={value}", find_origin(key))
        for key, value in {"seed": seed, "seeds": seeds}.items()
        if value is not None
    ]


def _set_value(data: Any, keys: list[str], value: Any, origin: str) -> Place:
    """Sets a value in nested data, and returns its place."""
    place = (_resolve_step(data, keys[0], "", origin),)
    for depth, key in enumerate(keys[1:], 1):
        parent = data
        parent_path = ".".join(keys[:depth])
        data = parent[place[-1]] if isinstance(parent, list) else parent.get(place[-1])
        if data is None or isinstance(data, str):
            name = "from" if place == ("init",) else "name"
            data = {} if data is None else {name: data}
        elif not isinstance(data, dict | list):
            message = f"{quote(parent_path)} is {shorten(repr(data))}"
            raise RlcliError(f"{origin}: {message}, which has no options")
        parent[place[-1]] = data
        place = (*place, _resolve_step(data, key, parent_path, origin))
    data[place[-1]] = value
    return place


def _resolve_step(data: Any, key: str, parent_path: str, origin: str) -> Any:
    """Converts a key of `--set` to the key of a mapping or the index of a list."""
    if not isinstance(data, list):
        return key
    index = int(key) if key.isdecimal() and len(key) < 10 else len(data)
    if index >= len(data):
        hint = f"the list has {len(data)} entries, numbered from 0"
        message = f"{quote(parent_path)} has no entry {quote(key)}"
        raise RlcliError(f"{origin}: {message}", hint)
    return index
