"""`rlcli runs`: lists runs."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

import rlcli
from rlcli.cli import completion, output
from rlcli.cli.options import Json
from rlcli.errors import RlcliError

PERIOD = 1.0  # seconds between two updates of `--watch`


def command(
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="[DIR]", help="A folder that contains runs.", show_default=True
        ),
    ] = Path("runs"),
    filter: Annotated[
        list[str],
        typer.Option(
            "--filter",
            metavar="KEY=VALUE",
            help="Only runs with this option or field: `updater.name=ppo`, "
            "`status!=finished`, `recipe=dqn_*`. Can be repeated.",
        ),
    ] = [],  # noqa: B006 - Typer copies it, and supports no other empty default
    tag: Annotated[
        list[str],
        typer.Option(
            "--tag", metavar="TAG", help="Only runs with this tag. Can be repeated."
        ),
    ] = [],  # noqa: B006
    sort: Annotated[
        str,
        typer.Option(
            "--sort",
            metavar="FIELD",
            autocompletion=completion.complete_word(
                "created", "return", "steps", "status", "recipe", "name"
            ),
            help="`created`, `return` or `steps`, the highest first; `status`, "
            "`recipe` or `name`.",
        ),
    ] = "created",
    watch: Annotated[
        bool, typer.Option("--watch", help="Update the list until Ctrl-C.")
    ] = False,
    json: Json = False,
) -> None:
    """List runs: changed options, status, steps, return and age.

    The return is that of the last evaluation. For several seeds, it is the
    interquartile mean (IQM) with its 95 % bootstrap interval.
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
        output.print_data(output.as_json(records))
    elif records:
        _print(records, folder)
    else:
        output.print_message(f"no run in `{folder}`{' matches' * bool(filter or tag)}")


def _print(records: Sequence[Mapping[str, Any]], folder: Path) -> None:
    from rlcli.cli import tables  # here, to keep `--help` fast

    console = output.table_console()
    console.print(tables.runs_table(records, folder, console.width))


def _watch(folder: Path, keywords: Mapping[str, Any]) -> None:
    """Shows the table until Ctrl-C, for at most a tenth of the time of one core."""
    from rich.live import Live

    from rlcli.cli import tables

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
            table = tables.runs_table(records, folder, console.width)
            live.update(table, refresh=True)
            time.sleep(max(PERIOD, 9 * (time.perf_counter() - start)))
