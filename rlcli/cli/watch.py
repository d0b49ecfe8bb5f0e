"""`rlcli watch`: shows the panel of a run that another process trains."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

import rlcli
from rlcli.cli import options, output
from rlcli.cli.options import Json

# The command to try next by the status of the run; else `resume`.
_NEXT = {"finished": "eval", "stopped": "eval", "failed": "show", "broken": "show"}


def command(
    run: Annotated[
        Path,
        typer.Argument(metavar="RUN", help="The folder of a run.", show_default=False),
    ],
    json: Json = False,
) -> None:
    """Show the progress of a running run until it ends.

    Reads its files only: Ctrl-C leaves the run alone.
    """
    chosen = options.choose_run(run)
    name = shlex.quote(str(chosen))
    try:
        record = rlcli.watch(chosen)
    except KeyboardInterrupt:
        output.print_message(f"the run continues; next: rlcli watch {name}")
        return
    if json:
        output.print_data(output.as_json(record))
    verb = _NEXT.get(record["status"], "resume")
    reason = f": {record['reason']}" if record["reason"] else ""
    output.print_message(f"{record['status']}{reason}\nnext: rlcli {verb} {name}")
