"""Study screen: shows the cells of a study while they train, and their ends."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlcli import errors
from rlcli.cli import output, training_outcome
from rlcli.quoting import join_shell

if TYPE_CHECKING:
    from rlcli.runs.study_record import Cell
    from rlcli.studies.process_runs import CellEnd, StudyReport


def train_and_report(
    function: Callable[..., Sequence[CellEnd]], *what: Any, quiet: bool, **keywords: Any
) -> int:
    """Calls a function that trains a study; prints a table and the folders of its runs.

    Returns the exit code. An error of cells that the user has named is printed once.
    """
    with show_runs(quiet) as report:
        keywords |= {"report": report, "quiet": quiet}
        ended = training_outcome.complete(function, *what, **keywords)
    from rlcli.studies.process_runs import exit_code  # here, to keep `--help` fast

    is_worker = bool(keywords.get("cells"))
    messages = [
        each.message if is_worker else f"`{each.cell.folder}`: {each.message}"
        for each in ended
        if each.code != errors.OK and each.message
    ]
    for message in dict.fromkeys(messages):
        output.print_message(message)
    if not quiet and ended:
        _print_end(ended)
    for folder in sorted(each.cell.folder for each in ended if each.cell.exists):
        output.print_data(folder)
    return exit_code(ended)


@contextlib.contextmanager
def show_runs(quiet: bool) -> Iterator[StudyReport]:
    """A function that shows the runs: a table in a terminal, otherwise lines."""
    from rich.live import Live

    screen = output.console(stderr=True)
    if quiet or not screen.is_terminal:
        yield _Lines(quiet)
        return
    live = Live(console=screen, auto_refresh=False, transient=True)

    def show(cells: Sequence[Cell], ended: Sequence[CellEnd]) -> None:
        if not live.is_started:  # not for runs in this process, which show themselves
            live.start()
        table = _table([cell.folder for cell in cells], screen.width)
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

    def __call__(self, cells: Sequence[Cell], ended: Sequence[CellEnd]) -> None:
        for each in ended[self._shown :]:
            if not self._quiet:
                number = f"{self._shown + 1} of {len(cells)}"
                word = "ended" if each.code == errors.OK else f"exit code {each.code}"
                output.print_message(f"[{number}] {each.cell.folder}: {word}")
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


def _print_end(ended: Sequence[CellEnd]) -> None:
    """Prints a table of the returns, and the command to try next."""
    from rlcli.runs.cell_table import describe_recorded
    from rlcli.runs.provenance import program
    from rlcli.runs.run_folder import Run
    from rlcli.runs.study_record import find_study

    folder = ended[0].cell.study
    study = find_study(folder)
    if study is None:  # no cell could begin
        return
    width = output.console(stderr=True).width
    for line in (f"{folder}:", *describe_recorded(study, width).splitlines()):
        output.print_message(line)
    if any(each.code >= errors.OUT_OF_TIME for each in ended):
        output.print_message(f"next: {Run(folder).command('resume')}")
    elif all(each.code == errors.OK for each in ended):
        output.print_message(f"next: {program()} {join_shell(['compare', folder])}")
