"""Plans: the runs of several recipes and of combinations of varied options.

Imports JAX only where options that are numbers vary: runs that differ in nothing else
are trained together.
"""

import itertools
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from rlcli.errors import RlcliError, quote
from rlcli.recipe import AnyRecipe, RecipeDocument, check_document, read_recipe
from rlcli.recipe.varying import NONE
from rlcli.runs import thread_layout
from rlcli.runs.creation import check_place
from rlcli.runs.files import refuse_link
from rlcli.runs.naming import describe_overrides, name_or_time, number_folder
from rlcli.runs.run_folder import is_run


class Plan(NamedTuple):
    """A run that will be trained."""

    recipe: RecipeDocument | None  # with its options; None for a run that exists
    folder: Path
    group: Path  # the folder of all runs of the recipe; that of the run if it is alone
    values: tuple[str, ...] = ()  # of its combination

    @property
    def document(self) -> RecipeDocument:
        """The recipe of a run that does not exist yet."""
        if self.recipe is None:
            raise ValueError(f"`{self.folder}` is a run already")
        return self.recipe

    @property
    def path(self) -> Path | None:
        """The file of the recipe."""
        return self.document.path


def plan_runs(
    recipes: Sequence[AnyRecipe],
    *,
    vary: Sequence[str] = (),
    vary_zip: Sequence[str] = (),
    set: Sequence[str] = (),
    runs: str | Path = "runs",
    run: str | Path | None = None,
    name: str | None = None,
) -> list[Plan]:
    """The runs that `train_all` trains; refuses recipes and options that are wrong."""
    start = name_or_time(name)
    given = [*combine(vary, vary_zip)]
    plans: list[Plan] = []
    for recipe in [read_recipe(recipe, set) for recipe in recipes]:
        own, title = recipe.combinations, recipe.name
        combinations = [(*a, *b) for a in own for b in given]
        for values in combinations:
            _refuse_twice(_keys(values))
            check_document(recipe.with_settings(*values))
        if run is None:
            group = _choose_group(Path(runs) / title / start, plans, is_new=True)
        elif len(recipes) > 1:
            group = _choose_group(Path(run) / title, plans, is_new=False)
        else:
            group = Path(run)
        common = recipe if own == [()] else recipe.with_settings(NONE)
        if is_run(group) and combinations != [()]:
            raise RlcliError(
                f"`{group}` already contains a run",
                "choose another folder with `--run` for runs with varied options",
            )
        for values in combinations:
            folder = group / describe_overrides(values)
            folder = number_folder(folder, [plan.folder for plan in plans].__contains__)
            for place in {group, folder}.difference(
                () if run is None else (Path(run),)
            ):
                refuse_link(place)  # only what the user has named may be one
            check_place(run=folder)
            plans.append(Plan(common.with_settings(*values), folder, group, values))
    return plans


def refuse_varied(plans: Sequence[Plan], given: Mapping[str, object]) -> None:
    """Refuses options `--seed` and `--seeds` that every run would take instead."""
    for option, value in given.items():
        key = f"train.{option}"
        if value is not None and any(key in _keys(plan.values) for plan in plans):
            raise RlcliError(
                f"`{key}` is varied, and `--{option}` would be the same for every run",
                f"remove `--{option}`, or the values of `{key}`",
            )


def _choose_group(place: Path, plans: Sequence[Plan], *, is_new: bool) -> Path:
    """The folder of the runs of a recipe, with a number if it is taken.

    `plans` are the others, maybe of a recipe of the same name; `is_new`: the folder may
    not exist.
    """
    taken = [plan.group for plan in plans]
    return number_folder(
        place, lambda each: each in taken or (is_new and os.path.lexists(each))
    )


def combine(
    vary: Sequence[str], vary_zip: Sequence[str] = ()
) -> Iterator[tuple[str, ...]]:
    """The settings `KEY=VALUE` of each combination.

    >>> [*combine(["a=1,2"], ["b=[3,4],5", "c=6,7"])]
    [('a=1', 'b=[3,4]', 'c=6'), ('a=1', 'b=5', 'c=7'),
     ('a=2', 'b=[3,4]', 'c=6'), ('a=2', 'b=5', 'c=7')]
    """
    axes = [[(setting,) for setting in _parse_values(text)] for text in vary]
    if vary_zip:
        zipped = [_parse_values(text) for text in vary_zip]
        if len({*map(len, zipped)}) > 1:
            counts = ", ".join(
                f"`{text.partition('=')[0]}` {len(values)}"
                for text, values in zip(vary_zip, zipped, strict=True)
            )
            raise RlcliError(
                f"`--vary-zip` needs the same number of values for each option: "
                f"{counts}",
                "add or remove values, or use `--vary` for a grid",
            )
        axes.append([*zip(*zipped, strict=True)])
    for axis in axes:
        for settings in axis:
            if axis.count(settings) > 1:
                text = ", ".join(settings)
                raise RlcliError(f"{quote(text)} is listed twice", "remove one of them")
    _refuse_twice([text.partition("=")[0].strip() for text in (*vary, *vary_zip)])
    for combination in itertools.product(*axes):
        yield tuple(itertools.chain(*combination))


def _refuse_twice(keys: Sequence[str]) -> None:
    for key in keys:
        if keys.count(key) > 1:
            raise RlcliError(
                f"{quote(key)} is varied twice", "list all its values in one option"
            )


def _parse_values(text: str) -> list[str]:
    """`a=1,[2,3]` as `a=1` and `a=[2,3]`."""
    key, equals, values = text.partition("=")
    parts, depth, quoted = [""], 0, ""
    for character in values:
        if quoted:
            quoted = "" if character == quoted else quoted
        elif character in "\"'":
            quoted = character
        else:
            depth += (character in "[{") - (character in "]}")
        if character == "," and depth == 0 and not quoted:
            parts.append("")
        else:
            parts[-1] += character
    settings = [f"{key.strip()}={part.strip()}" for part in parts]
    if not key.strip() or not equals or not all(part.strip() for part in parts):
        raise RlcliError(
            f"expected options to vary as KEY=VALUE,VALUE, got {quote(text)}",
            "for example `--vary optimizer.learning_rate=1e-4,3e-4`",
        )
    return settings


def group_plans(
    plans: Sequence[Plan], overrides: Sequence[str], *, trust: bool = True
) -> list[list[Plan]]:
    """The plans, grouped by what can be trained together; `trust` as in `train`."""
    groups: list[list[Plan]] = []
    for path in dict.fromkeys(plan.path for plan in plans):
        own = [plan for plan in plans if plan.path == path]
        if not _vary_numbers(own):
            groups += [[plan] for plan in own]
            continue
        # For a program of all plans, before JAX is imported.
        document = own[0].document
        thread_layout.apply_for_recipe(document, set=overrides, runs=len(own))
        from rlcli.recipe import load_to_train
        from rlcli.training.experiment.together import group_recipes

        loaded = []
        for plan in own:
            try:
                recipe = load_to_train(plan.document, overrides, trust=trust)
                loaded.append((plan, recipe))
            except RlcliError:  # which its own process prints
                groups.append([plan])
        indices = group_recipes([each for _, each in loaded])
        groups += [[loaded[i][0] for i in group] for group in indices]
    return groups


def divide_group(plans: Sequence[Plan]) -> list[list[Plan]]:
    """The plans of a group, divided into those that one `rlcli train` can train.

    It names the folders itself, and its `--vary-zip` sets the same options in each run.
    """
    divided: dict[object, list[Plan]] = {}
    for plan in plans:
        is_numbered = plan.folder != plan.group / describe_overrides(plan.values)
        key = plan.folder if is_numbered else _keys(plan.values)
        divided.setdefault(key, []).append(plan)
    return [*divided.values()]


def _keys(settings: Sequence[str]) -> tuple[str, ...]:
    return tuple(text.partition("=")[0] for text in settings)


def _vary_numbers(plans: Sequence[Plan]) -> bool:
    """Whether runs of a recipe may differ in numbers only; needs no JAX."""
    varied = {*itertools.chain(*(plan.values for plan in plans))}
    numbers = _keys([text for text in varied if _is_number(text)])
    return len(numbers) > len({*numbers})


def _is_number(setting: str) -> bool:
    try:
        float(setting.partition("=")[2])
    except ValueError:
        return False
    return True


def arguments_of(plans: Sequence[Plan]) -> list[str]:
    """The arguments of `rlcli train` for runs of `divide_group`: place and options."""
    first = plans[0]
    if len(plans) == 1:
        sets, place = first.document.sets, first.folder
    else:
        sets = first.document.sets[: -len(first.values)]
        place = first.group
    arguments = ["--run", str(place)]
    for setting in sets:
        arguments += ["--set", setting]
    if len(plans) > 1:
        columns = zip(*(plan.values for plan in plans), strict=True)
        for key, settings in zip(_keys(first.values), columns, strict=True):
            values = ",".join(text.partition("=")[2] for text in settings)
            arguments += ["--vary-zip", f"{key}={values}"]
    return arguments
