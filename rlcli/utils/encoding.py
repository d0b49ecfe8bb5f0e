"""Encoding: an object as a pickle without globals, with its references.

Objects without an opcode are tuples that start with a tag, a frozenset of one word.
Other frozensets are not supported, so a tuple of the user is never ambiguous.

    ({"array"}, dtype, shape, bytes)        an array: little-endian, in C order
    ({"scalar"}, dtype, (), bytes)          a NumPy scalar
    ({"complex"}, real, imaginary)          a complex number

The pickle (protocol 4) has the opcodes of `rlcli.runs.pickles`, those for tuples, sets
and bytes, and the memo: repeated objects are references to the first one.
"""

from __future__ import annotations

import pickle
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from rlcli.runs import pickles

MAX_OPCODES = 2**20  # of one pickle: two opcodes can create an object of 200 bytes
ARRAY, SCALAR, COMPLEX = "array", "scalar", "complex"

Parts = Iterator[bytes | memoryview]


def encode_object(obj: Any) -> Iterator[bytes]:
    """Pickles an object, in pieces of less than twice `runs.pickles.PIECE_SIZE`.

    Raises `TypeError` or `ValueError`, with the path of an unsupported object.
    """
    return pickles.join_pieces(pickles.limit_count(_pickle_parts(obj), MAX_OPCODES))


def _pickle_parts(obj: Any) -> Parts:
    yield pickle.PROTO + bytes([4])
    yield from _Encoder().value(obj, "", 0)
    yield pickle.STOP


class _Encoder:
    """Encodes values, with their path and depth; yields one opcode per part."""

    def __init__(self) -> None:
        # By value for str and bytes, so that equal ones are shared, else by identity.
        self._memo: dict[tuple[type, Any], int] = {}

    def value(self, value: Any, path: str, depth: int) -> Parts:
        """The opcodes of one value."""
        kind = type(value)
        if kind in _PLAIN:
            yield _PLAIN[kind](value)
            return
        number = self._memo.get(_identity(value))
        if number is not None:
            yield _reference(number)
            return
        array = isinstance(value, jax.Array | np.generic)
        writer = _WRITERS.get(np.ndarray if array else kind)
        if writer is None:
            raise TypeError(
                f"`{path or '/'}`: expected None, a bool, number, str, bytes, list, "
                f"tuple, set, dict or array, got {kind}"
            )
        yield from writer(self, value, path, depth)

    def _memoize(self, value: Any) -> bytes:
        self._memo[_identity(value)] = len(self._memo)
        return pickle.MEMOIZE

    def _text(self, value: str | bytes, path: str, depth: int) -> Parts:
        del path, depth
        yield from _encode_bytes(value)
        yield self._memoize(value)

    def _complex(self, value: complex, path: str, depth: int) -> Parts:
        del path, depth
        yield from _begin_tag(COMPLEX)
        yield _encode_float(value.real)
        yield _encode_float(value.imag)
        yield pickle.TUPLE
        yield self._memoize(value)

    def _array(self, value: Any, path: str, depth: int) -> Parts:
        del depth
        name, view = pickles.array_bytes(_to_host(value, path), path)
        yield from _begin_tag(SCALAR if isinstance(value, np.generic) else ARRAY)
        yield from _encode_bytes(name)
        yield pickle.MARK
        for size in value.shape:
            yield _encode_integer(size)
        yield pickle.TUPLE
        yield from _encode_bytes(view)
        yield pickle.TUPLE
        yield self._memoize(value)

    def _list(self, value: list[Any], path: str, depth: int) -> Parts:
        yield pickle.EMPTY_LIST
        yield self._memoize(value)
        yield pickle.MARK
        yield from self._encode_items(enumerate(value), path, depth)
        yield pickle.APPENDS

    def _tuple(self, value: tuple[Any, ...], path: str, depth: int) -> Parts:
        yield pickle.MARK
        yield from self._encode_items(enumerate(value), path, depth)
        number = self._memo.get(_identity(value))
        if number is not None:  # an entry refers to the tuple, and has written it
            yield pickle.POP_MARK
            yield _reference(number)
            return
        yield pickle.TUPLE
        yield self._memoize(value)

    def _set(self, value: set[Any], path: str, depth: int) -> Parts:
        # Sorted, because the order of a set differs between Python processes.
        def encode_separately(element: Any) -> bytes:
            return b"".join(_Encoder().value(element, f"{path}/{{}}", depth + 1))

        yield pickle.EMPTY_SET
        yield self._memoize(value)
        yield pickle.MARK
        yield from self._encode_items(
            [("{}", x) for x in sorted(value, key=encode_separately)], path, depth
        )
        yield pickle.ADDITEMS

    def _dict(self, value: dict[Any, Any], path: str, depth: int) -> Parts:
        yield pickle.EMPTY_DICT
        yield self._memoize(value)
        yield pickle.MARK
        yield from self._encode_items(_alternate(value), path, depth)
        yield pickle.SETITEMS

    def _encode_items(
        self, parts: Iterable[tuple[Any, Any]], path: str, depth: int
    ) -> Parts:
        pickles.check_depth(path, depth)
        for step, item in parts:
            yield from self.value(item, f"{path}/{step}", depth + 1)


def _alternate(value: dict[Any, Any]) -> Iterator[tuple[str, Any]]:
    """Alternates keys and values, each with its step of the path."""
    for key, item in value.items():
        step = key if type(key) is str else repr(key)
        yield step, key
        yield step, item


def _identity(value: Any) -> tuple[type, Any]:
    kind = type(value)
    return kind, value if kind in (str, bytes) else id(value)


def _reference(number: int) -> bytes:
    return pickle.LONG_BINGET + struct.pack("<I", number)


def _begin_tag(word: str) -> Parts:
    """Starts a tuple that encodes another object."""
    yield pickle.MARK
    yield pickle.MARK
    yield from _encode_bytes(word)
    yield pickle.FROZENSET


def _encode_bytes(value: str | bytes | memoryview) -> Parts:
    if isinstance(value, str):
        text = value.encode("utf-8", "surrogatepass")
        yield pickle.BINUNICODE8 + struct.pack("<Q", len(text)) + text
    else:
        yield pickle.BINBYTES8 + struct.pack("<Q", len(value))
        yield value


def _encode_integer(value: int) -> bytes:
    size = 0 if value == 0 else value.bit_length() // 8 + 1
    short = size < 256
    head = pickle.LONG1 if short else pickle.LONG4
    length = struct.pack("<B" if short else "<i", size)
    return head + length + value.to_bytes(size, "little", signed=True)


def _encode_float(value: float) -> bytes:
    return pickle.BINFLOAT + struct.pack(">d", value)


def _to_host(value: Any, path: str) -> np.ndarray:
    if jnp.issubdtype(value.dtype, jax.dtypes.extended):
        raise TypeError(
            f"`{path or '/'}`: expected an array of numbers, got {value.dtype}; "
            "for a key, use `jax.random.key_data`"
        )
    return np.asarray(value)


# By exact type, so that decoded objects have the same type.
_PLAIN: Mapping[type, Callable[[Any], bytes]] = {
    type(None): lambda value: pickle.NONE,
    bool: lambda value: pickle.NEWTRUE if value else pickle.NEWFALSE,
    int: _encode_integer,
    float: _encode_float,
}
_WRITERS: Mapping[type, Callable[[_Encoder, Any, str, int], Parts]] = {
    str: _Encoder._text,
    bytes: _Encoder._text,
    complex: _Encoder._complex,
    list: _Encoder._list,
    tuple: _Encoder._tuple,
    set: _Encoder._set,
    dict: _Encoder._dict,
    np.ndarray: _Encoder._array,
}
