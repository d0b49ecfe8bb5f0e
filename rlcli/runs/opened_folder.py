"""Opened folder: the door through which a folder enters a command.

The folder of a sweep, of `rlcli bsuite` or of several runs may come from elsewhere.
What it may do is decided once, when a command opens it:

- Its paths are those that `find` returns: no link leads out of the folder. The
  functions of `rlcli.runs.files` open them, which refuse pipes and devices.
- Unless it `admits_code`, the recipes of its record import nothing from outside rlcli
  and its plug-ins, and start no tracker that contacts a host. The processes that train
  its runs get the same rule, by `options`, and decide again.
- Addresses of databases and stores in it are text: a command uses only those that its
  user names, see `check_address`.
"""

import functools
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlcli.errors import RlcliError, quote
from rlcli.runs import files, predicates
from rlcli.runs.ownership import is_trusted
from rlcli.runs.run_folder import trust_option
from rlcli.runs.study_record import FILE_NAME, Study, find_study, is_signed

_LONGEST = 200  # characters of an address in a message


@dataclass(frozen=True)
class OpenedFolder:
    """A folder that may come from elsewhere, and whether its user trusts it.

    `folder` is the path that the user has named, which may be a link itself. `trust` is
    what the user says about it and all that is in it, by `--trust` or `--no-trust`, or
    by creating it. None: the record of the folder, and each run in it, may do what is
    the user's own, or what `rlcli trust` allows.
    """

    folder: Path
    trust: bool | None = None

    @functools.cached_property
    def admits_code(self) -> bool:
        """Whether recipes of its record may import code, and contact hosts.

        Runs in it have signatures of their own: that of the record is none of them.
        """
        is_own = self.trust is None and is_signed(self.folder)
        return is_own or is_trusted(self.trust, self.folder)

    def find(self, *names: str) -> Path:
        """The path of a file or folder in it, which may be missing.

        Raises an `RlcliError` if it, or a folder on the way, is a symbolic link.
        """
        path = self.folder
        for name in names:
            path /= name
            files.refuse_link(path)
        return path

    @property
    def record(self) -> Path:
        """The record of a study: how it was started, and its cells."""
        return self.find(FILE_NAME)

    def read_study(self) -> Study:
        """The study in it; one without cells and sections if there is none."""
        return find_study(self.record.parent) or Study(self.folder, ())

    def read_section(
        self, name: str, fields: Mapping[str, predicates.Predicate]
    ) -> dict[str, Any]:
        """A section of the record; refuses fields that are missing or damaged."""
        section = self.read_study().sections.get(name)
        if not isinstance(section, dict):
            section, fields = {name: section}, {name: predicates.is_mapping}
        files.check_fields(self.record, section, fields, files.REMEDY, may_lack=False)
        return section

    def refuse_links(self, *names: str) -> None:
        """Refuses links in place of these folders, and links in them."""
        for name in names:
            folder = self.find(name)
            with files.name_file_in_errors(folder, "read"):
                entries = os.scandir(folder) if folder.is_dir() else ()
                links = [each.path for each in entries if each.is_symlink()]
            for path in sorted(links)[:1]:
                files.refuse_link(Path(path))

    def make(self, *names: str) -> Path:
        """Creates a folder in it, unless it exists; refuses links as `find` does."""
        return files.make_folder(self.folder, *names)

    @property
    def options(self) -> list[str]:
        """The options of processes that train runs of the folder."""
        return trust_option(self.trust)

    def check_address(
        self, option: str, recorded: str | None, given: str | None
    ) -> None:
        """Refuses an address in the folder that the user has not named as well.

        `option` is the command-line option, such as `--storage`.
        """
        if recorded == given:
            return
        if given is None:
            raise RlcliError(
                f"`{self.folder}` was started with `{option}` "
                f"{quote(recorded, _LONGEST)}: a folder cannot choose an address",
                f"pass `{option}` again, if you trust the address",
            )
        before = "none" if recorded is None else quote(recorded, _LONGEST)
        raise RlcliError(
            f"`{self.folder}` was started with `{option}` {before}, not "
            f"{quote(given, _LONGEST)}",
            "pass the same address, or start a new sweep",
        )
