"""Pickling: objects in files and byte-strings that are safe to open.

What is stored is a bare lz4 frame that holds a pickle without any global (see
`rlcli.utils.encoding`): opening a stranger's runs no code, and allocates nothing that
it only claims. That is all it has in common with a checkpoint: there is no header.
"""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any

import lz4.frame

from rlcli.errors import RlcliError
from rlcli.runs import pickles
from rlcli.runs.files import replace_file
from rlcli.utils.decoding import decode_object
from rlcli.utils.encoding import encode_object

_MAGIC = b"\x04\x22\x4d\x18"  # how an lz4 frame begins


def dumps(obj: Any) -> bytes:
    """An object as an lz4-compressed pickle.

    Stored are None, bool, int, float, complex, str, bytes, list, tuple, set, dict, and
    arrays of numbers, NumPy's and JAX's, which come back as NumPy's; each of exactly
    this type. References inside the one object are kept, also to itself:

        a = [13]
        a_new, b_new = loads(dumps((a, {"a": a})))  # b_new["a"] is a_new

    Raises:
        TypeError: for anything else; it names the path, `/agent/params/3`.
        ValueError: for more than 64 containers inside one another, or about a million
            values: numbers belong into arrays.
    """
    compressor = lz4.frame.LZ4FrameCompressor()
    frame = [compressor.begin(), *map(compressor.compress, encode_object(obj))]
    return b"".join([*frame, compressor.flush()])


def loads(s: bytes | bytearray | memoryview) -> Any:
    """The object that `dumps` made these bytes of; an `RlcliError` if it did not."""
    return _load_frame(memoryview(s), "data")


def dump(obj: Any, filepath: str | os.PathLike[str]) -> None:
    """Writes what `dumps` makes of an object to a file, whole or not at all.

    Folders that are missing are made.
    """
    content, path = dumps(obj), Path(filepath)
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, content)


def load(filepath: str | os.PathLike[str]) -> Any:
    """The object that `dump` wrote to a file; an `RlcliError` if there is none."""
    path = Path(filepath)
    if not path.is_file():  # opening a pipe would wait for ever
        raise RlcliError(
            f"there is no file `{path}`", "name one that `dump` has written"
        )
    return _load_frame(memoryview(path.read_bytes()), path)


def _load_frame(frame: memoryview, source: str | os.PathLike[str]) -> Any:
    try:
        return decode_object(_decompress(frame))
    except pickles.MalformedError as error:
        raise RlcliError(
            f"`{source}` was not written by `dump` and is not opened: it holds {error}",
            "checkpoints are read by `rlcli.runs.checkpoint.read`; pickles of others "
            "could "
            "run code",
        ) from error


def _decompress(frame: memoryview) -> memoryview:
    """What the one frame holds: it grows as data come, whatever its header claims."""
    if frame[: len(_MAGIC)] != _MAGIC:  # lz4 would skip over "skippable" ones
        raise pickles.MalformedError("no lz4 frame")
    content = io.BytesIO()
    decompressor = lz4.frame.LZ4FrameDecompressor()
    for start in range(0, len(frame), pickles.PIECE_SIZE):
        if decompressor.eof:
            raise pickles.MalformedError("something behind its lz4 frame")
        try:
            piece = decompressor.decompress(frame[start : start + pickles.PIECE_SIZE])
        except RuntimeError as error:  # lz4 has no type for it
            raise pickles.MalformedError(f"an unsound lz4 frame: {error}") from error
        content.write(piece)
    if not decompressor.eof or decompressor.unused_data:
        raise pickles.MalformedError("an lz4 frame that does not end with the data")
    return content.getbuffer()
