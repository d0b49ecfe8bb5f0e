"""Study ownership: which studies are the user's own, so that they need no `--trust`.

The record of a study names recipes by path, and settings, which decide the code of the
cells that have not begun. rlcli signs the record that it writes for its user, as runs
are signed (`ownership`). The claims:

- `folder`: where the study was made
- `record`: the hash of what its cells train, and of how they are chosen
- `recipes`: the hash of the recipes that it names, merged with their bases
- `code`: the hash of the user's files that recipes and settings name, with their places

All are computed again from what is there when a study is continued. Runs of a study
have signatures of their own: that of the study says nothing about them.
"""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rlcli.errors import RlcliError
from rlcli.recipe import RecipeDocument, read_recipe
from rlcli.registry import user_code
from rlcli.runs import user_files
from rlcli.runs.ownership import hash_data, read_claims, sign_claims
from rlcli.runs.signed_code import hash_file

_STUDY = "study"  # the kind of these statements
_CLAIMS = ("folder", "record", "recipes", "code")
_COUNTERS = ("trials", "confirm", "together")  # of a search; they run no code
_IMPORT_PATH = re.compile(r"([A-Za-z_][\w.]*):[A-Za-z_]")


def sign_study(folder: Path, record: Mapping[str, Any]) -> str | None:
    """The signature of a study, as JSON text; None if it needs or can have none.

    `record` is the content of its file without the signature. A study needs none if it
    imports no code and has no trackers. Raises an `RlcliError` if the user's key cannot
    be used.
    """
    try:
        recipes = _read_recipes(record)
    except RlcliError:
        return None
    texts = [*_find_texts([each.plain.data for each in recipes]), *_find_texts(record)]
    if not any("trackers" in text or _IMPORT_PATH.search(text) for text in texts):
        return None
    claims = _make_claims(folder, record, recipes)
    return None if claims is None else sign_claims(_STUDY, claims)


def is_own_study(folder: Path, record: Mapping[str, Any], signature: object) -> bool:
    """Whether this user has signed a study, and all is where and as it was."""
    claims = read_claims(_STUDY, _CLAIMS, signature)
    if claims is None:
        return False
    try:
        return claims == _make_claims(folder, record, _read_recipes(record))
    except RlcliError:  # a recipe has gone
        return False


def _make_claims(
    folder: Path, record: Mapping[str, Any], recipes: Sequence[RecipeDocument]
) -> dict[str, str] | None:
    """The claims of a study; None if others can change a file of its code."""
    files = _find_code(recipes, record)
    if files is None:
        return None
    return {
        "folder": os.path.realpath(folder),
        "record": hash_data(_without_counters(record)),
        "recipes": hash_data([each.plain.data for each in recipes]),
        "code": hash_data(files),
    }


def _read_recipes(record: Mapping[str, Any]) -> list[RecipeDocument]:
    """The recipes of cells and sections, and their bases, without importing code."""
    cells = record.get("cells")
    entries = [*record.values(), *(cells.values() if isinstance(cells, dict) else ())]
    found: dict[str, str | Mapping[str, Any]] = {}
    for entry in entries:
        if isinstance(entry, dict) and "digest" in entry:  # that of its recipe
            recipe = entry.get("recipe")
            recipe = recipe.get("data") if isinstance(recipe, dict) else recipe
            if isinstance(recipe, str | dict):
                found.setdefault(hash_data(recipe), recipe)
    recipes = [read_recipe(found[key]) for key in sorted(found)]
    for each in recipes:
        _ = each.plain  # reads the bases
    return recipes


def _without_counters(record: Mapping[str, Any]) -> dict[str, Any]:
    def clean(section: Any) -> Any:
        if not isinstance(section, Mapping):
            return section
        return {key: each for key, each in section.items() if key not in _COUNTERS}

    return {
        name: section if name == "cells" else clean(section)
        for name, section in record.items()
    }


def _find_code(
    documents: Sequence[RecipeDocument], record: Mapping[str, Any]
) -> dict[str, str] | None:
    """The SHA-256 of each file of the user's code; None if others can change one.

    Any recipe may be trained with any setting of the record.
    """
    hashes: dict[str, str] = {}
    for document in documents:
        texts = [*_find_texts(document.plain.data), *_find_texts(record)]
        modules = {name for text in texts for name in _IMPORT_PATH.findall(text)}
        folders = [] if document.path is None else [document.path.parent]
        for name, source in user_code.find_files(sorted(modules), *folders).items():
            if not user_files.is_own_module(name, source):
                return None
            hashes[str(source)] = hash_file(source)
    return hashes


def _find_texts(data: Any) -> Iterator[str]:
    if isinstance(data, str):
        yield data
    elif isinstance(data, Mapping):
        for key, each in data.items():
            yield str(key)
            yield from _find_texts(each)
    elif isinstance(data, list | tuple):
        for each in data:
            yield from _find_texts(each)
