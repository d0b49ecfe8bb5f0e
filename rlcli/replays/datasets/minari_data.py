"""Minari's data sets, by their ids."""

from typing import Any

import numpy as np

from rlcli.errors import RlcliError
from rlcli.registry.libraries import import_library
from rlcli.replays.datasets.dataset_arrays import DatasetArrays, Members, check_arrays
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
    check_arrays(data, f"data set `{id}` of Minari")
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
