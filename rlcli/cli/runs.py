"""`rlcli runs`: lists runs."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

import rlcli
from rlcli.cli import options, output
from rlcli.errors import RlcliError
from rlcli.quoting import quote_rich

if TYPE_CHECKING:
    from rich.console import RenderableType

    from rlcli.runs.records import Record

PERIOD = 1.0  # seconds between two updates of `--watch`


def command(
    folder: Path = options.argument(
        "DIR", "A folder that contains runs.", default=Path("runs")
    ),
    filter: list[str] = options.FILTER,
    tag: list[str] = options.TAGGED,
    sort: str = options.option(
        "--sort FIELD",
        "`created`, `return` or `steps`, the highest first; `status`, "
        "`recipe` or `name`.",
        default="created",
        words=("created", "return", "steps", "status", "recipe", "name"),
    ),
    watch: bool = options.flag("--watch", "Update the list until Ctrl-C."),
    json: bool = options.JSON,
) -> None:
    """List runs: changed options, status, steps, return and age.

    The return is that of the last evaluation. For several seeds, it is the
    interquartile mean (IQM) with its 95 % bootstrap interval. Below are the studies
    that have not finished, with their cells by status.
    """
    keywords: dict[str, Any] = {"filter": filter, "tag": tag, "sort": sort}
    if watch and json:
        raise typer.BadParameter(
            "cannot be combined with `--json`", param_hint="--watch"
        )
    if watch:
        _watch(folder, keywords)
        return
    records = rlcli.runs(folder, **keywords)
    if json:
        output.print_json(records)
    elif records:
        console = output.table_console()
        console.print(_table(records, folder, console.width))
    else:
        output.print_message(f"no run in `{folder}`{' matches' * bool(filter or tag)}")


def _table(records: Sequence[Record], folder: Path, width: int) -> RenderableType:
    """The runs, and below them the states of studies that have not finished."""
    from rich.console import Group

    from rlcli.cli import tables  # here, to keep `--help` fast
    from rlcli.runs.cell_table import describe_studies

    lines = map(quote_rich, describe_studies(folder, records))
    return Group(tables.runs_table(records, folder, width), *lines)


def _watch(folder: Path, keywords: Mapping[str, Any]) -> None:
    """Shows the table until Ctrl-C, for at most a tenth of the time of one core."""
    from rich.live import Live

    console = output.console()
    if not console.is_terminal:
        raise RlcliError("`--watch` requires a terminal", "remove `--watch`")
    with (
        contextlib.suppress(KeyboardInterrupt),
        Live(console=console, auto_refresh=False, vertical_overflow="ellipsis") as live,
    ):
        while True:
            start = time.perf_counter()
            records = rlcli.runs(folder, **keywords)
            live.update(_table(records, folder, console.width), refresh=True)
            time.sleep(max(PERIOD, 9 * (time.perf_counter() - start)))
