"""Study screen: shows the cells of a study while they train, and their ends."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import rlcli
from rlcli import errors
from rlcli.cli import output, training_outcome
from rlcli.errors import shell_path
from rlcli.quoting import quote_rich, quote_shell

if TYPE_CHECKING:
    from rlcli.runs.study_record import Cell, Study
    from rlcli.studies.engines.engine_options import EngineOptions
    from rlcli.studies.study_loop import CellEnd, StudyReport

_PERIOD = 1.0  # seconds between two looks at a study that another process trains
_TEST = "test"  # the section of a study that adds blocks of seeds


def train_and_report(*, quiet: bool, cell: Sequence[str] = (), **keywords: Any) -> int:
    """Calls `rlcli.study`; prints a table and the folders of its runs.

    Returns the exit code. An error of cells that the user has named is printed once.
    """
    with show_runs(quiet) as report:
        keywords |= {"report": report, "quiet": quiet, "cell": cell}
        ended = training_outcome.complete(rlcli.study, **keywords)
    from rlcli.runs.cell_table import group_reasons  # here, to keep `--help` fast
    from rlcli.runs.provenance import program
    from rlcli.runs.run_folder import Run
    from rlcli.runs.study_record import find_study
    from rlcli.studies.engines.engine_options import EngineOptions
    from rlcli.studies.study_loop import exit_code

    engines = EngineOptions.select(keywords)
    reasons = [
        (str(each.cell.folder), each.message)
        for each in ended
        if each.code != errors.OK and each.message
    ]
    own = dict.fromkeys(reason for _, reason in reasons)
    for message in own if cell else group_reasons(reasons):
        output.print_message(message)
    if engines.is_array and exit_code(ended) == errors.OK:
        folder = ended[0].cell.study
        then = Run(folder).command("resume")
        study = find_study(folder)
        if study and _TEST in study.sections:  # the next block, until all is decided
            then = f"{program()} study {shell_path(folder)} --engine slurm"
            if engines.script is not None:
                then += f" --script {shell_path(engines.script)}"
        return report_script(folder, engines, then, quiet)
    if not quiet and ended:
        _print_end(ended, engines.run_storage)
    for folder in sorted(each.cell.folder for each in ended if each.cell.exists):
        output.print_data(folder)
    return exit_code(ended)


def report_script(folder: Path, engines: EngineOptions, then: str, quiet: bool) -> int:
    """Prints the folder, how to submit a script for SLURM, and the command after it."""
    from rlcli.studies.engines.slurm import find_script  # as above

    script = find_script(folder, engines)
    if not quiet:
        output.print_message(f"next: sbatch --wait {shell_path(script)}; {then}")
    output.print_data(folder)
    return errors.OK


def show_runs(quiet: bool) -> contextlib.AbstractContextManager[StudyReport]:
    """A function that shows the runs: a table in a terminal, otherwise lines."""
    return show_live(quiet, _Lines(), lambda cells, _, width: _table(cells, width))


@contextlib.contextmanager
def show_live(
    quiet: bool, print_lines: Callable[..., None], draw: Callable[..., Any]
) -> Iterator[Callable[..., None]]:
    """A function that shows progress until the end of the context.

    In a terminal it is what `draw` returns, which also gets the width.
    """
    from rich.live import Live

    screen = output.console(stderr=True)
    if quiet or not screen.is_terminal:
        yield (lambda *_: None) if quiet else print_lines
        return
    live = Live(console=screen, auto_refresh=False, transient=True)

    def show(*progress: Any) -> None:
        if not live.is_started:  # not for runs in this process, which show themselves
            live.start()
        live.update(draw(*progress, screen.width), refresh=True)

    try:
        yield show
    finally:
        live.stop()


class _Lines:
    """Prints a line for each run that has ended."""

    def __init__(self) -> None:
        self._shown = 0

    def __call__(self, cells: Sequence[Cell], ended: Sequence[CellEnd]) -> None:
        for each in ended[self._shown :]:
            self._shown += 1
            word = "ended" if each.code == errors.OK else f"exit code {each.code}"
            number = f"{self._shown} of {len(cells)}"
            output.print_message(f"[{number}] {each.cell.folder}: {word}")


def _table(cells: Sequence[Cell], width: int) -> Any:
    """The table of `rlcli runs` of cells that exist, and the states of all."""
    from rich.console import Group

    from rlcli.cli import tables
    from rlcli.runs.cell_table import describe_states, read_cells
    from rlcli.runs.study_record import Study

    study = Study(cells[0].study, tuple(cells))
    records = read_cells(study)
    pairs = zip(cells, records, strict=True)
    found = [record for cell, record in pairs if cell.exists]
    lines = map(quote_rich, describe_states(study, records))
    return Group(tables.runs_table(found, study.folder, width), *lines)


def watch_study(folder: Path) -> Sequence[Mapping[str, Any]]:
    """Shows a study until it is complete or was stopped; returns the cells' records."""
    from rich.console import Group
    from rich.live import Live

    from rlcli.runs.cell_table import describe_states, find_awaited, read_cells
    from rlcli.runs.records import COMPLETE
    from rlcli.runs.study_record import Study, find_study

    screen, shown = output.console(stderr=True), ""
    live = Live(console=screen, auto_refresh=False, transient=True)
    with live if screen.is_terminal else contextlib.nullcontext():
        while True:
            study = find_study(folder) or Study(folder, ())
            records = read_cells(study)
            lines = describe_states(study, records)
            counts = lines[0].partition(";")[0]
            if (awaited := find_awaited(study, records)) is None:
                break
            if screen.is_terminal:
                table = _table(study.cells, screen.width)
                live.update(Group(table, *([awaited] if awaited else [])), refresh=True)
            elif (text := "; ".join(filter(None, [counts, awaited]))) != shown:
                shown = text
                output.print_message(text)
            time.sleep(_PERIOD)
    for line in lines:
        output.print_message(line)
    is_complete = all(each["status"] in COMPLETE for each in records)
    is_complete |= study.result.get("status") == "finished"  # a sweep prunes trials
    output.print_message(f"next: {_name_next(study, is_complete=is_complete)}")
    return records


def _name_next(study: Study, *, is_complete: bool) -> str:
    """The command to try after a study has ended."""
    from rlcli.runs.provenance import program
    from rlcli.runs.run_folder import Run

    if not is_complete:
        return Run(study.folder).command("resume")
    verb = "sweep show" if study.is_search else "compare"
    return f"{program()} {verb} {shell_path(study.folder)}"


def _print_end(ended: Sequence[CellEnd], run_storage: str | None) -> None:
    """Prints a table of the returns, and the command to try next."""
    from rlcli.runs.cell_table import describe_recorded
    from rlcli.runs.study_record import find_study

    folder = ended[0].cell.study
    study = find_study(folder)
    if study is None:  # no cell could begin
        return
    width = output.console(stderr=True).width
    text = describe_recorded(study, width, with_reasons=False)
    for line in (f"{folder}:", *text.splitlines()):
        output.print_message(line)
    if _TEST in study.sections:
        from rlcli.results.claims import describe_claims  # here: imports NumPy

        for sentence in describe_claims(study):
            output.print_message(sentence)
    if any(each.code >= errors.OUT_OF_TIME for each in ended):
        command = _name_next(study, is_complete=False)
        if run_storage is not None:
            command += f" --engine ray --run-storage {quote_shell(run_storage)}"
        output.print_message(f"next: {command}")
    elif all(each.code == errors.OK for each in ended):
        output.print_message(f"next: {_name_next(study, is_complete=True)}")
