"""`rlcli trust`: the folders whose runs need no `--trust`."""

from pathlib import Path

import typer

import rlcli
from rlcli.cli import options, output


def command(
    folder: Path | None = options.argument("FOLDER", "A folder of runs.", default=None),
    forget: bool = options.flag("--forget", "Trust the folder no more."),
    json: bool = options.JSON,
) -> None:
    """Trust the code of all runs in a folder, or list such folders.

    The runs, and those that come later, may import the code that they name, as with
    `--trust`. Runs that your own rlcli has trained need no trust, until they are copied
    or changed.
    """
    if forget and folder is None:
        raise typer.BadParameter("requires a folder", param_hint="--forget")
    folders = rlcli.trust(folder, forget=forget)
    if json:
        output.print_data(output.as_json({"folders": folders}))
        return
    for each in folders:
        output.print_data(each)
