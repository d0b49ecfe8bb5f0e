"""Train all: trains several runs: several recipes, and combinations of varied options.

Runs that differ in numbers only are one program (`experiment.together`). If there
are other differences, there is a process for each program, as many at once as cores.
"""

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rlcli.recipe import AnyRecipe
from rlcli.registry.paths import resolves
from rlcli.runs.durations import deadline_of
from rlcli.runs.naming import check_tags
from rlcli.runs.run_folder import is_run
from rlcli.runs.variants import discard_variants, record_variants
from rlcli.training.new_run import NewRun, train_together
from rlcli.training.several.plans import (
    Plan,
    arguments_of,
    divide_group,
    group_plans,
    plan_runs,
    refuse_varied,
)
from rlcli.training.several.process_runs import (
    BatchReport,
    PlanEnd,
    common_folder,
    describe_end,
    train_groups,
)
from rlcli.training.stopping.stops import stopping_with


@resolves(recipes="recipes", new=("runs", "run"))
def train_all(
    recipes: Sequence[AnyRecipe],
    *,
    vary: Sequence[str] = (),
    vary_zip: Sequence[str] = (),
    jobs: int | None = None,
    set: Sequence[str] = (),
    seed: int | None = None,
    seeds: int | None = None,
    runs: str | Path = "runs",
    run: str | Path | None = None,
    name: str | None = None,
    tag: Sequence[str] = (),
    max_time: str | float | None = None,
    smoke: bool = False,
    quiet: bool = False,
    trust: bool = True,
    report: BatchReport = lambda *_: None,
) -> list[PlanEnd]:
    """Trains every combination of recipes and options, and returns how each ended.

    Combinations that differ only in numbers, such as the learning rate, are trained
    together in one program; others in processes of their own. A run that fails does not
    stop the others. A signal stops all of them, each with a checkpoint. Every run has a
    folder of its own, `<runs>/<recipe>/<time>/<options>`; `rlcli eval`, `resume`,
    `plot` and so on take it, or the folder of all of them.

    Args:
        recipes: files, or names of built-in recipes.
        vary: options and their values, `KEY=VALUE,VALUE`; several are a grid.
        vary_zip: the same, but the first values of all belong together, and so on.
        jobs: processes at once; by default the number of cores. Where the system allows
            it, each of as many processes as cores has a core of its own.
        quiet: prints only warnings and errors of runs that are trained in this process.
        run: the folder of the runs, instead of `<runs>/<recipe>/<time>`.
        name: the name of that folder, instead of the time, and of the runs.
        max_time: seconds, or a duration such as `3h50m`, from the call, for
            all runs: those that have not begun by then are not trained.
        report: is called with the plans and those that have ended, about once a second.

    The other arguments are those of `train`.
    """
    max_time = deadline_of(max_time)
    shared = [] if trust else ["--no-trust"]
    shared += ["--smoke"] if smoke else []
    for option, value in (("seed", seed), ("seeds", seeds)):
        shared += [] if value is None else [f"--{option}", str(value)]
    tags = check_tags(tag)
    for each in tags:
        shared += ["--tag", each]
    shared += [] if name is None else ["--name", name]
    environment = {**os.environ}  # before the threads of this process are set
    plans = plan_runs(
        recipes, vary=vary, vary_zip=vary_zip, set=set, runs=runs, run=run, name=name
    )
    refuse_varied(plans, {"seed": seed, "seeds": seeds})
    overrides = [] if seed is None else [f"train.seed={seed}"]
    overrides += [] if seeds is None else [f"train.seeds={seeds}"]
    groups = group_plans(plans, overrides, trust=trust)
    with _recorded_variants(plans, with_parent=run is None):
        if len(groups) == 1 and len(plans) > 1:
            keywords = {"max_time": max_time, "smoke": smoke}
            keywords |= {"quiet": quiet, "trust": trust}
            new = [
                NewRun(
                    plan.document.with_settings(*overrides),
                    {"run": plan.folder, "name": name, "tags": tags},
                )
                for plan in plans
            ]
            with stopping_with(
                common_folder(plans), lambda _: [*map(describe_end, plans)]
            ):
                is_trained = _train_here(new, keywords)
            if is_trained:
                return [describe_end(plan) for plan in plans]
            groups = [[plan] for plan in plans]
        groups = [part for group in groups for part in divide_group(group)]

        def command(plans: Sequence[Plan]) -> list[str]:
            options = [*arguments_of(plans), "--quiet", *shared]
            return ["train", *options, "--", str(plans[0].path)]

        return train_groups(
            groups,
            command,
            jobs=jobs,
            max_time=max_time,
            report=report,
            variables=environment,
        )


@contextlib.contextmanager
def _recorded_variants(plans: Sequence[Plan], *, with_parent: bool) -> Iterator[None]:
    """Lists the runs with varied options in their folders, before they are trained.

    At the end those that do not exist are removed from the list, and folders that are
    empty; `with_parent`: also the folder of the recipe.
    """
    groups: dict[Path, dict[str, tuple[str, ...]]] = {}
    for plan in plans:
        if plan.values:
            groups.setdefault(plan.group, {})[plan.folder.name] = plan.values
    for group, values in groups.items():
        record_variants(group, values)
    try:
        yield
    finally:
        for group, values in groups.items():
            discard_variants(group, [*values], with_parent=with_parent)


def _train_here(runs: Sequence[NewRun], keywords: Mapping[str, Any]) -> bool:
    """Trains runs together in this process; False if there is not enough memory."""
    from rlcli.assembly.out_of_memory import OutOfMemoryError  # here: imports JAX

    try:
        train_together(runs, **keywords)
    except OutOfMemoryError:
        if any(is_run(new.place["run"]) for new in runs):
            raise
        return False
    return True
