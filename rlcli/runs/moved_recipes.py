"""Moved recipes: where the recipes of a study are, if they were moved with it."""

import functools
import os
from pathlib import Path
from typing import Any

from rlcli.registry.paths import enter
from rlcli.runs.files import read_json

FILE_NAME = "study.json"
FOLDER = "folder"  # its field that says where the study was when it was written
REMEDY = "restore it; without it the runs below can be used one by one"


def find_recipe(study: Path, recipe: Any) -> Any:
    """The recipe of a record as it is; where it is now, if it was moved with the study.

    Looks for files that the record names, so it is for records whose cells begin or are
    signed: those of others may name places that must not be looked at.
    """
    if not isinstance(recipe, str) or "/" not in recipe or os.path.isfile(recipe):
        return recipe
    file = study / FILE_NAME
    modified = file.stat().st_mtime_ns if file.is_file() else 0
    before = modified and _read_origin(file, modified)
    if not isinstance(before, str):
        return recipe
    moved = Path(absolute(study)) / os.path.relpath(recipe, before)
    return os.path.normpath(moved) if moved.is_file() else recipe


@functools.lru_cache(maxsize=1)
def _read_origin(file: Path, modified: int) -> Any:
    """The folder of a record when it was written; `modified` is the time of its file.

    Kept, since each of many cells asks for it.
    """
    return read_json(file, REMEDY).get(FOLDER)


def absolute(folder: Path) -> str:
    """The path of a folder, normalized; links stay links."""
    return os.path.normpath(enter(folder))
