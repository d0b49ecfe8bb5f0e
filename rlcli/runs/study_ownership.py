"""Study ownership: which studies are the user's own, so that they need no `--trust`.

The record of a study names recipes by path, and settings, which decide the code of the
cells that have not begun. rlcli signs the record that it writes for its user, as runs
are signed (`ownership`). The claims:

- `folder`: where the study was made; elsewhere, as for a run, it has no trackers
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
from rlcli.registry.paths import enter
from rlcli.runs import ownership
from rlcli.runs.moved_recipes import find_recipe
from rlcli.runs.ownership import hash_data, read_claims, sign_claims
from rlcli.runs.signed_code import hash_file

_STUDY = "study"  # the kind of these statements
_CLAIMS = ("folder", "record", "recipes", "code")
# Numbers of a sweep that may change and run no code, and their section.
_SEARCH, _COUNTERS = "search", ("trials", "confirm", "together")
_ESCAPE = "\\"
_IMPORT_PATH = re.compile(r"([^\s,:=/|<>()\[\]{}\"']+):(?=[^\s/])")


def sign_study(
    folder: Path, record: Mapping[str, Any], read: Sequence[RecipeDocument] = ()
) -> str | None:
    """The signature of a study, as JSON text; None if it needs or can have none.

    `record` is the content of its file without the signature, and `read` are recipes
    that its cells have, which are not read again. A study needs none if it
    imports no code and has no trackers. Raises an `RlcliError` if the user's key cannot
    be used.
    """
    made = _make_claims(folder, record, read)
    return None if made is None else sign_claims(_STUDY, made[0])


def is_own_study(folder: Path, record: Mapping[str, Any], signature: object) -> bool:
    """Whether this user has signed a study, and what it names is as it was.

    A study that was moved, with its recipes or without them, does the same as before if
    it has no trackers.
    """
    claims = read_claims(_STUDY, _CLAIMS, signature)
    if claims is None or claims["record"] != _claim_record(folder, record)["record"]:
        return False  # before files are opened that a record of others may name
    made = _make_claims(folder, record)
    if made is None:
        return False
    found, has_trackers = made
    if has_trackers and found["folder"] != claims["folder"]:
        return False
    return all(claims[name] == found[name] for name in ("recipes", "code"))


def _make_claims(
    folder: Path, record: Mapping[str, Any], read: Sequence[RecipeDocument] = ()
) -> tuple[dict[str, str], bool] | None:
    """The claims of a study, and whether it has trackers; imports nothing it names.

    None if it names no code and no trackers, if a recipe has gone, or if others can
    change a file of its code.
    """
    try:
        documents, recipes = _read_recipes(folder, record, read)
    except RlcliError:
        return None
    texts = {*_find_texts([record, recipes])}  # any may be a setting of any recipe
    modules = sorted({name for text in texts for name in _IMPORT_PATH.findall(text)})
    has_trackers = any("trackers" in text for text in texts)
    if not modules and not has_trackers:
        return None
    if any(_ESCAPE in text for text in texts):  # of YAML, which may hide a name
        return None
    hashes: dict[str, str] = {}
    for document in documents:
        folders = [] if document.path is None else [document.path.parent]
        for name, source in user_code.find_files(modules, *folders).items():
            digest = hash_file(source)
            if not digest or not ownership.is_own_module(name, source):
                return None
            hashes[str(source)] = digest
    hashed = {"recipes": hash_data(recipes), "code": hash_data(hashes)}
    return {**_claim_record(folder, record), **hashed}, has_trackers


def _read_recipes(
    folder: Path, record: Mapping[str, Any], read: Sequence[RecipeDocument] = ()
) -> tuple[list[RecipeDocument], list[Mapping[str, Any]]]:
    """The recipes that a record names, and their data merged with their bases."""
    known = {str(enter(each.path)): each for each in read if each.path is not None}
    documents = [
        (isinstance(each, str) and known.get(each))
        or read_recipe(find_recipe(folder, each))
        for each in _find_recipes(record)
    ]
    return documents, [each.merged_document.data for each in documents]


def _claim_record(folder: Path, record: Mapping[str, Any]) -> dict[str, str]:
    decisive = _without_counters(record)
    return {"folder": os.path.realpath(folder), "record": hash_data(decisive)}


def _find_texts(value: Any) -> Iterator[str]:
    """The texts in plain data, also those of keys."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        yield from _find_texts([*value, *value.values()])
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _find_texts(each)


def _find_recipes(record: Mapping[str, Any]) -> list[str | Mapping[str, Any]]:
    """The recipes of cells and sections: paths, names, or data."""
    cells = record.get("cells")
    entries = [*record.values(), *(cells.values() if isinstance(cells, dict) else ())]
    found: dict[str, str | Mapping[str, Any]] = {}
    for entry in entries:
        if isinstance(entry, dict) and "digest" in entry:  # that of its recipe
            recipe = entry.get("recipe")
            recipe = recipe.get("data") if isinstance(recipe, dict) else recipe
            if isinstance(recipe, str | dict):
                found[hash_data(recipe)] = recipe
    return [found[key] for key in sorted(found)]


def _without_counters(record: Mapping[str, Any]) -> dict[str, Any]:
    search = record.get(_SEARCH)
    if not isinstance(search, dict):
        return {**record}
    decisive = {key: each for key, each in search.items() if key not in _COUNTERS}
    return {**record, _SEARCH: decisive}
