"""Batch: shows several runs while they train, and how they ended."""

from __future__ import annotations

import contextlib
import os
import shlex
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import rlcli
from rlcli import errors
from rlcli.cli import output

if TYPE_CHECKING:
    from rlcli.training.batch import Ended, Plan


def train_and_report(recipes: Sequence[str], *, quiet: bool, **keywords: Any) -> int:
    """Trains several runs; prints a table and their folders; returns the exit code."""
    from rlcli.training.batch import exit_code  # here, to keep `--help` fast

    with _show(quiet) as report:
        ended = rlcli.train_all(recipes, report=report, **keywords)
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
def _show(
    quiet: bool,
) -> Iterator[Callable[[Sequence[Plan], Sequence[Ended]], None]]:
    """A function that shows the runs: a table in a terminal, otherwise lines."""
    from rich.live import Live

    screen = output.console(stderr=True)
    if quiet or not screen.is_terminal:
        yield _Lines(quiet)
        return
    with Live(console=screen, auto_refresh=False, transient=True) as live:

        def show(plans: Sequence[Plan], ended: Sequence[Ended]) -> None:
            table = _table([plan.folder for plan in plans], screen.width)
            live.update(table or "starting ...", refresh=True)

        yield show


class _Lines:
    """Prints a line for each run that has ended."""

    def __init__(self, quiet: bool) -> None:
        self._quiet = quiet
        self._shown = 0

    def __call__(self, plans: Sequence[Plan], ended: Sequence[Ended]) -> None:
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


def _print_end(ended: Sequence[Ended]) -> None:
    from rlcli.runs.provenance import program
    from rlcli.runs.run_folder import Run

    folders = [each.plan.folder for each in ended]
    screen = output.console(stderr=True)
    if table := _table(folders, screen.width):
        screen.print(table)
    for each in ended:
        if each.code >= errors.OUT_OF_TIME and each.plan.folder.is_dir():
            output.print_message(f"next: {Run(each.plan.folder).command('resume')}")
    if len(folders) > 1 and all(each.code == errors.OK for each in ended):
        group = os.path.commonpath([folder.parent for folder in folders])
        command = shlex.join(["compare", group])
        output.print_message(f"next: {program()} {command}")
