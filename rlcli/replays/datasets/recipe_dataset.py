"""Dataset: the data set that a recipe names, read when training needs it."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from rlcli.errors import RlcliError
from rlcli.registry.libraries import import_library
from rlcli.replays.datasets.dataset_arrays import DatasetArrays, Members
from rlcli.replays.datasets.dataset_files import file_digest, load_dataset
from rlcli.replays.datasets.names import HASH, shipped_folder
from rlcli.types import External, Transition
from rlcli.xla.tree_paths import leaves_by_path


def load_minari(id: str) -> DatasetArrays:
    """Reads a data set of Minari, which has to be on this machine."""
    library = import_library("minari", "minari")
    try:
        episodes = list(library.load_dataset(id).iterate_episodes())
    except Exception as error:
        raise RlcliError(
            f"data set `{id}` of Minari cannot be loaded: {error}",
            f"`minari download {id}` downloads it",
        ) from error
    if not episodes:
        raise RlcliError(f"data set `{id}` of Minari has no episodes")
    try:
        data = _to_arrays(episodes, id)
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise RlcliError(
            f"data set `{id}` of Minari has steps that are not arrays of numbers, all "
            "of the same shapes",
            "missions and other text are not supported",
        ) from error
    data.check(f"data set `{id}` of Minari")
    return data


def _to_arrays(episodes: list[Any], id: str) -> DatasetArrays:
    return DatasetArrays(
        observations=_join([_slice(each.observations, 0, -1) for each in episodes]),
        actions=_join([_slice(each.actions, 0, None) for each in episodes]),
        rewards=np.concatenate([np.asarray(each.rewards) for each in episodes]),
        terminations=np.concatenate(
            [np.asarray(each.terminations, bool) for each in episodes]
        ),
        truncations=np.concatenate([_truncations(each) for each in episodes]),
        final_observations=_join(
            [_slice(each.observations, -1, None) for each in episodes]
        ),
        metadata={"minari": id},
    )


def _truncations(episode: Any) -> np.ndarray:
    """Where an episode was cut off: also at its end, if that is no end of its own."""
    truncations = np.array(episode.truncations, bool)
    truncations[-1] |= not episode.terminations[-1]
    return truncations


def _slice(tree: Any, start: int, stop: int | None) -> Members:
    """Rows of each array of an episode, by tree path."""
    return {
        path: np.asarray(leaf)[start:stop]
        for path, leaf in leaves_by_path(tree).items()
    }


def _join(parts: list[Members]) -> Members:
    return {path: np.concatenate([part[path] for part in parts]) for path in parts[0]}


class Dataset(NamedTuple):
    """A data set by its name: a file, or the id of a data set of Minari.

    Nothing is read before `read`: a policy that was trained on a data set acts without.
    """

    source: str  # a file, or an id; relative files are those that come with rlcli
    sha256: str | None = None  # of its content; None if any content will do
    is_minari: bool = False

    @staticmethod
    def parse(text: str, *, is_minari: bool = False) -> Dataset:
        """The data set of an option, `SOURCE` or `SOURCE#sha256=…`."""
        source, mark, sha256 = text.partition(HASH)
        return Dataset(source, sha256 if mark else None, is_minari)

    @property
    def name(self) -> str:
        """The name in messages."""
        return f"data set `{self.source}`"

    def read(self, external: External, owner: str) -> Transition:
        """The steps as rows `[N, ...]` of NumPy arrays, in canonical spaces.

        Refuses other content than `sha256`, and arrays that do not match the spaces of
        the environment `owner`.
        """
        if self.sha256 is not None and self.digest() != self.sha256:
            raise RlcliError(
                f"{self.name} has changed: its SHA-256 is {self.digest()}, but the "
                f"recipe names `{self.sha256}`",
                "restore the data that the run was started with, or start a new run "
                f"without `{HASH}…`",
            )
        return self.arrays().to_transitions(external, self.name, owner)

    def arrays(self) -> DatasetArrays:
        """The arrays of the data set, checked."""
        if self.is_minari:
            return load_minari(self.source)
        return load_dataset(self._path())

    def digest(self) -> str:
        """The SHA-256 of the file; for Minari, of its arrays."""
        if not self.is_minari:
            return file_digest(self._path())
        content = hashlib.sha256()
        for name, array in self.arrays().by_name().items():
            content.update(f"{name} {array.dtype} {array.shape}\n".encode())
            content.update(array.tobytes())
        return content.hexdigest()

    def _path(self) -> Path:
        path = Path(self.source)
        return path if path.is_absolute() else shipped_folder() / path
