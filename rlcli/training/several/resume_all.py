"""Resume all: the function behind `rlcli resume` of a folder of variants."""

import os
from collections.abc import Sequence
from pathlib import Path

from rlcli.errors import RlcliError, quote
from rlcli.registry.paths import resolves
from rlcli.runs.durations import deadline_of
from rlcli.runs.run_folder import Run, trust_option
from rlcli.runs.trained_together import find_trained_together
from rlcli.runs.variants import Variants, find_variants
from rlcli.training.resuming import resume
from rlcli.training.several.plans import Plan
from rlcli.training.several.process_runs import (
    BatchReport,
    PlanEnd,
    describe_end,
    train_groups,
)
from rlcli.training.stopping.stops import stopping_with


@resolves("folder")
def resume_all(
    folder: str | Path,
    *,
    jobs: int | None = None,
    set: Sequence[str] = (),
    max_time: str | float | None = None,
    quiet: bool = False,
    trust: bool | None = None,
    report: BatchReport = lambda *_: None,
) -> list[PlanEnd]:
    """Continues all runs of varied options (`train_all`), and returns how each ended.

    Runs that were trained together continue together; others are processes of their
    own. A run that fails or is refused does not stop the others. Runs that never began
    are not trained.

    Args:
        folder: the folder of the runs.
        jobs: processes at once; by default the number of cores.
        set: options that replace the recipe's in every run, as in `resume`.
        report: is called with the runs and those that have ended, about once a second.

    The other arguments are those of `resume`.
    """
    max_time = deadline_of(max_time)
    variants = find_variants(folder)
    if variants is None:
        if not Path(folder).is_dir():
            raise RlcliError(f"there is no folder {quote(folder)}")
        raise RlcliError(
            f"`{folder}` is not a folder of runs with varied options",
            "`rlcli.resume` continues a single run",
        )
    variables = {**os.environ}
    groups: list[list[Plan]] = []
    ended: list[PlanEnd] = []
    for plans, refusal in _programs(variants):
        if refusal is not None:
            ended += _refused_ends(plans, refusal)
        elif not set and all(map(_is_finished, plans)):
            ended += map(describe_end, plans)
        else:
            groups.append(plans)
    if len(groups) == 1:  # in this process, which shows its panel
        (plans,) = groups

        def ends(*_: object) -> list[PlanEnd]:
            return ended + [describe_end(plan) for plan in plans]

        try:
            path = plans[0].folder
            with stopping_with(variants.folder, ends):
                resume(path, set=set, max_time=max_time, quiet=quiet, trust=trust)
        except RlcliError as error:
            return ended + _refused_ends(plans, error)
        return ends()
    options = ["--quiet", *trust_option(trust)]
    options += [word for text in set for word in ("--set", text)]

    def command(plans: Sequence[Plan]) -> list[str]:
        return ["resume", *options, "--", str(plans[0].folder)]

    return train_groups(
        groups,
        command,
        ended=ended,
        jobs=jobs,
        max_time=max_time,
        report=report,
        variables=variables,
    )


def _programs(variants: Variants) -> list[tuple[list[Plan], RlcliError | None]]:
    """The runs, divided into those that are trained together; or why they cannot be."""
    programs: list[tuple[list[Plan], RlcliError | None]] = []
    done: list[Path] = []
    for path in variants.runs:
        if path in done:
            continue
        try:
            members = [run.folder for run in find_trained_together(Run(path))]
            members = [member for member in members if member.name in variants.values]
            programs.append(([_plan(variants, each) for each in members], None))
            done += members
        except RlcliError as error:
            programs.append(([_plan(variants, path)], error))
    return programs


def _plan(variants: Variants, path: Path) -> Plan:
    return Plan(None, path, variants.folder, variants.values[path.name])


def _is_finished(plan: Plan) -> bool:
    return Run(plan.folder).read_info().get("status") == "finished"


def _refused_ends(plans: Sequence[Plan], error: RlcliError) -> list[PlanEnd]:
    return [PlanEnd(plan, error.code, str(error)) for plan in plans]
