"""Together: trains runs that differ in numbers only, in one program.

The learning rate, γ, ε and other numbers are arguments of the compiled program, so
recipes that differ only in these are trained as if they were seeds of one run. Each has
a run folder of its own, and is resumed with the others. Imports JAX only when it runs.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlcli.errors import RlcliError
from rlcli.monitor import Monitor
from rlcli.recipe import Recipe, load_to_train
from rlcli.runs import thread_layout
from rlcli.runs.creation import create_run
from rlcli.runs.durations import deadline_of
from rlcli.runs.files import explain_file_errors
from rlcli.runs.run_folder import Run
from rlcli.training.new_run import CTRL_C, begin_runs, find_recipe_changes, smoke_recipe
from rlcli.training.run_end import catch_signals
from rlcli.training.run_loop import run_chunks, run_in_memory
from rlcli.training.run_writer import ActiveRun

if TYPE_CHECKING:
    from rlcli.training.experiment import Experiment
    from rlcli.training.population import Population


def build_experiments(
    recipes: Sequence[Recipe], seeds: Sequence[int]
) -> list[Experiment]:
    """Builds experiments of recipes that differ in numbers only, with equal `seeds`.

    Several experiments share one program; refuses recipes that cannot share one.
    """
    from rlcli.assembly import build, build_together, out_of_memory
    from rlcli.training.experiment import Experiment
    from rlcli.training.program import Program

    first = recipes[0]
    out_of_memory.check_recipe(first, len(recipes) * len(seeds))
    if len(recipes) == 1:
        return [Experiment(first, build(first, seeds))]
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
    common, setups = build_together(recipes, seeds)
    program = Program(first, common)
    return [
        Experiment(recipe, setup, program, index * len(seeds))
        for index, (recipe, setup) in enumerate(zip(recipes, setups, strict=True))
    ]


def group_recipes(recipes: Sequence[Recipe]) -> list[list[int]]:
    """Groups recipes that can be trained together; returns the indices of each group.

    The recipes of a group differ in numbers only. A recipe is alone in its group if its
    environment runs on the host, where each run steps it in a process of its own, or if
    it has `train.stop`, with which runs end at different steps.
    """
    from rlcli import registry
    from rlcli.assembly.numbers import without_numbers

    groups: list[tuple[Recipe | None, list[int]]] = []
    for index, recipe in enumerate(recipes):
        environment = registry.find("environment", recipe.environment.name)
        is_alone = environment.facts.get("adapter") or recipe.train.stop is not None
        key = None if is_alone else without_numbers(recipe)
        fitting = [each for other, each in groups if key is not None and other == key]
        if fitting:
            fitting[0].append(index)
        else:
            groups.append((key, [index]))
    return [indices for _, indices in groups]


def train_together(
    recipe: str | Path,
    variants: Sequence[tuple[Sequence[str], Path]],
    *,
    name: str | None = None,
    tags: Sequence[str] = (),
    max_time: str | float | None = None,
    smoke: bool = False,
    quiet: bool = False,
    is_population: bool = False,
    trust: bool = True,
) -> None:
    """Trains variants of a recipe, each given by its options and its run folder.

    The variants must form one group of `group_recipes`. The caller has applied the
    thread layout. `is_population`: the folders are beside a `population.json`. The
    other keywords are those of `train`.
    """
    deadline = deadline_of(max_time)
    with (
        explain_file_errors(),
        Monitor(title=Path(recipe).stem, quiet=quiet, hint=CTRL_C) as monitor,
    ):
        from rlcli.assembly import record_data
        from rlcli.training.compile_phases import TRACING, report_compilation

        monitor.set_phase(TRACING)
        with report_compilation(monitor.set_phase), contextlib.ExitStack() as stack:
            full = [load_to_train(recipe, sets, trust=trust) for sets, _ in variants]
            recipes = [smoke_recipe(each) if smoke else each for each in full]
            recipes = [record_data(each) for each in recipes]
            train = recipes[0].train
            experiments = build_experiments(
                recipes, range(train.seed, train.seed + train.seeds)
            )
            experiments[0].program.check()
            names = [folder.name for _, folder in variants]
            fields = [
                {
                    "run": folder,
                    "name": name,
                    "tags": tags,
                    "overrides": sets,
                    "changes": find_recipe_changes(each, recipe, trust=trust),
                    "members": names,
                    **({"population": True} if is_population else {}),
                }
                for each, (sets, folder) in zip(full, variants, strict=True)
            ]
            runs = _create_runs(recipes, fields)
            members = [*map(ActiveRun, runs, experiments)]
            for run in runs:
                stack.enter_context(run.lock())
            signals = stack.enter_context(catch_signals(runs))
            begin_runs(members, smoke)
            # Returns a warning if JAX was used before the threads could be set.
            warning = thread_layout.apply_for_recipe(
                recipe, set=variants[0][0], seeds=len(variants) * train.seeds
            )
            chunks = run_chunks(
                members,
                signals,
                deadline,
                monitor,
                warning,
                population=find_population(members),
            )
            for _ in run_in_memory(members, chunks):
                pass


def find_population(members: Sequence[ActiveRun]) -> Population | None:
    """The population of runs whose program has begun; None if they are none."""
    if not any(member.run.read_info().get("population") for member in members):
        return None
    from rlcli.training.population import Population

    return Population(members)


def _create_runs(
    recipes: Sequence[Recipe], fields: Sequence[dict[str, Any]]
) -> list[Run]:
    """Creates the folders of runs: all, or none after an error."""
    runs: list[Run] = []
    try:
        for recipe, more in zip(recipes, fields, strict=True):
            text = recipe.resolved_text
            written = recipe.document.text or text
            run = create_run(recipe.name, written=written, resolved=text, **more)
            runs.append(run)
    except RlcliError:
        for run in runs:
            run.discard()
        raise
    return runs
