"""Validation: compares a space with the recipe before a sweep begins."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rlcli.errors import RlcliError, quote
from rlcli.recipe import Recipe, load_recipe
from rlcli.recipe.settings import LONGEST
from rlcli.sweeps.space import Option, Space, Values


def check_space(recipe: str | Path, sets: Sequence[str], space: Space) -> Recipe:
    """Refuses options that the recipe does not have, and values that it refuses.

    Loads the recipe with the lowest and the highest value of each number and with every
    choice, other options at their first values. Returns the recipe without the space.
    """
    base = load_recipe(recipe, sets)
    checked = set()
    for option in space.options:
        for value in option.edges():
            values = space.complete(space.requirements(option) | {option.key: value})
            settings = space.settings(values)
            if settings not in checked:
                checked.add(settings)
                _load(recipe, sets, space, values, option)
    return base


def _load(
    recipe: str | Path,
    sets: Sequence[str],
    space: Space,
    values: Values,
    option: Option,
) -> None:
    """Loads the recipe of a trial; an error names the line of the space."""
    try:
        load_recipe(recipe, [*sets, *space.settings(values)])
    except RlcliError as error:
        for key, value in values.items():
            setting = quote(space[key].setting(value), LONGEST)[1:-1]
            if error.message.startswith(prefix := f"--set {setting}: "):
                message = error.message.removeprefix(prefix)
                where = space.document.where((key,))
                raise RlcliError(f"{where}{message}", error.hint) from error
        where = space.document.where((option.key,))
        setting = quote(option.setting(values[option.key]))
        message = f"{where}the recipe is wrong with {setting}: {error.message}"
        raise RlcliError(message, error.hint) from error
