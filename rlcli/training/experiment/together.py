"""Together: builds runs that differ in numbers only, as one program.

The learning rate, γ, ε and other numbers are arguments of the compiled program, so
recipes that differ only in these are trained as if they were seeds of one run. Each has
a run folder of its own, and is resumed with the others.
"""

import contextlib
import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path

from rlcli import registry
from rlcli.assembly import build_together
from rlcli.assembly.memory_usage import least_memory
from rlcli.assembly.numbers import without_numbers
from rlcli.assembly.out_of_memory import check_available_memory
from rlcli.errors import RlcliError
from rlcli.recipe import Recipe
from rlcli.replays.datasets.names import HASH
from rlcli.runs.initial_replay import read_steps
from rlcli.runs.sources import read_source
from rlcli.training.experiment.experiment import Experiment
from rlcli.training.experiment.initial_values import Initial, start_from
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
    first = recipes[0]
    items = least_memory(first, len(recipes) * len(seeds))
    check_available_memory("this run", items)
    initial = None
    if is_new and first.init is not None:  # all have the same
        first, initial = read_initial(first, source)
        recipes = [dataclasses.replace(each, init=first.init) for each in recipes]
    common, setups = build_together(recipes, seeds)
    values = None
    if initial is not None:
        with _locate_errors(first):
            common, values = start_from(initial, first, common)
    program = Program(first, common)
    program.initial = values
    return [
        Experiment(recipe, setup, program, index * len(seeds))
        for index, (recipe, setup) in enumerate(zip(recipes, setups, strict=True))
    ]


def read_initial(recipe: Recipe, file: Path | None = None) -> tuple[Recipe, Initial]:
    """Reads the file that `init` names, and records it in the recipe.

    The recipe gets the SHA-256 of the file, and the number of steps that its replay
    really takes. With `file`, what a run has started from is read instead, so the
    recipe already has both.
    """
    init = recipe.init
    assert init is not None
    with _locate_errors(recipe):
        source = read_source(init.from_ if file is None else str(file))
        steps = read_steps(recipe, source) if init.replay else None
    if file is None:
        name = f"{source.file.absolute()}{HASH}{source.sha256}"
        replay = False if steps is None else len(steps.reward[0])
        init = dataclasses.replace(init, from_=name, replay=replay)
    return dataclasses.replace(recipe, init=init), Initial(source, steps)


@contextlib.contextmanager
def _locate_errors(recipe: Recipe) -> Iterator[None]:
    """Adds the file and line of `init` to errors."""
    try:
        yield
    except RlcliError as error:
        raise recipe.locate_error(("init",), error) from error


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
