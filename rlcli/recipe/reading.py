"""Reading: a recipe as it is written, read once, before its parts are known.

Threads, plans, checks and the loader take one `RecipeDocument`, so that a recipe which
changes while a command runs cannot be two recipes. Needs no JAX.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rlcli.errors import RlcliError
from rlcli.recipe import documents
from rlcli.recipe.documents import Document
from rlcli.recipe.extending import Extender
from rlcli.recipe.finding import find_recipe
from rlcli.recipe.settings import apply_settings
from rlcli.recipe.varying import KEY as VARY
from rlcli.recipe.varying import NONE, recipe_combinations


@dataclasses.dataclass(frozen=True, eq=False)
class RecipeDocument:
    """A recipe as it was read, the settings for it, and the recipes that it extends."""

    written: Document
    name: str = "recipe"
    sets: tuple[str, ...] = ()  # `a.b=value`, which replace its options
    path: Path | None = None  # of its file; None for data
    is_stored: bool = False  # in a run or a checkpoint: it may not extend others
    # Reads each base once, whoever asks for it.
    extender: Extender = dataclasses.field(default_factory=Extender, repr=False)

    def with_settings(self, *sets: str) -> RecipeDocument:
        """The recipe with settings that come after those that it has."""
        return dataclasses.replace(self, sets=(*self.sets, *sets))

    @functools.cached_property
    def merged_document(self) -> Document:
        """The data merged with its bases, without settings."""
        return self.written if self.is_stored else self.extender.complete(self.written)

    def merge_bases(self) -> Document | None:
        """The data of its bases, merged without its own; None if there are none."""
        return self.extender.merge_bases(self.written)

    @property
    def combinations(self) -> list[tuple[str, ...]]:
        """The settings of each run that it stands for; `[()]` if it is a single one."""
        own = [text for text in self.sets if text.startswith(VARY)]
        return recipe_combinations(apply_settings(self.merged_document, own))

    def refuse_combinations(self, hint: str) -> None:
        """Refuses a recipe that stands for several runs; `hint`: what trains them."""
        if self.combinations != [()]:
            message = f"recipe `{self.name}` has a section `vary`"
            hint = f"{hint}; the setting `{NONE}` makes it a single run"
            raise RlcliError(f"{message}, so it defines several runs", hint)


# A file, the name of a built-in recipe, the data of a recipe, or what was read of one.
AnyRecipe = str | Path | Mapping[str, Any] | RecipeDocument


def read_recipe(
    recipe: AnyRecipe, sets: Sequence[str] = (), *, is_stored: bool = False
) -> RecipeDocument:
    """Reads a recipe, unless it has been read; `sets` come after those that it has."""
    if isinstance(recipe, RecipeDocument):
        return recipe.with_settings(*sets)
    sets = tuple(sets)
    if isinstance(recipe, Mapping):
        written = documents.from_mapping(recipe)
        return RecipeDocument(written, sets=sets, is_stored=is_stored)
    path = find_recipe(recipe)
    written = documents.load_document(path)
    # It also names the folder of the runs.
    name = "recipe" if path.stem in ("", ".", "..") else path.stem
    return RecipeDocument(written, name, sets, path)


def read_without_parts(recipe: AnyRecipe, sets: Sequence[str] = ()) -> Document:
    """The data of a recipe, merged with its bases and with settings, without parts."""
    read = read_recipe(recipe, sets)
    return apply_settings(read.merged_document, read.sets)
