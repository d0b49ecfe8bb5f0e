"""Together: builds runs that differ in numbers only, as one program.

The learning rate, γ, ε and other numbers are arguments of the compiled program, so
recipes that differ only in these are trained as if they were seeds of one run. Each has
a run folder of its own, and is resumed with the others.
"""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from rlcli import registry
from rlcli.assembly import build, build_together
from rlcli.assembly.memory_usage import least_memory
from rlcli.assembly.numbers import without_numbers
from rlcli.assembly.out_of_memory import check_available_memory
from rlcli.errors import RlcliError
from rlcli.recipe import Recipe
from rlcli.training.experiment.experiment import Experiment
from rlcli.training.experiment.initial_values import read_initial, start_from
from rlcli.training.experiment.program import Program


def build_experiments(
    recipes: Sequence[Recipe],
    seeds: Sequence[int],
    *,
    is_new: bool,
    source: Path | None = None,
) -> list[Experiment]:
    """Builds experiments of recipes that differ in numbers only, with equal `seeds`.

    Several experiments share one program; refuses recipes that cannot share one. New
    ones start from the source of `init`, which their recipes record, or from the file
    `source` instead; others from a checkpoint.
    """
    if len(recipes) > 1:
        _check_together(recipes)
    first, initial = recipes[0], None
    items = least_memory(first, len(recipes) * len(seeds))
    check_available_memory("this run", items)
    if is_new:  # all have the same `init`
        first, initial = read_initial(first, source)
        recipes = [dataclasses.replace(each, init=first.init) for each in recipes]
    if len(recipes) > 1:
        common, setups = build_together(recipes, seeds)
    else:
        common = build(first, seeds)
        setups = [common]
    values = None
    if initial is not None:
        common, values = start_from(initial, first, common)
    program = Program(first, common)
    program.initial = values
    return [
        Experiment(recipe, setup, program, index * len(seeds))
        for index, (recipe, setup) in enumerate(zip(recipes, setups, strict=True))
    ]


def _check_together(recipes: Sequence[Recipe]) -> None:
    """Refuses recipes that cannot share a program."""
    if any(recipe.train.stop is not None for recipe in recipes):
        raise RlcliError(
            "runs that are trained together cannot have `train.stop`: each would end "
            "at another step",
            "train them one by one",
        )
    if len(group_recipes(recipes)) > 1:
        raise RlcliError(
            "these runs cannot be trained together: their recipes differ in more than "
            "numbers",
            "restore the recipes of the runs, or train new ones",
        )


def group_recipes(recipes: Sequence[Recipe]) -> list[list[int]]:
    """Groups recipes that can be trained together; returns the indices of each group.

    The recipes of a group differ in numbers only. A recipe is alone in its group if its
    environment runs on the host, where each run steps it in a process of its own, or if
    it has `train.stop`, with which runs end at different steps, or `train.hooks`.
    """
    groups: list[tuple[Recipe | None, list[int]]] = []
    for index, recipe in enumerate(recipes):
        environment = registry.find("environment", recipe.environment.name)
        is_alone = environment.facts.get("adapter") or recipe.train.stop is not None
        is_alone = is_alone or recipe.train.hooks
        key = None if is_alone else without_numbers(recipe)
        fitting = [each for other, each in groups if key is not None and other == key]
        if fitting:
            fitting[0].append(index)
        else:
            groups.append((key, [index]))
    return [indices for _, indices in groups]
