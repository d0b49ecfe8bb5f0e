"""Trained together: finds the runs that share the program of a run."""

from __future__ import annotations

from rlcli.errors import RlcliError, quote
from rlcli.runs.run_folder import Run, is_run


def find_trained_together(run: Run) -> list[Run]:
    """The runs that are trained together with a run, itself included, in order."""
    names = run.read_info().get("members")
    if names is None:
        return [run]
    folder = run.folder.absolute()
    if folder.name not in names:
        raise RlcliError(
            f"`{run.folder}` was trained together with other runs, under another name",
            f"restore its name: one of {', '.join(map(quote, names))}",
        )
    members = [
        run if name == folder.name else Run(run.folder.parent / name) for name in names
    ]
    for member in members:
        if not is_run(member.folder):
            raise RlcliError(
                f"`{run.folder}` was trained together with `{member.folder}`, which is "
                "missing",
                "restore its folder, or train a new run",
            )
        info = member.read_info()  # {} if it is missing: a checkpoint recreates it
        if info and info.get("members") != names:
            raise RlcliError(
                f"`{run.info}` and `{member.info}` name different runs that were "
                "trained together",
                "restore the field `members` of both files",
            )
    return members
