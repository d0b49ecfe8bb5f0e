"""Decoding: reads pickles of `rlcli.utils.encoding` without Python's unpickler.

A small stack machine that supports only the opcodes of the encoder, so a pickle cannot
import globals. Malformed data raise an error. The size of an allocation never exceeds
the size of the data for it.
"""

from __future__ import annotations

import pickle
import struct
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from rlcli.runs import pickles
from rlcli.runs.pickles import MalformedError
from rlcli.utils.encoding import ARRAY, COMPLEX, MAX_OPCODES, SCALAR

# The hash of a tuple visits all its entries, shared ones repeatedly, and recurses on
# the C stack. Equal hashes make a dict slow.
_MAX_HASHED = 2**24
_MAX_KEY_DEPTH = 1_000
_MAX_EQUAL_HASHES = 256
_MAX_MARKS = pickles.MAX_DEPTH + 2  # an array is a nested tuple


class _Tag(NamedTuple):
    """The first entry of a tuple that encodes another object."""

    word: str


class _Extent(NamedTuple):
    """The number of nested entries of a tuple, shared ones repeated, and the depth."""

    size: int
    depth: int


def decode_object(content: memoryview) -> Any:
    """Decodes a pickle; raises `MalformedError` if it is malformed."""
    machine = _Machine(content)
    try:
        return machine.run()
    except (LookupError, TypeError, OverflowError, ValueError) as error:
        if isinstance(error, MalformedError):
            raise
        raise MalformedError("a malformed pickle") from error


class _Machine:
    """The state of decoding: content, stack, open marks, and memo."""

    def __init__(self, content: memoryview) -> None:
        self._content = content
        self._at = 0
        self._opcodes = 0
        self._stack: list[Any] = []
        self._marks: list[int] = []
        self._memo: list[Any] = []
        self._extents: dict[int, _Extent] = {}  # of tuples, by id
        self._tuples: list[tuple[Any, ...]] = []  # stored, so that ids are unique
        self._hash_work = 0

    def run(self) -> Any:
        """Reads all opcodes and returns the decoded object."""
        if self._take(2) != pickle.PROTO + bytes([4]):
            raise MalformedError("data that is not a pickle of protocol 4")
        while (opcode := self._opcode()) != pickle.STOP:
            action = _ACTIONS.get(opcode)
            if action is None:
                raise MalformedError(f"a pickle with the opcode {opcode!r}")
            action(self)
        (result,) = self._check_untagged(self._stack)
        if self._marks or self._at != len(self._content):
            raise MalformedError("a pickle with an open mark, or data after its end")
        return result

    def _opcode(self) -> bytes:
        self._opcodes += 1
        if self._opcodes > MAX_OPCODES:
            raise MalformedError(f"a pickle of more than {MAX_OPCODES} opcodes")
        return self._take(1)

    def _take(self, size: int) -> bytes:
        """The next bytes."""
        if not 0 <= size <= len(self._content) - self._at:
            raise MalformedError("a pickle that declares more data than it contains")
        self._at += size
        return bytes(self._content[self._at - size : self._at])

    def _number(self, layout: str) -> int:
        return struct.unpack(layout, self._take(struct.calcsize(layout)))[0]

    def push(self, value: Any) -> None:
        """Pushes a value on the stack."""
        self._stack.append(value)

    def integer(self, layout: str) -> None:
        """Pushes an int, whose size in bytes is a number of this layout."""
        self.push(
            int.from_bytes(self._take(self._number(layout)), "little", signed=True)
        )

    def real(self) -> None:
        """Pushes a float."""
        self.push(self._number(">d"))

    def text(self) -> None:
        """Pushes a str."""
        self.push(str(self._take(self._number("<Q")), "utf-8", "surrogatepass"))

    def data(self) -> None:
        """Pushes bytes."""
        self.push(self._take(self._number("<Q")))

    def mark(self) -> None:
        """Starts a group of values."""
        if len(self._marks) >= _MAX_MARKS:
            raise MalformedError(f"a pickle nested more than {pickles.MAX_DEPTH} deep")
        self._marks.append(len(self._stack))

    def group(self) -> list[Any]:
        """Pops the values since the last mark."""
        start = self._marks.pop()
        values = self._stack[start:]
        del self._stack[start:]
        return values

    def container(self, empty: Any) -> None:
        """Pushes an empty container, which must be memoized: it may contain itself."""
        self.push(empty)
        if self._opcode() != pickle.MEMOIZE:
            raise MalformedError("a container that is not memoized")
        self.memoize()

    def memoize(self) -> None:
        """Adds the top of the stack to the memo."""
        self._memo.extend(self._check_untagged(self._stack[-1:]))

    def refer(self) -> None:
        """Pushes an object of the memo."""
        self.push(self._memo[self._number("<I")])

    def tag(self) -> None:
        """Pushes a tag, which is a frozenset with one word."""
        (word,) = self.group()
        if word not in _SPECIAL:
            raise MalformedError("a frozenset")
        self.push(_Tag(word))

    def make_tuple(self) -> None:
        """Pushes a tuple, or the object that it encodes."""
        values = self.group()
        if values and type(values[0]) is _Tag:
            self.push(_SPECIAL[values[0].word](*self._check_untagged(values[1:])))
            return
        new_tuple = tuple(self._check_untagged(values))
        inner = [self._extent(value) for value in new_tuple]
        size = 1 + sum(extent.size for extent in inner)
        depth = 1 + max((extent.depth for extent in inner), default=0)
        self._extents[id(new_tuple)] = _Extent(size, depth)
        self._tuples.append(new_tuple)
        self.push(new_tuple)

    def fill_list(self) -> None:
        """Adds a group to the list below it."""
        values = self._check_untagged(self.group())
        self._container_below(list).extend(values)

    def fill_set(self) -> None:
        """Adds a group to the set below it."""
        values = self._check_untagged(self.group())
        self._check_hashing(values)
        self._container_below(set).update(values)

    def fill_dict(self) -> None:
        """Adds a group of keys and values to the dict below it."""
        values = self._check_untagged(self.group())
        self._check_hashing(values[::2])
        self._container_below(dict).update(zip(values[::2], values[1::2], strict=True))

    def _container_below(self, kind: type) -> Any:
        """The container for a group. It must be empty: keys are checked per group."""
        container = self._stack[-1]
        if type(container) is not kind or container:
            raise MalformedError(f"a group without an empty {kind.__name__} for it")
        return container

    def _check_untagged(self, values: list[Any]) -> list[Any]:
        if any(type(value) is _Tag for value in values):
            raise MalformedError("a frozenset")
        return values

    def _extent(self, value: Any) -> _Extent:
        if type(value) is tuple:
            return self._extents.get(id(value), _Extent(1, 1))
        return _Extent(1, 0)

    def _check_hashing(self, keys: Iterable[Any]) -> None:
        """Rejects keys whose hash would take long, or overflow the C stack."""
        keys = list(keys)
        extents = [self._extent(key) for key in keys]
        self._hash_work += sum(extent.size for extent in extents)
        deepest = max((extent.depth for extent in extents), default=0)
        if self._hash_work > _MAX_HASHED or deepest > _MAX_KEY_DEPTH:
            raise MalformedError("keys that are too large")
        if max(Counter(map(hash, keys)).values(), default=0) > _MAX_EQUAL_HASHES:
            raise MalformedError("keys with too many hash collisions")


def _complex(real: Any, imaginary: Any) -> complex:
    if type(real) is not float or type(imaginary) is not float:
        raise MalformedError("a complex number whose parts are not floats")
    return complex(real, imaginary)


def _array(name: Any, shape: Any, data: Any) -> np.ndarray:
    """A writable array, like the one that was stored."""
    if type(shape) is not tuple:
        raise MalformedError("an array whose shape is not a tuple")
    return pickles.decode_array(name, list(shape), data).copy()


def _scalar(name: Any, shape: Any, data: Any) -> Any:
    if shape != ():
        raise MalformedError("a scalar that is an array")
    return _array(name, shape, data)[()]


_SPECIAL: Mapping[str, Callable[..., Any]] = {
    ARRAY: _array,
    SCALAR: _scalar,
    COMPLEX: _complex,
}
_ACTIONS: Mapping[bytes, Callable[[_Machine], Any]] = {
    pickle.NONE: lambda machine: machine.push(None),
    pickle.NEWTRUE: lambda machine: machine.push(True),
    pickle.NEWFALSE: lambda machine: machine.push(False),
    pickle.LONG1: lambda machine: machine.integer("<B"),
    pickle.LONG4: lambda machine: machine.integer("<i"),
    pickle.BINFLOAT: _Machine.real,
    pickle.BINUNICODE8: _Machine.text,
    pickle.BINBYTES8: _Machine.data,
    pickle.MARK: _Machine.mark,
    pickle.POP_MARK: _Machine.group,
    pickle.EMPTY_LIST: lambda machine: machine.container([]),
    pickle.EMPTY_DICT: lambda machine: machine.container({}),
    pickle.EMPTY_SET: lambda machine: machine.container(set()),
    pickle.MEMOIZE: _Machine.memoize,
    pickle.LONG_BINGET: _Machine.refer,
    pickle.FROZENSET: _Machine.tag,
    pickle.TUPLE: _Machine.make_tuple,
    pickle.APPENDS: _Machine.fill_list,
    pickle.ADDITEMS: _Machine.fill_set,
    pickle.SETITEMS: _Machine.fill_dict,
}
