"""Resume all: the function behind `rlcli resume` of a folder of variants."""

from __future__ import annotations

import itertools
import os
from collections.abc import Sequence
from pathlib import Path

from rlcli.errors import RlcliError
from rlcli.runs.run_folder import Run, is_run
from rlcli.runs.trained_together import find_trained_together
from rlcli.runs.variants import Variant, Variants, find_variants
from rlcli.training.batch import (
    BatchReport,
    PlanEnd,
    describe_end,
    round_up,
    train_command,
    train_groups,
)
from rlcli.training.plans import Plan, divide_group, group_plans
from rlcli.training.resuming import resume


def resume_all(
    folder: str | Path,
    *,
    jobs: int | None = None,
    set: Sequence[str] = (),
    max_time: str | float | None = None,
    quiet: bool = False,
    trust: bool = False,
    report: BatchReport = lambda *_: None,
) -> list[PlanEnd]:
    """Continues every run of varied options (`train_all`), and trains those not begun.

    Returns how each ended. Runs that were trained together continue together; others
    are processes of their own. A run that fails does not stop the others.

    Args:
        folder: the folder of the runs.
        jobs: processes at once; by default the number of cores.
        set: options that replace the recipe's in every run, as in `resume`.
        report: is called with the runs and those that have ended, about once a second.

    The other arguments are those of `resume`.
    """
    variants = find_variants(folder)
    if variants is None:
        raise RlcliError(
            f"`{folder}` is not a folder of runs with varied options",
            "`rlcli.resume` continues a single run",
        )
    _discard_incomplete(variants)
    limit, variables = round_up(max_time), {**os.environ}
    all_plans = {
        variants.folder / each.name: _plan(variants.folder, each, set)
        for each in variants.variants
    }
    begun = [
        [all_plans[run.folder] for run in program if run.folder in all_plans]
        for program in _programs([Run(path) for path in variants.runs])
    ]
    finished = (
        [] if set else [plans for plans in begun if all(map(_is_finished, plans))]
    )
    groups = [plans for plans in begun if plans not in finished]
    ended = [describe_end(plan) for plan in itertools.chain(*finished)]
    missing = [each for each in variants.variants if each not in variants.runs.values()]
    if len(groups) == 1 and not missing:  # in this process, which shows its panel
        resume(groups[0][0].folder, set=set, max_time=limit, quiet=quiet, trust=trust)
        return ended + [describe_end(plan) for plan in groups[0]]
    arguments = {variants.folder / each.name: each.arguments for each in missing}
    for same in dict.fromkeys(arguments.values()):
        plans = [all_plans[path] for path in arguments if arguments[path] == same]
        for group in group_plans(plans, ()):
            groups += divide_group(group)

    def command(plans: Sequence[Plan]) -> list[str]:
        first = plans[0]
        if first.folder in arguments:
            return train_command(plans, arguments[first.folder], limit)
        words = ["resume", str(first.folder), "--quiet"]
        words += [word for text in set for word in ("--set", text)]
        words += [] if limit is None else ["--max-time", limit]
        return [*words, "--trust"] if trust else words

    return ended + train_groups(
        groups, command, jobs=jobs, report=report, variables=variables
    )


def _discard_incomplete(variants: Variants) -> None:
    """Removes runs whose process was killed while it created them: they never began."""
    for path in variants.runs:
        info = Run(path).read_info()
        names = info.get("members", [])
        is_complete = all(is_run(variants.folder / name) for name in names)
        if info.get("status") == "created" and not is_complete:
            Run(path).discard()


def _plan(folder: Path, variant: Variant, sets: Sequence[str]) -> Plan:
    """A variant as it is trained, with further options."""
    common = variant.sets[: len(variant.sets) - len(variant.values)]
    options = (*common, *sets, *variant.values)
    place = folder / variant.name
    return Plan(variant.recipe, options, place, folder, variant.values)


def _programs(runs: Sequence[Run]) -> list[list[Run]]:
    """The runs, divided into those that are trained together."""
    programs: list[list[Run]] = []
    for run in runs:
        if not any(run in program for program in programs):
            programs.append(find_trained_together(run))
    return programs


def _is_finished(plan: Plan) -> bool:
    return Run(plan.folder).read_info().get("status") == "finished"
