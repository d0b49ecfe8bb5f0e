"""Together: builds recipes that are trained together, in one program."""

from __future__ import annotations

from collections.abc import Sequence

from rlcli.assembly.numbers import numbers_of_each
from rlcli.assembly.setup import build
from rlcli.loop.progress import Setup
from rlcli.recipe import Recipe


def build_together(
    recipes: Sequence[Recipe], seeds: Sequence[int]
) -> tuple[Setup, list[Setup]]:
    """Builds recipes that differ in numbers only, with the same seeds for each.

    Returns the setup of their common program, whose seeds are those of the first
    recipe, then those of the second, and so on; and the setup of each recipe.
    """
    all_seeds = (*seeds,) * len(recipes)
    setups = [build(recipe, all_seeds) for recipe in recipes]
    common = setups[0]._replace(numbers=numbers_of_each(recipes, len(seeds)))
    return common, [setup._replace(seeds=tuple(seeds)) for setup in setups]
