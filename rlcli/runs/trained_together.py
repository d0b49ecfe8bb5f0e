"""Trained together: the runs that share a program, by the field `members`."""

from collections.abc import Sequence

from rlcli.errors import RlcliError, quote
from rlcli.runs.files import refuse_link
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
        if member is not run:  # whose path the user has named
            refuse_link(member.folder)
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


def change_members(runs: Sequence[Run]) -> None:
    """Makes runs in one folder the only ones that are trained together.

    Others that were trained with them are alone from now on. Continues where a process
    was killed that did the same.
    """
    names = [run.folder.name for run in runs]
    before = [run.read_info().get("members", names) for run in runs]
    others = {name for members in before for name in members}.difference(names)
    for name in sorted(others):
        other = Run(runs[0].folder.parent / name)
        refuse_link(other.folder)
        if other.read_info().get("members", [name]) != [name]:
            other.write_info(members=[name])
    for run, members in zip(runs, before, strict=True):
        if members != names:
            run.write_info(members=names)
