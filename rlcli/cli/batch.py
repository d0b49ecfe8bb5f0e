"""Batch: shows several runs while they train, and their ends."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import rlcli
from rlcli import errors
from rlcli.cli import output, training_outcome
from rlcli.quoting import join_shell

if TYPE_CHECKING:
    from rlcli.recipe import RecipeDocument
    from rlcli.runs.variants import Variants
    from rlcli.training.several.process_runs import BatchReport, Plan, PlanEnd


def train_and_report(
    recipes: Sequence[RecipeDocument], *, quiet: bool, **keywords: Any
) -> int:
    """Trains several runs; prints a table and their folders; returns the exit code."""
    with show_runs(quiet) as report:
        keywords |= {"report": report, "quiet": quiet}
        ended = training_outcome.complete(rlcli.train_all, recipes, **keywords)
    return _report(ended, quiet)


def resume_and_report(folder: str | Path, *, quiet: bool, **keywords: Any) -> int:
    """Continues runs with varied options; reports as `train_and_report` does."""
    with show_runs(quiet) as report:
        keywords |= {"report": report, "quiet": quiet}
        ended = training_outcome.complete(rlcli.resume_all, folder, **keywords)
    return _report(ended, quiet)


def _report(ended: Sequence[PlanEnd], quiet: bool) -> int:
    """Prints how runs have ended, and their folders; returns the exit code."""
    from rlcli.training.several.process_runs import (
        exit_code,  # here, to keep `--help` fast
    )

    for each in ended:
        if each.code != errors.OK and each.message:
            output.print_message(f"`{each.plan.folder}`: {each.message}")
    if not quiet:
        _print_end(ended)
    for folder in sorted(
        each.plan.folder for each in ended if each.plan.folder.is_dir()
    ):
        output.print_data(folder)
    return exit_code(ended)


@contextlib.contextmanager
def show_runs(quiet: bool) -> Iterator[BatchReport]:
    """A function that shows the runs: a table in a terminal, otherwise lines."""
    from rich.live import Live

    screen = output.console(stderr=True)
    if quiet or not screen.is_terminal:
        yield _Lines(quiet)
        return
    live = Live(console=screen, auto_refresh=False, transient=True)

    def show(plans: Sequence[Plan], ended: Sequence[PlanEnd]) -> None:
        if not live.is_started:  # not for runs in this process, which show themselves
            live.start()
        table = _table([plan.folder for plan in plans], screen.width)
        live.update(table or "starting ...", refresh=True)

    try:
        yield show
    finally:
        live.stop()


class _Lines:
    """Prints a line for each run that has ended."""

    def __init__(self, quiet: bool) -> None:
        self._quiet = quiet
        self._shown = 0

    def __call__(self, plans: Sequence[Plan], ended: Sequence[PlanEnd]) -> None:
        for each in ended[self._shown :]:
            if not self._quiet:
                number = f"{self._shown + 1} of {len(plans)}"
                word = "ended" if each.code == errors.OK else f"exit code {each.code}"
                output.print_message(f"[{number}] {each.plan.folder}: {word}")
            self._shown += 1


def _table(folders: Sequence[Path], width: int) -> Any:
    """The table of `rlcli runs` of those that exist; None if there are none."""
    from rlcli.cli import tables
    from rlcli.runs.records import read_record

    found = [folder for folder in folders if (folder / "run.json").is_file()]
    if not found:
        return None
    common = os.path.commonpath([folder.parent for folder in found])
    return tables.runs_table([read_record(each) for each in found], common, width)


def _print_end(ended: Sequence[PlanEnd]) -> None:
    """Prints tables of the returns, and the commands to try next."""
    from rlcli.runs.variant_table import describe_recorded
    from rlcli.runs.variants import find_variants

    screen = output.console(stderr=True)
    groups = {each.plan.group: find_variants(each.plan.group) for each in ended}
    tables = [
        describe_recorded(variants, screen.width)
        for variants in groups.values()
        if variants is not None
    ]
    if len(tables) == len(groups):
        for group, table in zip(groups, tables, strict=True):
            for line in (f"{group}:", *table.splitlines()):
                output.print_message(line)
    elif found := _table([each.plan.folder for each in ended], screen.width):
        screen.print(found)
    for command in _next_commands(ended, groups):
        output.print_message(f"next: {command}")


def _next_commands(
    ended: Sequence[PlanEnd], groups: Mapping[Path, Variants | None]
) -> Iterator[str]:
    """The commands that continue runs, or the one that compares them."""
    from rlcli.runs.provenance import program
    from rlcli.runs.run_folder import Run
    from rlcli.runs.trained_together import find_trained_together

    named: set[Path] = set()  # continued by a command before
    for each in ended:
        plan = each.plan
        is_done = each.code < errors.OUT_OF_TIME or not plan.folder.is_dir()
        if is_done or plan.folder in named:
            continue
        if groups[plan.group] is not None:
            yield Run(plan.folder).command("resume", folder=plan.group)
            named |= {
                other.plan.folder for other in ended if other.plan.group == plan.group
            }
            continue
        yield Run(plan.folder).command("resume")
        with contextlib.suppress(errors.RlcliError):  # some have not begun
            members = find_trained_together(Run(plan.folder))
            named |= {member.folder for member in members}
    if len(ended) > 1 and all(each.code == errors.OK for each in ended):
        parents = [each.plan.folder.parent for each in ended]
        folder = Path(os.path.commonpath(parents))
        yield f"{program()} {join_shell(['compare', folder])}"
