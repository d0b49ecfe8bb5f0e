"""Files: data sets as `.npz`, without pickles. docs/formats.md specifies the arrays."""

import contextlib
import hashlib
import io
import json
import math
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from rlcli.errors import RlcliError
from rlcli.registry.paths import open_file
from rlcli.replays.datasets.dataset_arrays import FLAT, OPTIONAL, TREES, DatasetArrays
from rlcli.xla.machine import available_memory, format_size

VERSION = 1
_FORMAT = "rlcli-dataset"
_METADATA = "metadata"
_MOST_ARRAYS = 2**14  # each takes far more time and memory than its bytes
_LARGEST_METADATA = 2**24  # bytes, four of a character
_HEADERS = {  # readers of headers, by the version of NumPy's format
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}


def dump_dataset(data: DatasetArrays) -> bytes:
    """The bytes of a data set's file; equal data sets give equal bytes."""
    metadata = {"format": _FORMAT, "format_version": VERSION, **data.metadata}
    text = json.dumps(metadata, ensure_ascii=False, sort_keys=True)
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **data.by_name(), **{_METADATA: np.array(text)})  # pyright: ignore[reportArgumentType] # its annotation excludes the names
    return buffer.getvalue()


def load_dataset(path: Path) -> DatasetArrays:
    """Reads a data set and checks its arrays; runs no code that is in the file."""
    name = f"data set `{path}`"
    with _open(path) as file:
        arrays = _read_arrays(file, name)
    metadata = _parse_metadata(arrays.pop(_METADATA, None), name)
    missing = [key for key in FLAT if key not in arrays]
    missing += [
        key
        for key in TREES
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
        members(OPTIONAL),
    )
    data.check(name)
    return data


def file_digest(path: Path) -> str:
    """The SHA-256 of the file of a data set."""
    digest = hashlib.sha256()
    with _open(path) as file:
        while piece := file.read(2**20):  # `hashlib.file_digest` would wait for more
            digest.update(piece)
    return digest.hexdigest()


@contextlib.contextmanager
def _open(path: Path) -> Iterator[io.BufferedReader]:
    """Opens a data set; any problem with the file raises an `RlcliError`."""
    try:
        with open_file(path) as file:
            yield file
    except RlcliError:
        raise
    except (FileNotFoundError, IsADirectoryError) as error:
        raise RlcliError(
            f"there is no data set `{path}`",
            "`rlcli collect RUN --output FILE.npz` writes one",
        ) from error
    except Exception as error:  # zipfile, zlib and NumPy raise many on damaged files
        raise RlcliError(
            f"data set `{path}` cannot be read: {error or type(error).__name__}",
            "the file may be damaged, or hold objects instead of numbers",
        ) from error


def _read_arrays(file: io.BufferedReader, name: str) -> dict[str, np.ndarray]:
    with zipfile.ZipFile(file) as archive:
        members = archive.infolist()
        if len(members) > _MOST_ARRAYS:
            raise ValueError(f"it has {len(members):,} arrays")
        # Together with the next observations, which the rows of a replay contain.
        needed = 2 * sum(member.file_size for member in members)
        available = available_memory()
        if available is not None and needed > available.size:
            raise RlcliError(
                f"reading {name} needs {format_size(needed)} of memory, but only "
                f"{format_size(available.size)} are available",
                "use a smaller data set, or a machine with more memory",
            )
        return {
            member.filename.removesuffix(".npy"): _read_array(archive, member)
            for member in members
        }


def _read_array(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> np.ndarray:
    """Reads one array, in no more memory than the archive declares for it.

    NumPy would allocate what the header of the array claims before it reads the data.
    """
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        # Python decompresses other methods without a limit.
        raise ValueError(f"`{info.filename}` is compressed by an unsupported method")
    with archive.open(info) as member:
        version = np.lib.format.read_magic(member)
        if version not in _HEADERS:
            raise ValueError(f"`{info.filename}` is not an array of numbers")
        shape, is_fortran, dtype = _HEADERS[version](member)
        size = math.prod(shape) * dtype.itemsize
        if dtype.hasobject:
            raise ValueError(f"`{info.filename}` holds objects")
        if not 0 <= size <= info.file_size:
            raise ValueError(f"`{info.filename}` has an invalid header")
        content = member.read(size)
        if len(content) < size or member.read(1):
            raise ValueError(f"`{info.filename}` has another size than its header says")
    array = np.ndarray(shape, dtype, content, order="F" if is_fortran else "C")
    # The bytes of a bool may be any, but NumPy computes with 0 and 1 only.
    return array.view(np.uint8) != 0 if dtype == np.bool_ else array


def _parse_metadata(array: np.ndarray | None, name: str) -> Mapping[str, Any]:
    """The metadata of a file; a file without any is of other software."""
    if array is None:
        return {}
    try:
        if array.nbytes > _LARGEST_METADATA:  # values take far more memory than text
            raise ValueError("too long")
        metadata = json.loads(array.item())
        version = metadata.get("format_version")
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise RlcliError(f"the metadata of {name} is not a JSON object") from error
    if version != VERSION:
        raise RlcliError(
            f"{name} has format version {version!r}, but this rlcli reads {VERSION}",
            "upgrade rlcli, or collect the data again",
        )
    return metadata
