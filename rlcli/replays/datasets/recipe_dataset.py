"""Dataset: the data set that a recipe names, read when training needs it."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import NamedTuple

from rlcli.errors import RlcliError
from rlcli.replays.datasets import minari_data
from rlcli.replays.datasets.dataset_arrays import (
    DatasetArrays,
    array_names,
    to_transitions,
)
from rlcli.replays.datasets.dataset_files import file_digest, load_dataset
from rlcli.replays.datasets.names import HASH, shipped_folder
from rlcli.types import External, Transition


class Dataset(NamedTuple):
    """A data set by its name: a file, or the id of a data set of Minari.

    Nothing is read before `read`: a policy that was trained on a data set acts without.
    """

    source: str  # a file, or an id; relative files are those that come with rlcli
    sha256: str = ""  # of its content; "" if any content will do
    is_minari: bool = False

    @staticmethod
    def parse(text: str, *, is_minari: bool = False) -> Dataset:
        """The data set of an option, `SOURCE` or `SOURCE#sha256=…`."""
        source, _, sha256 = text.partition(HASH)
        return Dataset(source, sha256, is_minari)

    @property
    def name(self) -> str:
        """The name in messages."""
        return f"data set `{self.source}`"

    def read(self, external: External, owner: str) -> Transition:
        """The steps as rows `[N, ...]` of NumPy arrays, in canonical spaces.

        Refuses other content than `sha256`, and arrays that do not match the spaces of
        the environment `owner`.
        """
        if self.sha256 and self.digest() != self.sha256:
            raise RlcliError(
                f"{self.name} has changed: its SHA-256 is {self.digest()}, but the "
                f"recipe names {self.sha256}",
                "restore the data that the run was started with, or start a new run "
                f"without `{HASH}…`",
            )
        return to_transitions(self.arrays(), external, self.name, owner)

    def arrays(self) -> DatasetArrays:
        """The arrays of the data set, checked."""
        if self.is_minari:
            return minari_data.load_minari(self.source)
        return load_dataset(self._path())

    def digest(self) -> str:
        """The SHA-256 of the file; for Minari, of its arrays."""
        if not self.is_minari:
            return file_digest(self._path())
        content = hashlib.sha256()
        for name, array in array_names(self.arrays()).items():
            content.update(f"{name} {array.dtype} {array.shape}\n".encode())
            content.update(array.tobytes())
        return content.hexdigest()

    def _path(self) -> Path:
        path = Path(self.source)
        return path if path.is_absolute() else shipped_folder() / path
