"""Batch: shows several runs while they train, and their ends."""

from __future__ import annotations

import contextlib
import os
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import rlcli
from rlcli import errors
from rlcli.cli import output

if TYPE_CHECKING:
    from rlcli.training.batch import BatchReport, Plan, PlanEnd


def train_and_report(recipes: Sequence[str], *, quiet: bool, **keywords: Any) -> int:
    """Trains several runs; prints a table and their folders; returns the exit code."""
    from rlcli.training import signals  # here, to keep `--help` fast
    from rlcli.training.batch import exit_code

    with signals.own_process(), show_runs(quiet) as report:
        ended = rlcli.train_all(recipes, report=report, quiet=quiet, **keywords)
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
    from rlcli.runs.provenance import program
    from rlcli.runs.run_folder import Run
    from rlcli.runs.trained_together import find_trained_together

    folders = [each.plan.folder for each in ended]
    screen = output.console(stderr=True)
    if table := _table(folders, screen.width):
        screen.print(table)
    named: set[Path] = set()  # of the same program as a run that was printed
    for each in ended:
        folder = each.plan.folder
        if each.code < errors.OUT_OF_TIME or folder in named or not folder.is_dir():
            continue
        output.print_message(f"next: {Run(folder).command('resume')}")
        with contextlib.suppress(errors.RlcliError):  # some have not begun
            named |= {member.folder for member in find_trained_together(Run(folder))}
    if len(folders) > 1 and all(each.code == errors.OK for each in ended):
        group = os.path.commonpath([folder.parent for folder in folders])
        command = shlex.join(["compare", group])
        output.print_message(f"next: {program()} {command}")
