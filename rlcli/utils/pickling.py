"""Pickling: objects in files and bytes that are safe to load.

The format is an lz4 frame that contains a pickle without globals, as a checkpoint has,
of the nodes of `rlcli.utils.object_graphs`, without a header. Loading untrusted data
runs no code, and does not allocate more memory than the data fill.
"""

import io
import os
from pathlib import Path
from typing import Any

import lz4.frame

from rlcli.errors import RlcliError
from rlcli.runs import pickles
from rlcli.runs.files import replace_file
from rlcli.utils.object_graphs import MAX_OPCODES, flatten_object, restore_object

_MAGIC = b"\x04\x22\x4d\x18"  # first bytes of an lz4 frame


def dumps(obj: Any) -> bytes:
    """Serializes an object as an lz4-compressed pickle.

    Supports exactly the types None, bool, int, float, complex, str, bytes, list, tuple,
    set and dict, and numeric NumPy and JAX arrays, which are loaded as NumPy arrays.
    References within the object are preserved, including cycles:

        a = [13]
        a_new, b_new = loads(dumps((a, {"a": a})))  # b_new["a"] is a_new

    Raises:
        TypeError: for other types; it names the path, such as `/agent/params/3`.
        ValueError: for more than 64 nested containers, or a quarter of a million
            values: use arrays for numbers.
    """
    compressor = lz4.frame.LZ4FrameCompressor()
    pieces = pickles.encode(flatten_object(obj), MAX_OPCODES)
    frame = [compressor.begin(), *map(compressor.compress, pieces)]
    return b"".join([*frame, compressor.flush()])


def loads(s: bytes | bytearray | memoryview) -> Any:
    """Loads bytes of `dumps`; raises `RlcliError` for other bytes."""
    return _load_frame(memoryview(s), "data")


def dump(obj: Any, filepath: str | os.PathLike[str]) -> None:
    """Writes an object to a file atomically, in the format of `dumps`.

    Missing folders are created.
    """
    content, path = dumps(obj), Path(filepath)
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, content)


def load(filepath: str | os.PathLike[str]) -> Any:
    """Loads a file that `dump` wrote; raises `RlcliError` for other files."""
    path = Path(filepath)
    if not path.is_file():  # opening a pipe would block
        raise RlcliError(f"there is no file `{path}`", "name a file that `dump` wrote")
    return _load_frame(memoryview(path.read_bytes()), path)


def _load_frame(frame: memoryview, source: str | os.PathLike[str]) -> Any:
    try:
        return restore_object(pickles.decode(_decompress(frame), MAX_OPCODES))
    except pickles.MalformedError as error:
        raise RlcliError(
            f"`{source}` was not written by `dump` and is not opened: it holds {error}",
            "`rlcli.runs.checkpoint.read` reads checkpoints; pickles could run code",
        ) from error


def _decompress(frame: memoryview) -> io.BytesIO:
    """Decompresses a single frame piece by piece; ignores the size in its header."""
    if frame[: len(_MAGIC)] != _MAGIC:  # lz4 would skip "skippable" frames
        raise pickles.MalformedError("no lz4 frame")
    content = io.BytesIO()
    decompressor = lz4.frame.LZ4FrameDecompressor()
    for start in range(0, len(frame), pickles.PIECE_SIZE):
        if decompressor.eof:
            raise pickles.MalformedError("something behind its lz4 frame")
        try:
            piece = decompressor.decompress(frame[start : start + pickles.PIECE_SIZE])
        except RuntimeError as error:  # lz4 has no specific type
            raise pickles.MalformedError(f"an unsound lz4 frame: {error}") from error
        content.write(piece)
    if not decompressor.eof or decompressor.unused_data:
        raise pickles.MalformedError("an lz4 frame that does not end with the data")
    return content
