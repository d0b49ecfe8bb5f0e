"""`rlcli study`: trains recipes on environments with many seeds, as one thing."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

import rlcli
from rlcli import errors
from rlcli.cli import options, output, study_screen, training_outcome

if TYPE_CHECKING:
    from rlcli.studies.preview import CellPreview


_NUMBERS = ("program", "seeds", "steps", "memory", "time")  # of a cell


@options.with_engines
def command(
    study: Path = options.argument(
        "STUDY", "The YAML file of a study, or the folder of one, which continues."
    ),
    set: list[str] = options.SET,
    vary: list[str] = options.VARY,
    vary_zip: list[str] = options.VARY_ZIP,
    dry_run: bool = options.flag(
        "--dry-run", "Print the cells with memory and time, and train nothing."
    ),
    cell: list[str] = options.repeated_option(
        "--cell NAME", "Continue only this cell of the folder. Can be repeated."
    ),
    seed: int | None = options.seed_option("The first seed of each cell."),
    seeds: int | None = options.SEEDS,
    runs: Path = options.option(
        "--runs DIR", "Create the study below DIR/studies/<file>.", default=Path("runs")
    ),
    run: Path | None = options.option("--run DIR", "Create the study in exactly DIR."),
    name: str | None = options.option("--name NAME", "Name the folder and the runs."),
    tag: list[str] = options.repeated_option(
        "--tag TAG", "Tag the runs. Can be repeated."
    ),
    max_time: str | None = options.MAX_TIME,
    smoke: bool = options.SMOKE,
    quiet: bool = options.QUIET,
    json: bool = options.JSON,
    trust: bool | None = options.TRUST,
    **engines: Any,
) -> None:
    """Train a study: recipes, environments, variants and seeds.

    Each cell is an ordinary run. Cells that differ only in numbers share one compiled
    program, others have processes of their own. Prints the folders of the runs to
    stdout. `rlcli resume` or `rlcli study` of its folder continues a study.
    """
    if dry_run:
        from rlcli.results.claims import describe_plan  # here, to keep `--help` fast

        keywords = options.select(
            rlcli.preview_study, locals(), trust=trust is not False
        )
        cells = training_outcome.complete(rlcli.preview_study, **keywords)
        if json:
            output.print_json([_as_data(each) for each in cells])
        else:
            _print_preview(cells)
            if cells[0].plan:
                output.print_data(describe_plan(cells[0].plan))
        raise typer.Exit(
            errors.USER_ERROR if any(e.error for e in cells) else errors.OK
        )
    keywords = options.select(rlcli.study, locals())
    raise typer.Exit(study_screen.train_and_report(**keywords))


def _as_data(preview: CellPreview) -> dict[str, object]:
    cell = preview.cell
    own = {"cell": cell.label, "values": dict(cell.values), "set": [*cell.sets]}
    return preview._asdict() | own


def _print_preview(cells: Sequence[CellPreview]) -> None:
    """Prints a row for each cell, and the sum of all."""
    from rlcli.runs.cell_table import group_reasons
    from rlcli.runs.formatting import NOTHING, format_duration, format_number_of
    from rlcli.xla.machine import format_size

    console, rows = output.table_console(), []
    for each in cells:
        numbers = [str(each.program), str(each.seeds), f"{each.steps:,}"]
        time = NOTHING if each.seconds is None else format_duration(each.seconds)
        numbers += [format_size(each.memory), time]
        rows.append([each.cell.label, *([NOTHING] * 5 if each.error else numbers)])
    header, is_terminal = ["cell", *_NUMBERS], console.is_terminal
    console.print(
        output.make_table(
            header, rows, text=["cell"], has_rule=is_terminal, pad_edge=False
        )
    )
    for line in group_reasons((e.cell.label, e.error) for e in cells if e.error):
        output.print_message(line)
    programs = {each.program: each for each in cells if not each.error}
    known = [each.seconds for each in programs.values() if each.seconds is not None]
    text = f"{format_number_of(len(cells), 'cell')} in "
    text += f"{format_number_of(len(programs), 'program')}, "
    text += format_number_of(sum(each.seeds for each in cells), "seed")
    if plan := cells[0].plan:
        text += f" in a block, at most {plan['max_seeds'] * len(cells)} in all"
    if known:
        text += f"; about {format_duration(sum(known))} of training, as earlier runs"
    output.print_data(text)
