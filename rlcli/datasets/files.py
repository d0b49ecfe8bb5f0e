"""Files: data sets as `.npz`, without pickles. docs/formats.md specifies the arrays."""

from __future__ import annotations

import io
import json
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from rlcli.datasets.arrays import DatasetArrays, array_names, check_arrays
from rlcli.errors import RlcliError

SUFFIX = ".npz"
VERSION = 1
_FORMAT = "rlcli-dataset"
_METADATA = "metadata"
_FLAT = ("rewards", "terminations", "truncations")
_TREES = ("observations", "actions", "final_observations")


def dump(data: DatasetArrays) -> bytes:
    """The bytes of a data set's file; equal data sets give equal bytes."""
    metadata = {"format": _FORMAT, "format_version": VERSION, **data.metadata}
    text = json.dumps(metadata, ensure_ascii=False, sort_keys=True)
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **array_names(data), **{_METADATA: np.array(text)})  # pyright: ignore[reportArgumentType] # its annotation excludes the names
    return buffer.getvalue()


def load(path: Path) -> DatasetArrays:
    """Reads a data set and checks its arrays; runs no code that is in the file."""
    name = f"data set `{path}`"
    try:
        arrays = _read_arrays(path)
    except (FileNotFoundError, IsADirectoryError) as error:
        raise RlcliError(
            f"there is no data set `{path}`",
            "`rlcli collect RUN --output FILE.npz` writes one",
        ) from error
    except (
        *(OSError, ValueError, EOFError, KeyError, RuntimeError),
        *(zipfile.BadZipFile, zlib.error),
    ) as error:
        raise RlcliError(
            f"{name} cannot be read: {error}",
            "the file may be damaged, or hold objects instead of numbers",
        ) from error
    metadata = _parse_metadata(arrays.pop(_METADATA, None), name)
    missing = [key for key in _FLAT if key not in arrays]
    missing += [
        key
        for key in _TREES
        if not any(each.partition("/")[0] == key for each in arrays)
    ]
    if missing:
        raise RlcliError(
            f"{name} has no array `{missing[0]}`",
            "docs/formats.md lists the arrays of a data set",
        )

    def members(key: str) -> dict[str, np.ndarray]:
        return {
            each.removeprefix(key).removeprefix("/"): array
            for each, array in arrays.items()
            if each.partition("/")[0] == key
        }

    data = DatasetArrays(
        members("observations"),
        members("actions"),
        arrays["rewards"],
        arrays["terminations"],
        arrays["truncations"],
        members("final_observations"),
        metadata,
    )
    check_arrays(data, name)
    return data


def _read_arrays(path: Path) -> dict[str, np.ndarray]:
    with path.open("rb") as file, zipfile.ZipFile(file) as archive:
        names = [info.filename for info in archive.infolist()]
        arrays = {}
        for name in names:
            with archive.open(name) as member:
                array = np.lib.format.read_array(member, allow_pickle=False)
            arrays[name.removesuffix(".npy")] = array
    return arrays


def _parse_metadata(array: np.ndarray | None, name: str) -> Mapping[str, Any]:
    """The metadata of a file; a file without any is of other software."""
    if array is None:
        return {}
    try:
        metadata = json.loads(array.item())
        version = metadata.get("format_version")
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise RlcliError(f"{name} has metadata that are not a JSON object") from error
    if version != VERSION:
        raise RlcliError(
            f"{name} has format version {version!r}, but this rlcli reads {VERSION}",
            "upgrade rlcli, or collect the data again",
        )
    return metadata
