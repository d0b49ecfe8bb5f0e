r"""Checkpoints: files that are safe to open. Imports JAX only when used.

A file is a header of 52 bytes, then one lz4 frame up to its end. All numbers are
little-endian:

    offset  size  what
         0     8  magic: 89 72 6c 63 6c 69 0d 0a (`\x89rlcli\r\n`)
         8     4  format_version; these first 12 bytes mean the same in every version
        12     8  size of what the frame holds, uncompressed
        20    32  SHA-256 of every other byte of the file, in their order
        52     …  the lz4 frame; it holds a pickle (see `rlcli.runs.pickles`)

Reading believes nothing: the header first, then whether the file could hold what it
claims, the checksum, the frame piece by piece and no byte beyond the claim, the
pickle's opcodes, and only then the pickle, by an unpickler that admits no global.

Nothing in a file depends on clock, path or machine: equal data are equal bytes. A tree
of arrays is stored flat, by tree path; its structure comes from code (`restore_tree`).
"""

from __future__ import annotations

import errno
import hashlib
import io
import os
import stat
import struct
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import lz4.frame
import numpy as np

from rlcli.errors import RlcliError
from rlcli.runs import pickles
from rlcli.runs.files import replacing
from rlcli.xla.machine import available_memory, format_size
from rlcli.xla.tree_paths import leaves_by_path

MAGIC = b"\x89rlcli\r\n"
FORMAT_VERSION = 1
HEADER_SIZE = 52

_HEADER = struct.Struct("<8sIQ")  # the header up to its checksum
_LZ4_MAGIC = b"\x04\x22\x4d\x18"  # how an lz4 frame begins
_MAX_RATIO = 255  # lz4 packs no tighter: a byte says at most "255 more of the same"
_OTHER_FORMATS = {  # how other files begin
    b"PK\x03\x04": "a zip archive, as PyTorch's checkpoints are",
    _LZ4_MAGIC: "an lz4 file, as coax's pickles are",
    b"\x80": "a plain pickle, which could run code",
    b"\x89HDF": "an HDF5 file",
    b"\x1f\x8b": "a gzip file",
    b"version https://git-lfs": "a pointer of Git LFS: see `git lfs pull`",
}
_COPY_AGAIN = (
    "copy it again from where it came from, or take another checkpoint of the run"
)


def to_bytes(data: Any) -> bytes:
    """The bytes of a file that holds `data`.

    `data` is plain: None, bool, int (64 bits), float, str, list, dict by str, and NumPy
    arrays. Anything else is a `TypeError` that names its tree path.
    """
    file = io.BytesIO()
    _write_to(file, data)
    return file.getvalue()


def from_bytes(data: bytes, *, source: str | os.PathLike[str] = "data") -> Any:
    """The data in the bytes of a file; its arrays are read-only.

    `source` is what an `RlcliError` calls the file.
    """
    header, frame = data[:HEADER_SIZE], memoryview(data)[HEADER_SIZE:]
    size = _claimed_size(header, len(data), source)
    if _checksum(header[: _HEADER.size], frame) != header[_HEADER.size :]:
        raise RlcliError(
            f"`{source}` is damaged: its checksum does not fit", _COPY_AGAIN
        )
    try:
        return pickles.decode(_decompress_frame(frame, size))
    except pickles.MalformedError as error:
        raise RlcliError(
            f"`{source}` was not written by rlcli and is not opened: it holds {error}",
            "take a checkpoint from a source that you trust",
        ) from error


def write(path: str | os.PathLike[str], data: Any) -> None:
    """Writes a file, atomically: at every moment `path` is the old file or the new one.

    The temporary file lies in the same folder, and its name starts with a dot.
    """
    path = Path(path)
    try:
        with replacing(path) as file:
            _write_to(file, data)
    except OSError as error:
        raise RlcliError(
            f"`{path}` cannot be written: {error.strerror}",
            "see that its folder exists, may be written to, and has room",
        ) from error


def _write_to(file: BinaryIO, data: Any) -> None:
    """Writes the bytes of a file, piece by piece: none of `data` is held twice."""
    head = _HEADER.pack(MAGIC, FORMAT_VERSION, pickles.encoded_size(data))
    digest = hashlib.sha256(head)
    file.write(bytes(HEADER_SIZE))
    for piece in _compressed(pickles.encode(data)):
        digest.update(piece)
        file.write(piece)
    file.seek(0)
    file.write(head + digest.digest())


def _compressed(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """The lz4 frame that holds these bytes, in pieces."""
    compressor = lz4.frame.LZ4FrameCompressor()
    yield compressor.begin()
    for piece in pieces:
        yield compressor.compress(piece)
    yield compressor.flush()


def read(path: str | os.PathLike[str]) -> Any:
    """The data in a file; an `RlcliError` says what is wrong with it."""
    path = Path(path)
    try:
        if not stat.S_ISREG(path.stat().st_mode):  # opening a pipe would wait for ever
            raise OSError(errno.EISDIR, "it is a folder or a device, not a file")
        with path.open("rb") as file:
            header = file.read(HEADER_SIZE)
            size = os.fstat(file.fileno()).st_size
            _check_memory(size, _claimed_size(header, size, path), path)
            file.seek(0)
            data = file.read()
    except FileNotFoundError as error:
        raise RlcliError(
            f"there is no checkpoint `{path}`",
            "name a run's folder, or a `.pkl.lz4` file that lies in one",
        ) from error
    except OSError as error:
        raise RlcliError(
            f"`{path}` cannot be read: {error.strerror}",
            "name a `.pkl.lz4` file that you may read",
        ) from error
    return from_bytes(data, source=path)


def flatten_tree(tree: Any) -> dict[str, np.ndarray]:
    r"""The arrays of a tree by tree path, on the host: `agent/params/linear_0/w`.

    A path is made of NamedTuple fields, dict keys and indices. In a dict key a slash is
    written `\/` and a backslash `\\`, so that no two leaves share a path. The typed
    keys of JAX are stored as their data, of uint32.
    """
    import jax

    arrays = {}
    for path, leaf in leaves_by_path(tree).items():
        if not isinstance(leaf, jax.Array | np.ndarray | np.generic):
            raise TypeError(f"`{path}`: expected an array, got {type(leaf)}")
        arrays[path] = _to_stored(leaf)
    return {path: np.asarray(leaf) for path, leaf in jax.device_get(arrays).items()}


def restore_tree(
    shapes: Any,
    arrays: Mapping[str, np.ndarray],
    *,
    source: str | os.PathLike[str] = "data",
) -> Any:
    """The tree of which `arrays` are the leaves.

    `shapes` is the tree that the program expects, of `jax.ShapeDtypeStruct` (from
    `jax.eval_shape`). A leaf too few, too many or of another shape or dtype is an
    `RlcliError` that names its path. Leaves are NumPy arrays, and typed JAX keys.
    """
    import jax

    expected_leaves = leaves_by_path(shapes)
    for path in sorted(expected_leaves.keys() | arrays.keys()):
        is_saved, expected_type = "nothing", "nothing"
        if path in arrays:
            is_saved = _describe_leaf(arrays[path])
        if path in expected_leaves:
            expected_type = _describe_leaf(_stored_shape(expected_leaves[path]))
        if is_saved != expected_type:
            raise RlcliError(
                f"`{source}` does not fit its recipe: at `{path}` it holds {is_saved}, "
                f"where {expected_type} is expected",
                "use the recipe and the version of rlcli that it was written with",
            )
    return jax.tree.unflatten(
        jax.tree.structure(shapes),
        [_restore_leaf(shape, arrays[path]) for path, shape in expected_leaves.items()],
    )


def _claimed_size(header: bytes, file_size: int, source: str | os.PathLike[str]) -> int:
    """How much the header claims that the frame holds; refused if it cannot be."""
    if not header:
        raise RlcliError(f"`{source}` is empty", _COPY_AGAIN)
    if not header.startswith(MAGIC[: len(header)]):
        formats = [
            what for start, what in _OTHER_FORMATS.items() if header.startswith(start)
        ]
        raise RlcliError(
            f"`{source}` is no checkpoint of rlcli"
            + "".join(f": it is {w}" for w in formats),
            "name a `.pkl.lz4` file out of a run's folder",
        )
    if len(header) < HEADER_SIZE:
        raise RlcliError(f"`{source}` is cut short", _COPY_AGAIN)
    _, version, size = _HEADER.unpack_from(header)
    if version > FORMAT_VERSION:
        raise RlcliError(
            f"`{source}` has the format {version}, newer than this rlcli's "
            f"({FORMAT_VERSION})",
            "upgrade: `pip install --upgrade rlcli`",
        )
    if version < FORMAT_VERSION or size > _MAX_RATIO * (file_size - HEADER_SIZE):
        raise RlcliError(
            f"`{source}` is damaged: its header makes no sense", _COPY_AGAIN
        )
    return size


def _check_memory(file_size: int, size: int, source: Path) -> None:
    """Refuses a file that does not fit into memory, with its content held twice."""
    needed, available = file_size + 2 * size, available_memory()
    if available is not None and needed > available.size:
        raise RlcliError(
            f"reading `{source}` needs {format_size(needed)} of memory, and "
            f"{format_size(available.size)} are available",
            "read it on a machine with more memory",
        )


def _decompress_frame(frame: memoryview, size: int) -> io.BytesIO:
    """What the frame holds. It grows as data come, never beyond `size`."""
    if frame[: len(_LZ4_MAGIC)] != _LZ4_MAGIC:  # lz4 would skip over "skippable" ones
        raise pickles.MalformedError("no lz4 frame")
    content = io.BytesIO()
    decompressor = lz4.frame.LZ4FrameDecompressor()
    for start in range(0, len(frame), pickles.PIECE_SIZE):
        if decompressor.eof:
            break
        _decompress_piece(
            decompressor, frame[start : start + pickles.PIECE_SIZE], content, size
        )
    else:
        if decompressor.eof and not decompressor.unused_data and content.tell() == size:
            return content
    raise pickles.MalformedError(
        "a frame that ends before the file, or sooner than claimed"
    )


def _decompress_piece(
    decompressor: lz4.frame.LZ4FrameDecompressor,
    data: memoryview | bytes,
    content: io.BytesIO,
    size: int,
) -> None:
    """Adds to `content` what a piece of the frame gives."""
    while not decompressor.eof:
        room = size - content.tell() + 1  # one more, which would show a false claim
        try:
            piece = decompressor.decompress(
                data, max_length=min(room, pickles.PIECE_SIZE)
            )
        except RuntimeError as error:  # lz4 has no type for it
            raise pickles.MalformedError(f"an unsound lz4 frame: {error}") from error
        content.write(piece)
        if content.tell() > size:
            raise pickles.MalformedError("more than its header claims")
        if not piece:
            break
        data = b""  # lz4 keeps what it has not looked at yet


def _checksum(*parts: bytes | memoryview) -> bytes:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    return digest.digest()


def _is_key(leaf: Any) -> bool:
    """Whether a leaf is a typed JAX key, which NumPy does not know."""
    import jax

    return jax.numpy.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _to_stored(leaf: Any) -> Any:
    """A leaf as it is stored: a typed key by its data."""
    import jax

    return jax.random.key_data(leaf) if _is_key(leaf) else leaf


def _stored_shape(shape: Any) -> Any:
    """The shape and dtype under which a leaf is stored."""
    import jax

    # NumPy's own, such as int64, do not go through JAX, which might narrow them.
    return jax.eval_shape(_to_stored, shape) if _is_key(shape) else shape


def _restore_leaf(shape: Any, array: np.ndarray) -> Any:
    """A leaf as the program has it: a typed key again, where it was one."""
    import jax

    if not _is_key(shape):
        return array
    kinds = []
    jax.eval_shape(lambda key: kinds.append(jax.random.key_impl(key)), shape)
    return jax.random.wrap_key_data(jax.numpy.asarray(array), impl=kinds[0])


def _describe_leaf(leaf: Any) -> str:
    """Its dtype and shape, for a message: `float32[4, 64]`."""
    if not hasattr(leaf, "dtype"):  # a forged file may hold anything
        return f"a {type(leaf).__name__}"
    return f"{leaf.dtype.name}{list(leaf.shape)}"
