"""`rlcli reproduce`: trains a run again, and compares the results bit by bit."""

from pathlib import Path
from typing import Any

import typer

import rlcli
from rlcli import errors
from rlcli.cli import options, output
from rlcli.errors import as_typed


def command(
    run: Path = options.RUN_FOLDER,
    runs: Path = options.option(
        "--runs DIR", "Create the new run below DIR/<recipe>.", default=Path("runs")
    ),
    to: Path | None = options.option("--to DIR", "Create the new run in exactly DIR."),
    max_time: str | None = options.MAX_TIME,
    quiet: bool = options.QUIET,
    trust: bool | None = options.TRUST,
    json: bool = options.JSON,
) -> None:
    """Train a run again from its recipe, and compare bit by bit.

    The recipe is the recorded one. First prints what has changed since, such as
    versions; at the end, whether metrics and state are identical. The exit code is 1 if
    they are not.
    """
    from rlcli.training.stopping import signals  # here, to keep `--help` fast

    run_path = options.choose_run(run, quiet=quiet)
    with signals.own_process(output.data_descriptor()):
        result = options.call(rlcli.reproduce, locals(), run=run_path)
    output.print_data(output.as_json(result) if json else _describe(result))
    raise typer.Exit(errors.OK if result["identical"] else errors.USER_ERROR)


def _describe(result: dict[str, Any]) -> str:
    """The result in words."""
    folder, step = as_typed(result["reproduction"]), f"{result['step']:,}"
    if result["identical"]:
        what = "metrics" if result["state"] is None else "metrics and state"
        return f"`{folder}` is identical to the original: {what} up to step {step}"
    lines = [f"`{folder}` differs from the original"]
    return "\n".join([*lines, *output.describe_differences(result)])
