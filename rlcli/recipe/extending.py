"""Extending: recipes that build on others, `extends: dqn_cartpole`.

A base is only read as YAML. Each value keeps the file and line where it was written.
"""

import dataclasses
import functools
import itertools
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from rlcli.errors import RlcliError, quote, suggest_similar
from rlcli.recipe import documents
from rlcli.recipe.annotations import quote_value
from rlcli.recipe.documents import Document, Mark, Place
from rlcli.recipe.merging import (
    BY_FUNCTION,
    DEFAULT,
    SHARED,
    as_mapping,
    is_by_function,
    merge_recipe,
)
from rlcli.replays.datasets.names import shipped_folder

KEY = "extends"
_MAX_FILES = 50  # of all bases of a recipe
_HINT = "write the name of a built-in recipe, or a path relative to this file"


@functools.cache
def shipped_recipes() -> Mapping[str, Path]:
    """The recipes that come with rlcli, by name."""
    return {path.stem: path for path in sorted(shipped_folder().glob("*.yaml"))}


class Extender:
    """Merges recipes with their bases; reads each base once."""

    def __init__(self) -> None:
        self._bases: dict[Path, Document] = {}

    def complete(self, document: Document, files: tuple[Path, ...] = ()) -> Document:
        """The document merged with its bases; without bases the document itself.

        `files` extend each other in this order, and the last extends the document.
        """
        if KEY not in document.data:
            return document
        if document.source:
            files = (*files, Path(document.source).resolve())
        own_data = {key: value for key, value in document.data.items() if key != KEY}
        own = dataclasses.replace(document, data=own_data)
        bases = [
            self._read_base(document, place, name, files)
            for place, name in _base_names(document)
        ]
        if not bases:
            return own
        merged = bases[0]
        for change in (*bases[1:], own):
            merged = merge_documents(merged, change)
        return dataclasses.replace(merged, text=_complete_text(document, merged.data))

    def merge_bases(self, document: Document) -> Document | None:
        """The bases of a document, merged without it; None if there are none."""
        bases = dataclasses.replace(document, data={KEY: document.data.get(KEY)})
        return self.complete(bases) if any(_base_names(document)) else None

    def _read_base(
        self, document: Document, place: Place, name: str, files: tuple[Path, ...]
    ) -> Document:
        path = self._find_base(document, place, name)
        file = path.resolve()
        if file in files:
            chain = [*files[files.index(file) :], file]
            names = " → ".join(quote(each.name) for each in chain)
            message = f"{document.where(place)}recipes extend each other: {names}"
            raise RlcliError(message, f"remove `{KEY}` from one of them")
        if file not in self._bases:
            if len(self._bases) + len(files) > _MAX_FILES:
                message = f"{document.where(place)}more than {_MAX_FILES} base recipes"
                raise RlcliError(message, f"remove names from `{KEY}`")
            base = documents.load_document(path)
            self._bases[file] = self.complete(base, files)
        return self._bases[file]

    def _find_base(self, document: Document, place: Place, name: str) -> Path:
        """The file of a base: relative to that of the document, or built in."""
        path = Path(document.source).parent / name
        if os.path.exists(path):
            return path
        if name in shipped_recipes():
            return shipped_recipes()[name]
        hint = suggest_similar(name, shipped_recipes())
        if os.path.exists(f"{path}.yaml"):
            hint = f"did you mean `{name}.yaml`?"
        message = f"{document.where(place)}there is no recipe {quote(name)} to extend"
        raise RlcliError(message, hint or _HINT)


def merge_documents(base: Document, change: Document) -> Document:
    """The document `base` with the changes of another, and the marks of both."""
    for kind in BY_FUNCTION:
        base, change = _align(kind, base, change)
    data = merge_recipe(base.data, change.data)
    changed = {(), *_places(change.data)}
    marks: dict[Place, Mark] = {}
    for place in ((), *_places(data)):
        known = (change if place in changed else base).marks
        origin = place
        if place not in known and place[-1:] == ("name",):
            origin = place[:-1]  # of a part that is written as its name only
        if origin in known:
            marks[place] = known[origin]
    return dataclasses.replace(change, data=data, marks=marks)


def _base_names(document: Document) -> Iterator[tuple[Place, str]]:
    """The names of the bases, each with its place in the document."""
    value = document.data.get(KEY)
    names = [value] if isinstance(value, str) else value
    if names is None:
        return
    if not isinstance(names, list):
        message = f"`{KEY}`: expected a name or a list of names, got"
        raise RlcliError(
            f"{document.where((KEY,))}{message} {quote_value(names)}", _HINT
        )
    for index, name in enumerate(names):
        place = (KEY,) if isinstance(value, str) else (KEY, index)
        if not isinstance(name, str) or not name:
            message = f"`{KEY}`: expected a name, got {quote_value(name)}"
            raise RlcliError(f"{document.where(place)}{message}", _HINT)
        yield place, name


def _align(kind: str, base: Document, change: Document) -> tuple[Document, Document]:
    """Gives both documents parts by function, if one of them has parts by function.

    A single part of the base becomes the default of all functions. Options that the
    change sets without a function change the part of each function of the base.
    """
    own, new = as_mapping(base.data.get(kind)), as_mapping(change.data.get(kind))
    if not isinstance(own, Mapping) or not isinstance(new, Mapping):
        return base, change
    has_own, has_new = (is_by_function(each, kind, own) for each in (own, new))
    if has_new and not has_own and SHARED not in new:
        return _nest(base, kind, [DEFAULT]), change
    if has_own and not has_new and "name" not in new:
        return base, _nest(change, kind, [SHARED] if SHARED in own else own)
    return base, change


def _nest(document: Document, kind: str, functions: Iterable[str]) -> Document:
    """The document with the part of a section as that of each of some functions."""
    functions = list(functions)
    nested = {
        (kind, function, *place[1:]): mark
        for place, mark in document.marks.items()
        if place[:1] == (kind,)
        for function in functions
    }
    data = {**document.data, kind: dict.fromkeys(functions, document.data[kind])}
    return dataclasses.replace(document, data=data, marks={**document.marks, **nested})


def _places(value: Any, place: Place = ()) -> Iterator[Place]:
    """The places of all values within a value."""
    items: Iterable[tuple[Any, Any]] = ()
    if isinstance(value, Mapping):
        items = value.items()
    elif isinstance(value, list):
        items = enumerate(value)
    for key, item in items:
        yield (*place, key)
        yield from _places(item, (*place, key))


def _complete_text(document: Document, data: Mapping[str, Any]) -> str:
    """The YAML of a merged recipe, with the first comments of the document."""
    lines = document.text.splitlines()
    comments = [*itertools.takewhile(lambda line: line.startswith("#"), lines)]
    names = ", ".join(name for _, name in _base_names(document))
    comments.append(f"# Complete, with all options of {quote(names)[1:-1]}.")
    return "\n".join(comments) + "\n" + documents.dump_yaml(data)
