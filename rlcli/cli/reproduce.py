"""`rlcli reproduce`: trains a run again, and compares the results bit by bit."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

import rlcli
from rlcli import errors
from rlcli.cli import options, output
from rlcli.cli.options import Json, MaxTime, Quiet, RunFolder, Trust


def command(
    run: RunFolder,
    runs: Annotated[
        Path,
        typer.Option(
            "--runs", metavar="DIR", help="Create the new run below DIR/<recipe>."
        ),
    ] = Path("runs"),
    to: Annotated[
        Path | None,
        typer.Option("--to", metavar="DIR", help="Create the new run in exactly DIR."),
    ] = None,
    max_time: MaxTime = None,
    quiet: Quiet = False,
    trust: Trust = False,
    json: Json = False,
) -> None:
    """Train a run again from its recipe, and compare bit by bit.

    The recipe is the recorded one. First prints what has changed since, such as
    versions; at the end, whether metrics and state are identical. The exit code is 1 if
    they are not.
    """
    from rlcli.training import signals  # here, to keep `--help` fast

    limit = options.parse_deadline(max_time)
    run_path = options.choose_run(run, quiet=quiet)
    with signals.own_process(output.data_descriptor()):
        result = rlcli.reproduce(
            run_path, runs=runs, to=to, max_time=limit, quiet=quiet, trust=trust
        )
    output.print_data(output.as_json(result) if json else _describe(result))
    raise typer.Exit(errors.OK if result["identical"] else errors.USER_ERROR)


def _describe(result: dict[str, Any]) -> str:
    """The result in words."""
    folder, step = result["reproduction"], f"{result['step']:,}"
    if result["identical"]:
        what = "metrics" if result["state"] is None else "metrics and state"
        return f"`{folder}` is identical to the original: {what} up to step {step}"
    lines = [f"`{folder}` differs from the original"]
    return "\n".join([*lines, *output.describe_differences(result)])
