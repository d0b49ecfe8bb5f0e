"""Finding: the files of recipes, and hints for names that are no recipe."""

import itertools
import os
import re
from collections.abc import Iterable
from pathlib import Path

from rlcli import registry
from rlcli.errors import RlcliError, quote, suggest_similar
from rlcli.quoting import quote_shell
from rlcli.recipe import documents
from rlcli.recipe.extending import Extender, shipped_recipes
from rlcli.recipe.merging import as_mapping
from rlcli.recipe.part_index import part_names
from rlcli.registry.common_names import find_hint, normalize_name, suggest_name
from rlcli.registry.paths import enter

_MAX_SUGGESTED = 5  # recipes in a hint
_FIRST = ("dqn_cartpole", "ppo_cartpole")  # well-known algorithms, and quickly trained


def find_recipe(recipe: str | Path) -> Path:
    """The file of a recipe; an existing file takes precedence over a shipped name."""
    path, recipes = Path(recipe), shipped_recipes()
    exists = os.path.exists(path)
    if isinstance(recipe, Path) or (exists and path.is_file()):
        return path
    if recipe in recipes:
        return recipes[recipe]
    if exists or path.suffix or not (path.name == recipe or _is_environment(recipe)):
        return path  # reading it raises a precise error
    raise RlcliError(f"there is no recipe {quote(recipe)}", _suggest_recipe(recipe))


def locate_recipe(recipe: str | Path) -> str:
    """A recipe for another working directory: a built-in name, or an absolute path."""
    path = find_recipe(recipe)
    is_name = isinstance(recipe, str) and shipped_recipes().get(recipe) == path
    return str(recipe) if is_name else str(enter(path))


def _suggest_recipe(name: str) -> str:
    """The hint for an unknown recipe: often the name of an algorithm or environment."""
    if name in (*registry.KINDS, *registry.KINDS.values()):
        kind = registry.parse_kind(name)
        kinds = registry.KINDS[kind]
        hint = f"`rlcli list {kinds}` lists the names of these parts, and `rlcli show "
        return f"{hint}{kind} NAME` shows the options of one"
    if _is_environment(name) or re.fullmatch(r"\w+-v\d+", name):
        return _suggest_for_environment(name)
    recipes = shipped_recipes()
    matches = [recipe for recipe in recipes if _contains_words(recipe, name)]
    about_updater = ""
    if name in part_names("updater"):
        about_updater = f"`rlcli show updater {quote_shell(name)}` shows the updater"
    if matches:
        hint = _list_recipes(matches)
        separator = " " if hint.endswith("?") else "; "
        return hint + separator + about_updater if about_updater else hint
    if about_updater:
        return f"{about_updater}; your own recipe can name it: `updater: {name}`"
    hint = find_hint("updater", name) or find_hint("key", name)
    hint = hint or suggest_similar(name, recipes)
    return hint or "`rlcli list recipes` lists all recipes"


def _is_environment(name: str) -> bool:
    """Whether a name is that of an environment, possibly of another library."""
    library, slash, id_ = name.partition("/")
    known_names = part_names("environment")
    return name in known_names or bool(id_ and library + slash in known_names)


def _suggest_for_environment(name: str) -> str:
    """The hint for an environment in place of a recipe: recipes that train on it."""
    hint = ""
    if not _is_environment(name):
        hint = suggest_name("environment", name, part_names("environment"))
    if hint and not hint.startswith("did you mean"):
        return hint
    names = re.findall("`(.+?)`", hint) or [name]
    about = " or ".join(f"`{each}`" for each in names)
    matches = [recipe for recipe, own in _environments().items() if own in names]
    if matches:
        return f"{about} is an environment; {_list_recipes(matches)}"
    example = f"`environment: {names[0]}` and `updater: ppo`"
    return f"{about} is an environment; write a recipe with {example}"


def _environments() -> dict[str, str]:
    """The name of the environment of each built-in recipe."""
    extender = Extender()
    merged = {
        name: extender.complete(documents.load_document(path)).data
        for name, path in shipped_recipes().items()
    }
    return {
        name: as_mapping(data["environment"])["name"] for name, data in merged.items()
    }


def _contains_words(recipe: str, name: str) -> bool:
    """Whether consecutive words of a recipe's name spell `name`."""
    words, wanted = recipe.split("_"), normalize_name(name)
    return any(
        "".join(words[begin:end]) == wanted
        for begin, end in itertools.combinations(range(len(words) + 1), 2)
    )


def _list_recipes(names: Iterable[str]) -> str:
    """A hint with some recipes, those that solve their environment if there are any."""
    files = shipped_recipes()
    texts = {name: files[name].read_text(encoding="utf-8") for name in names}
    solved = [name for name, text in texts.items() if "not solved" not in text.lower()]
    names = sorted(solved or texts, key=lambda name: (name not in _FIRST, len(name)))
    if len(names) == 1:
        return f"did you mean `{names[0]}`?"
    listing = ", ".join(f"`{name}`" for name in names[:_MAX_SUGGESTED])
    surplus = len(names) - _MAX_SUGGESTED
    more = f", and {surplus} more: `rlcli list recipes`" if surplus > 0 else ""
    return f"choose from {listing}{more}"
