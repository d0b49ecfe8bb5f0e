"""Trusting: the folders whose runs need no `--trust`; the function `rlcli trust`."""

import os
from pathlib import Path

from rlcli.errors import RlcliError, quote
from rlcli.registry.paths import resolves
from rlcli.runs import ownership, user_files


@resolves("folder")
def trust(folder: str | Path | None = None, *, forget: bool = False) -> list[Path]:
    """Trusts a folder from now on, and returns all folders that you trust.

    What is in such a folder, now or later, may import the code that it names, as with
    `--trust`: runs, policies, sweeps. rlcli keeps the folders in a file of yours,
    `trusted.json`, beside its other settings.

    Runs that your own rlcli has trained need it only after they were copied or changed.

    Args:
        folder: a folder of runs, or of a single one; without it nothing changes.
        forget: does not trust the folder any more.

    Raises:
        RlcliError: if there is no such folder, or others can write to it.
    """
    folders = ownership.read_trusted()
    if folder is not None:
        full = os.path.realpath(folder)
        if forget:
            folders = _remove(folders, full, folder)
        else:
            _check(Path(full), folder)
            folders = sorted({*folders, full})
        ownership.write_trusted(folders)
    return [Path(each) for each in folders]


def _remove(folders: list[str], full: str, folder: str | Path) -> list[str]:
    if full in folders:
        return [each for each in folders if each != full]
    around = [each for each in folders if Path(full).is_relative_to(each)]
    raise RlcliError(
        f"{quote(folder)} is not among the folders that you trust",
        f"it is in `{around[0]}`, which is" if around else "`rlcli trust` lists them",
    )


def _check(full: Path, folder: str | Path) -> None:
    if not full.is_dir():
        raise RlcliError(f"there is no folder {quote(folder)}")
    if not user_files.is_own(full):
        raise RlcliError(
            f"{quote(folder)} cannot be trusted: others can change it",
            "trust a folder that only you can write to, as well as those around it; "
            "`chmod go-w FOLDER` makes it one",
        )
