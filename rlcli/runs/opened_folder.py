"""Opened folder: the door through which a folder enters a command.

The folder of a sweep, of `rlcli bsuite` or of several runs may come from elsewhere.
What it may do is decided once, when a command opens it:

- Its paths are those that `find` returns: no link leads out of the folder. The
  functions of `rlcli.runs.files` open them, which refuse pipes and devices.
- Its recipe is loaded by `load_recipe`. Without `trust` it imports nothing from outside
  rlcli and its plug-ins, and starts no tracker that contacts a host. The processes that
  train its runs get the same rule, by `train_options` and `resume_options`.
- Addresses of databases and stores in it are text: a command uses only those that its
  user names, see `check_address`.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from rlcli.errors import RlcliError, quote
from rlcli.recipe import Recipe, load_to_train
from rlcli.runs.files import make_folder, name_file_in_errors, refuse_link
from rlcli.runs.ownership import is_remembered
from rlcli.runs.run_folder import trust_option

_LONGEST = 200  # characters of an address in a message
# Not `Self`, which the checks of types at run time do not know in a method.
_Folder = TypeVar("_Folder", bound="OpenedFolder")


@dataclass(frozen=True)
class OpenedFolder:
    """A folder that may come from elsewhere, and whether its user trusts it.

    `folder` is the path that the user has named, which may be a link itself. `trust`:
    the user has passed `--trust`, or trusts the folder for all commands, or this
    command has created it.
    """

    folder: Path
    trust: bool = False

    @classmethod
    def open(cls: type[_Folder], folder: str | Path, trust: bool | None) -> _Folder:
        """Opens a folder; `trust` None: only if the user trusts it for all commands."""
        path = Path(folder)
        return cls(path, is_remembered(path) if trust is None else trust)

    def find(self, *names: str) -> Path:
        """The path of a file or folder in it, which may be missing.

        Raises an `RlcliError` if it, or a folder on the way, is a symbolic link.
        """
        path = self.folder
        for name in names:
            path /= name
            refuse_link(path)
        return path

    def refuse_links(self, *names: str) -> None:
        """Refuses links in place of these folders, and links in them."""
        for name in names:
            folder = self.find(name)
            with name_file_in_errors(folder, "read"):
                entries = os.scandir(folder) if folder.is_dir() else ()
                links = [each.path for each in entries if each.is_symlink()]
            for path in sorted(links)[:1]:
                refuse_link(Path(path))

    def make(self, *names: str) -> Path:
        """Creates a folder in it, unless it exists; refuses links as `find` does."""
        return make_folder(self.folder, *names)

    def load_recipe(self, recipe: str, sets: Sequence[str]) -> Recipe:
        """The recipe that the folder names, with settings of the folder."""
        return load_to_train(recipe, sets, trust=self.trust)

    @property
    def train_options(self) -> list[str]:
        """The options of `rlcli train` for recipes and settings of the folder."""
        return [] if self.trust else ["--no-trust"]

    @property
    def resume_options(self) -> list[str]:
        """The options of `rlcli resume` for runs of the folder."""
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
