"""Settings: values that replace those of a recipe, as in `--set train.steps=1_000`.

Also the section `vary` of a recipe, for runs with different options: a mapping of
options to lists of values is a grid, a list of mappings are the combinations.
"""

import dataclasses
import itertools
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rlcli.errors import RlcliError, quote, shorten
from rlcli.recipe import documents
from rlcli.recipe.annotations import quote_value
from rlcli.recipe.documents import Document, Place

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
    lines, origins = dict(document.lines), dict(document.origins)
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
        for records in (lines, origins):
            for inner in [key for key in records if key[: len(place)] == place]:
                del records[inner]
        origins[place] = origin
        data = documents.copy_plain(
            data
        )  # refuses data that several settings have made too large
    return dataclasses.replace(document, data=data, lines=lines, origins=origins)


def init_settings(source: str | Path | None) -> list[str]:
    """The setting with which a new run starts from a source; none without one."""
    return (
        [] if source is None else [f"init.from={documents.format_inline(str(source))}"]
    )


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
            message = (
                f"{quote(parent_path)} is {shorten(repr(data))}, which has no options"
            )
            raise RlcliError(f"{origin}: {message}")
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


KEY = "vary"
MOST_COMBINATIONS = 10_000  # of a recipe, of `--vary`, and cells of a study
NONE = f"{KEY}=null"  # the setting for a single run of a recipe with the section
_EXAMPLE = "for example `vary: {optimizer.learning_rate: [1e-4, 3e-4]}`"


def recipe_combinations(document: Document) -> list[tuple[str, ...]]:
    """The settings `KEY=VALUE` of each combination in a recipe; `[()]` without any."""
    value = document.data.get(KEY)
    if not value:
        return [()]
    if isinstance(value, Mapping):
        for key, values in value.items():
            if not isinstance(values, list) or not values:
                raise _error(
                    document, [key], f"expected a list, got {quote_value(values)}"
                )
        check_count(math.prod(map(len, value.values())), document.where((KEY,)))
        combinations = [
            dict(zip(value, each, strict=True))
            for each in itertools.product(*value.values())
        ]
    elif isinstance(value, list) and all(
        isinstance(each, Mapping) and each for each in value
    ):
        check_count(len(value), document.where((KEY,)))
        combinations = value
    else:
        message = f"expected a mapping of lists, got {quote_value(value)}"
        raise _error(document, [], message)
    is_list = isinstance(value, list)
    settings: list[tuple[str, ...]] = []
    for index, combination in enumerate(combinations):
        place = (KEY, index) if is_list else (KEY,)
        settings.append(
            tuple(
                Setting(f"{key}={_format(each)}", document.where((*place, key)))
                for key, each in combination.items()
            )
        )
    if repeated := find_repeated(settings):
        text = ", ".join(repeated)
        raise _error(document, [], f"{quote(text)} is listed twice")
    return settings


def check_count(count: int, place: str = "", what: str = "combinations") -> None:
    """Refuses more combinations of values than there may be, before they are made."""
    if count > MOST_COMBINATIONS:
        raise RlcliError(
            f"{place}more than {MOST_COMBINATIONS:,} {what}",
            "vary fewer options, or search their values with `rlcli sweep`",
        )


def find_repeated(settings: Sequence[tuple[str, ...]]) -> tuple[str, ...] | None:
    """The first settings that are listed twice."""
    seen: set[tuple[str, ...]] = set()
    return next((each for each in settings if each in seen or seen.add(each)), None)


def _format(value: Any) -> str:
    """A value as the YAML text of a setting, which `--vary` can contain as well.

    Texts are quoted, unless they are words that YAML reads as themselves.
    """
    if _is_word(value) and documents.parse(value, "").data == value:
        return value
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError):  # for example `.inf`
        return documents.format_inline(value)


def _is_word(value: Any) -> bool:
    return isinstance(value, str) and value.replace("_", "").isalpha()


def _error(document: Document, keys: Sequence[str], message: str) -> RlcliError:
    place = (KEY, *keys)
    name = ".".join(place)
    return RlcliError(f"{document.where(place)}{quote(name)}: {message}", _EXAMPLE)
