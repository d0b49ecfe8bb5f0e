"""Pickles: encodes plain data as a pickle without globals. Imports no JAX.

Plain data are `None`, `bool`, `int` of 64 bits, `float`, `str`, `list`, `dict` with
`str` keys, and NumPy arrays of numbers. An array is stored as a dict `{"data": bytes,
"dtype": its name, "shape": [int, …]}`, little-endian, in C order. Bytes occur nowhere
else, so that a user's dict is never mistaken for an array.

The pickle (protocol 4) has one opcode for each type, no memo, and sorted dict keys:
equal data give equal bytes. Every value has exactly one encoding, and reading accepts
no other.
"""

import io
import itertools
import math
import pickle
import pickletools
import struct
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple, NoReturn

import ml_dtypes
import numpy as np

MAX_DEPTH = 64  # nested containers; an array counts as two
MAX_OPCODES = 2**18  # because one byte of pickle can create 100 bytes of object
PIECE_SIZE = 2**18  # bytes: the amount of data in memory twice at any time
_MAX_AXES = 64  # NumPy's own

_EIGHT_BITS = [
    *["float8_e3m4", "float8_e4m3", "float8_e4m3b11fnuz", "float8_e4m3fn"],
    *["float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu"],
]
DTYPES: Mapping[str, np.dtype] = {
    name: np.dtype(name).newbyteorder("<")
    for name in [
        *["bool", "int8", "int16", "int32", "int64"],
        *["uint8", "uint16", "uint32", "uint64"],
        *["float16", "float32", "float64", "complex64", "complex128"],
    ]
} | {name: np.dtype(getattr(ml_dtypes, name)) for name in ["bfloat16", *_EIGHT_BITS]}
_OPCODES = frozenset(
    [
        *["PROTO", "STOP", "NONE", "NEWTRUE", "NEWFALSE", "LONG1", "BINFLOAT"],
        *["BINUNICODE8", "BINBYTES8", "MARK"],
        *["EMPTY_LIST", "APPENDS", "EMPTY_DICT", "SETITEMS"],
    ]
)


class MalformedError(ValueError):
    """Bytes that `encode` never writes; the message is a noun phrase."""


class _Bytes(NamedTuple):
    """The bytes of an array, distinct from `bytes` of the user, which are refused."""

    view: memoryview


def encode(data: Any, most: int = MAX_OPCODES) -> Iterator[bytes]:
    """The pickle of plain data, in pieces of less than twice `PIECE_SIZE`.

    It has at most `most` opcodes. Raises a `TypeError` or `ValueError` with the tree
    path of data that are not plain.
    """
    return _join_pieces(_parts(data, most))


def encoded_size(data: Any) -> int:
    """The length of the pickle of plain data; copies no array."""
    return sum(len(part) for part in _parts(data))


def _parts(data: Any, most: int = MAX_OPCODES) -> Iterator[bytes | memoryview]:
    parts = _limit_count(_encode_value(data, "", 0), most)
    start = pickle.PROTO + bytes([4])
    return itertools.chain([start], parts, [pickle.STOP])


def _join_pieces(parts: Iterable[bytes | memoryview]) -> Iterator[bytes]:
    """The same bytes, in pieces of less than twice `PIECE_SIZE`."""
    pending = bytearray()
    for part in parts:
        for offset in range(0, len(part), PIECE_SIZE):
            pending += part[offset : offset + PIECE_SIZE]
            if len(pending) >= PIECE_SIZE:
                yield bytes(pending)
                pending.clear()
    yield bytes(pending)


def decode(content: io.BytesIO, most: int = MAX_OPCODES) -> Any:
    """Decodes a pickle of `encode`; raises `MalformedError` for any other content.

    Arrays are read-only views of the content. First the opcodes and their sizes are
    checked. Then the unpickler runs, which allows no globals. Finally the result is
    encoded again, and has to give the same bytes.
    """
    _check_opcodes(content, most)
    content.seek(0)
    try:
        data = _restore_arrays(_Unpickler(content).load())
        content.seek(0)
        for piece in encode(data, most):
            if content.read(len(piece)) != piece:
                raise MalformedError("a pickle that is not in rlcli's form")
    except MalformedError:
        raise
    except _REFUSED_ERRORS as error:
        raise MalformedError("a pickle that is not in rlcli's form") from error
    return data


# The exceptions of an unpickler for invalid sequences of allowed opcodes.
_REFUSED_ERRORS = (
    pickle.UnpicklingError,
    AttributeError,
    EOFError,
    LookupError,
    OverflowError,
    TypeError,
    ValueError,
)


class _Unpickler(pickle.Unpickler):
    """An unpickler that never imports anything."""

    def find_class(self, module: str, name: str) -> NoReturn:
        raise pickle.UnpicklingError(f"it requests `{module}.{name}`")

    def persistent_load(self, pid: Any) -> NoReturn:
        raise pickle.UnpicklingError("it requests a persistent id")


def _check_opcodes(content: io.BytesIO, most: int) -> None:
    """Refuses other opcodes than those of `encode`, deep nesting, and too many objects.

    The depth is the number of open marks: without memo, `DUP`, `APPEND` and `SETITEM`,
    items enter a container only between a mark and its `APPENDS` or `SETITEMS`.
    """
    content.seek(0)
    depth = 0
    try:
        for count, (opcode, _, _) in enumerate(pickletools.genops(content)):
            if opcode.name not in _OPCODES:
                raise MalformedError(f"a pickle with the opcode `{opcode.name}`")
            if count > most + 1:  # plus the first and the last opcode
                raise MalformedError(f"a pickle of more than {most} opcodes")
            depth += opcode.name == "MARK"
            depth -= opcode.name in ("APPENDS", "SETITEMS")
            if depth > MAX_DEPTH:
                raise MalformedError(f"a pickle nested more than {MAX_DEPTH} deep")
    except MalformedError:
        raise
    except ValueError as error:
        raise MalformedError("an invalid pickle") from error
    if content.read(1):
        raise MalformedError("a pickle with data after its end")


def _restore_arrays(value: Any) -> Any:
    """Replaces the dicts that contain bytes by arrays."""
    if type(value) is list:
        return [_restore_arrays(item) for item in value]
    if type(value) is dict:
        if any(type(item) is bytes for item in value.values()):
            if value.keys() != {"data", "dtype", "shape"}:
                raise MalformedError("bytes that belong to no array")
            return decode_array(value["dtype"], value["shape"], value["data"])
        return {key: _restore_arrays(item) for key, item in value.items()}
    return value


def decode_array(name: Any, shape: Any, data: Any) -> np.ndarray:
    """The array of that dtype and shape, as a read-only view of `data`.

    Raises a `MalformedError` for values that `_array_record` never returns.
    """
    if type(name) is not str or name not in DTYPES:
        raise MalformedError("an array of a dtype that rlcli never writes")
    is_list = type(shape) is list and len(shape) <= _MAX_AXES
    if not is_list or any(type(size) is not int or size < 0 for size in shape):
        raise MalformedError("an array whose shape is not a list of sizes")
    dtype = DTYPES[name]
    if type(data) is not bytes or math.prod(shape) * dtype.itemsize != len(data):
        raise MalformedError("an array whose bytes do not fit its shape")
    view = np.ndarray(shape, dtype, buffer=data)
    if name == "bool" and view.view(np.uint8).max(initial=0) > 1:
        raise MalformedError("a bool array with values other than 0 and 1")
    return view


def _limit_count(
    parts: Iterable[bytes | memoryview], max_count: int
) -> Iterator[bytes | memoryview]:
    """Limits the number of parts, each at most one opcode, to what `decode` accepts."""
    for count, part in enumerate(parts):
        if count >= max_count:
            raise ValueError("expected fewer values: numbers belong in arrays")
        yield part


def _encode_value(value: Any, path: str, depth: int) -> Iterator[bytes | memoryview]:
    """The opcodes of a value at a tree path, at most one in each part."""
    if isinstance(value, np.generic) or type(value) is np.ndarray:
        value = _array_record(np.asarray(value), path)
    kind = type(value)  # exactly this one, so that decoding restores it
    if value is None:
        yield pickle.NONE
    elif kind is bool:
        yield pickle.NEWTRUE if value else pickle.NEWFALSE
    elif kind is int:
        yield _encode_integer(value, path)
    elif kind is float:
        yield pickle.BINFLOAT + struct.pack(">d", value)
    elif kind is str:
        yield _encode_text(value)
    elif kind is _Bytes:
        yield pickle.BINBYTES8 + struct.pack("<Q", len(value.view))
        yield value.view
    elif kind is list:
        check_depth(path, depth)
        yield pickle.EMPTY_LIST
        yield pickle.MARK
        for index, item in enumerate(value):
            yield from _encode_value(item, f"{path}/{index}", depth + 1)
        yield pickle.APPENDS
    elif kind is dict:
        yield from _encode_dict(value, path, depth)
    else:
        raise TypeError(f"`{path or '/'}`: expected plain data or an array, got {kind}")


def _array_record(array: np.ndarray, path: str) -> dict[str, Any]:
    """The record of an array, with its bytes: little-endian, in C order."""
    name, shape = check_dtype(array, path), [*array.shape]
    # NumPy treats any byte but 0 as true; here it has to be 1. Copies only if needed.
    if name == "bool" and array.view(np.uint8).max(initial=0) > 1:
        array = array.view(np.uint8) != 0
    contiguous = np.asarray(array, DTYPES[name], order="C").reshape(-1)
    data = _Bytes(contiguous.view(np.uint8).data)
    return {"data": data, "dtype": name, "shape": shape}


def check_dtype(array: np.ndarray, path: str) -> str:
    """The name of an array's dtype; a `TypeError` for other arrays than of numbers."""
    name = array.dtype.name
    if name not in DTYPES:
        raise TypeError(f"`{path or '/'}`: expected an array of numbers, got {name}")
    return name


def _encode_integer(value: int, path: str) -> bytes:
    if not -(2**63) <= value < 2**64:
        raise ValueError(f"`{path or '/'}`: expected an int of 64 bits, got {value}")
    bits = (~value if value < 0 else value).bit_length() + 1  # and the sign
    size = 0 if value == 0 else -(-bits // 8)
    return pickle.LONG1 + bytes([size]) + value.to_bytes(size, "little", signed=True)


def _encode_text(value: str) -> bytes:
    text = value.encode("utf-8", "surrogatepass")
    return pickle.BINUNICODE8 + struct.pack("<Q", len(text)) + text


def _encode_dict(value: dict, path: str, depth: int) -> Iterator[bytes | memoryview]:
    check_depth(path, depth)
    for key in value:
        if type(key) is not str:
            raise TypeError(f"`{path or '/'}`: expected a key of str, got {key!r}")
    yield pickle.EMPTY_DICT
    yield pickle.MARK
    for key in sorted(value):
        yield _encode_text(key)
        yield from _encode_value(value[key], f"{path}/{key}", depth + 1)
    yield pickle.SETITEMS


def check_depth(path: str, depth: int) -> None:
    """Refuses to write containers that are nested too deeply."""
    if depth >= MAX_DEPTH:
        raise ValueError(f"`{path}`: nested more than {MAX_DEPTH} deep")
