"""Varying: the section `vary` of a recipe, for runs with different options.

A mapping of options to lists of values is a grid. A list of mappings are the
combinations themselves.
"""

import itertools
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from rlcli.errors import RlcliError, quote
from rlcli.recipe import documents
from rlcli.recipe.annotations import quote_value
from rlcli.recipe.documents import Document
from rlcli.recipe.settings import Setting

KEY = "vary"
# Of a recipe, of `--vary` and of a grid; also cells of a study, and trials of a sweep.
MOST_COMBINATIONS = 10_000
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
    settings: list[tuple[str, ...]] = []
    for index, combination in enumerate(combinations):
        place = (KEY, index) if isinstance(value, list) else (KEY,)
        texts = (
            Setting(f"{key}={_format(each)}", document.where((*place, key)))
            for key, each in combination.items()
        )
        settings.append(tuple(texts))
    if repeated := find_repeated(settings):
        raise _error(document, [], f"{quote(', '.join(repeated))} is listed twice")
    return settings


def check_count(
    count: int,
    place: str = "",
    what: str = "combinations",
    hint: str = "vary fewer options, or search their values with `rlcli sweep`",
) -> None:
    """Refuses more combinations of values than there may be, before they are made."""
    if count > MOST_COMBINATIONS:
        raise RlcliError(f"{place}more than {MOST_COMBINATIONS:,} {what}", hint)


def find_repeated(settings: Sequence[tuple[str, ...]]) -> tuple[str, ...] | None:
    """The first settings that are listed twice."""
    seen: set[tuple[str, ...]] = set()
    return next((each for each in settings if each in seen or seen.add(each)), None)


def _format(value: Any) -> str:
    """A value as the YAML text of a setting, which `--vary` can contain as well.

    Texts are quoted, unless they are words that YAML reads as themselves.
    """
    is_word = isinstance(value, str) and value.replace("_", "").isalpha()
    if is_word and documents.parse(value, "").data == value:
        return value
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError):  # for example `.inf`
        return documents.format_inline(value)


def _error(document: Document, keys: Sequence[str], message: str) -> RlcliError:
    place = (KEY, *keys)
    name = ".".join(place)
    return RlcliError(f"{document.where(place)}{quote(name)}: {message}", _EXAMPLE)
