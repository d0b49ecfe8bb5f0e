r"""Checkpoints: files that are safe to open. Imports JAX only when used.

A file is a header of 52 bytes, followed by one lz4 frame up to the end. All numbers are
little-endian:

    offset  size  what
         0     8  magic: 89 72 6c 63 6c 69 0d 0a (`\x89rlcli\r\n`)
         8     4  format_version; these first 12 bytes mean the same in every version
        12     8  uncompressed size of the frame's content
        20    32  SHA-256 of all other bytes of the file, in order
        52     …  the lz4 frame, which contains a pickle (see `rlcli.runs.pickles`)

Reading does not trust the file. It checks the header, whether the file can contain the
claimed size, and the checksum. It decompresses the frame piece by piece, never beyond
the claimed size, checks the pickle's opcodes, and only then loads the pickle, with an
unpickler that allows no globals.

A file does not depend on clock, path or machine: equal data give equal bytes. A tree of
arrays is stored flat, by tree path; its structure comes from code (`restore_tree`).
"""

import hashlib
import io
import os
import struct
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import lz4.frame
import numpy as np

from rlcli.errors import RlcliError
from rlcli.registry.paths import open_file
from rlcli.runs import pickles
from rlcli.runs.files import replacing
from rlcli.xla.machine import available_memory, format_size
from rlcli.xla.tree_paths import leaves_by_path

MAGIC = b"\x89rlcli\r\n"
FORMAT_VERSION = 1
HEADER_SIZE = 52

_HEADER = struct.Struct("<8sIQ")  # the header up to its checksum
_LZ4_MAGIC = b"\x04\x22\x4d\x18"  # the first bytes of an lz4 frame
_MAX_RATIO = 255  # the largest compression ratio of lz4
_OTHER_FORMATS = {  # by the first bytes of a file
    b"PK\x03\x04": "a zip archive, like PyTorch's checkpoints",
    _LZ4_MAGIC: "an lz4 file, like coax's pickles",
    b"\x80": "a plain pickle, which could run code",
    b"\x89HDF": "an HDF5 file",
    b"\x1f\x8b": "a gzip file",
    b"version https://git-lfs": "a Git LFS pointer: run `git lfs pull`",
}
_COPY_AGAIN = "copy the file again, or use another checkpoint of the run"


def from_bytes(data: bytes, *, source: str | os.PathLike[str] = "data") -> Any:
    """Decodes the bytes of a file; arrays are read-only.

    Errors name the file `source`.
    """
    header, frame = data[:HEADER_SIZE], memoryview(data)[HEADER_SIZE:]
    size = _claimed_size(header, len(data), source)
    digest = hashlib.sha256(header[: _HEADER.size])
    digest.update(frame)
    if digest.digest() != header[_HEADER.size :]:
        raise RlcliError(
            f"`{source}` is damaged: its checksum does not match", _COPY_AGAIN
        )
    try:
        return pickles.decode(_decompress_frame(frame, size))
    except pickles.MalformedError as error:
        raise RlcliError(
            f"`{source}` was not written by rlcli and is refused: it contains {error}",
            "use a checkpoint from a source that you trust",
        ) from error


def write(path: str | os.PathLike[str], data: Any) -> None:
    """Writes a file atomically: at any time `path` is the old file or the new one.

    Plain data are None, bool, int (64 bits), float, str, list, dict with str keys, and
    NumPy arrays. Other types raise a `TypeError` that names the tree path.

    The temporary file is in the same folder, and its name starts with a dot. It is
    written piece by piece, without a copy of `data`.
    """
    head = _HEADER.pack(MAGIC, FORMAT_VERSION, pickles.encoded_size(data))
    digest = hashlib.sha256(head)
    with replacing(Path(path)) as file:
        file.write(bytes(HEADER_SIZE))
        for piece in _compress(pickles.encode(data)):
            digest.update(piece)
            file.write(piece)
        file.seek(0)
        file.write(head + digest.digest())


def _compress(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """The lz4 frame that holds these bytes, in pieces."""
    compressor = lz4.frame.LZ4FrameCompressor()
    yield compressor.begin()
    for piece in pieces:
        yield compressor.compress(piece)
    yield compressor.flush()


def read(path: str | os.PathLike[str]) -> Any:
    """Reads the data of a file; raises an `RlcliError` if it is invalid."""
    path = Path(path)
    try:
        with open_file(path) as file:
            header = file.read(HEADER_SIZE) or b""
            size = os.fstat(file.fileno()).st_size
            _check_available_memory(size, _claimed_size(header, size, path), path)
            file.seek(0)
            data = file.read(size)
    except FileNotFoundError as error:
        raise RlcliError(
            f"there is no checkpoint `{path}`",
            "pass a run's folder, or a `.pkl.lz4` file",
        ) from error
    except OSError as error:
        message = f"`{path}` cannot be read: {error.strerror}"
        raise RlcliError(message, "pass a `.pkl.lz4` file that you can read") from error
    return from_bytes(data, source=path)


def flatten_tree(tree: Any) -> dict[str, np.ndarray]:
    r"""Flattens a tree to host arrays by tree path: `agent/params/linear_0/w`.

    A path consists of NamedTuple fields, dict keys and indices. In a dict key a slash
    is written `\/` and a backslash `\\`, so that no two leaves share a path. Typed JAX
    keys are stored as their uint32 data.
    """
    import jax

    arrays = {}
    for path, leaf in leaves_by_path(tree).items():
        if not isinstance(leaf, jax.Array | np.ndarray | np.generic):
            raise TypeError(f"`{path}`: expected an array, got {type(leaf)}")
        arrays[path] = _encode_leaf(leaf)
    return {path: np.asarray(leaf) for path, leaf in jax.device_get(arrays).items()}


def restore_tree(
    shapes: Any,
    arrays: Mapping[str, np.ndarray],
    *,
    source: str | os.PathLike[str] = "data",
) -> Any:
    """Restores a tree from its arrays by tree path.

    `shapes` is the expected tree of `jax.ShapeDtypeStruct` (from `jax.eval_shape`).
    Missing and surplus leaves, and leaves of another shape or dtype, raise an
    `RlcliError` that names the path. Leaves are NumPy arrays, or typed JAX keys.
    """
    import jax

    leaves = leaves_by_path(shapes)
    expected = {
        path: _describe_leaf(_stored_shape(each)) for path, each in leaves.items()
    }
    stored = {path: _describe_leaf(each) for path, each in arrays.items()}
    for path in sorted(expected.keys() | stored.keys()):
        wanted, found = (each.get(path, "nothing") for each in (expected, stored))
        if wanted != found:
            message = f"`{source}` does not match its recipe: expected {wanted} at "
            hint = "use the recipe and the version of rlcli that wrote the file"
            raise RlcliError(f"{message}`{path}`, got {found}", hint)
    restored = [_restore_leaf(shape, arrays[path]) for path, shape in leaves.items()]
    return jax.tree.unflatten(jax.tree.structure(shapes), restored)


def _claimed_size(header: bytes, file_size: int, source: str | os.PathLike[str]) -> int:
    """The uncompressed size in the header; refused if it is impossible."""
    if not header:
        raise RlcliError(f"`{source}` is empty", _COPY_AGAIN)
    if not header.startswith(MAGIC[: len(header)]):
        formats = _OTHER_FORMATS.items()
        found = [
            f": it is {what}" for start, what in formats if header.startswith(start)
        ]
        message = f"`{source}` is not an rlcli checkpoint{''.join(found)}"
        raise RlcliError(message, "pass a `.pkl.lz4` file from a run's folder")
    if len(header) < HEADER_SIZE:
        raise RlcliError(f"`{source}` is truncated", _COPY_AGAIN)
    _, version, size = _HEADER.unpack_from(header)
    if version > FORMAT_VERSION:
        message = f"`{source}` has format version {version}, but this rlcli only "
        hint = "upgrade: `pip install --upgrade rlcli`"
        raise RlcliError(f"{message}supports {FORMAT_VERSION}", hint)
    if version < FORMAT_VERSION or size > _MAX_RATIO * (file_size - HEADER_SIZE):
        raise RlcliError(f"`{source}` is damaged: its header is invalid", _COPY_AGAIN)
    return size


def _check_available_memory(file_size: int, size: int, source: Path) -> None:
    """Refuses a file that does not fit in memory.

    Reading needs the file, its uncompressed content, and the arrays decoded from it.
    """
    needed, available = file_size + 2 * size, available_memory()
    if available is not None and needed > available.size:
        raise RlcliError(
            f"reading `{source}` needs {format_size(needed)} of memory, but only "
            f"{format_size(available.size)} are available",
            "read it on a machine with more memory",
        )


def _decompress_frame(frame: memoryview, size: int) -> io.BytesIO:
    """Decompresses a frame piece by piece, never beyond `size` bytes."""
    if frame[: len(_LZ4_MAGIC)] != _LZ4_MAGIC:  # lz4 would skip "skippable" frames
        raise pickles.MalformedError("no lz4 frame")
    content, found, start = io.BytesIO(), b"", 0
    decompressor = lz4.frame.LZ4FrameDecompressor()
    while not decompressor.eof and (found or start < len(frame)):
        # As long as there is output, lz4 has the rest of the piece.
        piece = b"" if found else frame[start : start + pickles.PIECE_SIZE]
        start += len(piece)
        room = size - content.tell() + 1  # one more byte would exceed the claimed size
        most = min(room, pickles.PIECE_SIZE)
        try:
            found = decompressor.decompress(piece, max_length=most)
        except RuntimeError as error:  # lz4 has no own exception type
            raise pickles.MalformedError(f"an invalid lz4 frame: {error}") from error
        content.write(found)
        if content.tell() > size:
            raise pickles.MalformedError("more data than its header claims")
    is_whole = decompressor.eof and not decompressor.unused_data
    if not is_whole or start < len(frame) or content.tell() != size:
        reason = "a frame that ends before the file, or before its claimed size"
        raise pickles.MalformedError(reason)
    return content


def _is_key(leaf: Any) -> bool:
    """Whether a leaf is a typed JAX key, which NumPy cannot represent."""
    import jax

    return jax.numpy.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _encode_leaf(leaf: Any) -> Any:
    """The stored form of a leaf: a typed key is stored as its uint32 data."""
    import jax

    return jax.random.key_data(leaf) if _is_key(leaf) else leaf


def _stored_shape(shape: Any) -> Any:
    """The shape and dtype under which a leaf is stored."""
    import jax

    # Other dtypes, such as int64, bypass JAX, which might narrow them.
    return jax.eval_shape(_encode_leaf, shape) if _is_key(shape) else shape


def _restore_leaf(shape: Any, array: np.ndarray) -> Any:
    """The leaf of the program from its stored form: a typed key, or the array."""
    import jax

    if not _is_key(shape):
        return array
    kinds = []
    jax.eval_shape(lambda key: kinds.append(jax.random.key_impl(key)), shape)
    return jax.random.wrap_key_data(jax.numpy.asarray(array), impl=kinds[0])


def _describe_leaf(leaf: Any) -> str:
    """The dtype and shape of a leaf, for a message: `float32[4, 64]`."""
    if not hasattr(leaf, "dtype"):  # a forged file may hold anything
        return f"a {type(leaf).__name__}"
    return f"{leaf.dtype.name}{list(leaf.shape)}"
