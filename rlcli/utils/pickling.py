"""Pickling: objects in files and bytes that are safe to load.

The format is an lz4 frame that contains a pickle without globals, as a checkpoint has,
without a header. Loading untrusted data runs no code, and does not allocate more memory
than the data fill. The pickle is of an object and its references as plain data:

    x = [7]
    {"a": x, "b": x}  ->  [[1], ["dict", [2], [3], [4], [3]], "a", ["list", 7], "b"]

The first entry of the list is the object, the others are nodes. `[i]` refers to node i,
which is a str, or a list with the kind of an object and its entries.
"""

import io
import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import lz4.frame
import numpy as np

from rlcli.errors import RlcliError
from rlcli.registry.paths import open_file
from rlcli.runs import pickles
from rlcli.runs.files import write_output
from rlcli.runs.pickles import MAX_DEPTH, MalformedError
from rlcli.xla.machine import available_memory, format_size

_MAGIC = b"\x04\x22\x4d\x18"  # first bytes of an lz4 frame
MAX_OPCODES = 2**20  # of a pickle: four can create an object of 200 bytes
# The hash of a tuple visits all its entries, shared ones repeatedly. Equal hashes make
# a dict slow.
_MAX_HASHED = 2**24
_MAX_EQUAL_HASHES = 256


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
    write_output(Path(filepath), dumps(obj))


def load(filepath: str | os.PathLike[str]) -> Any:
    """Loads a file that `dump` wrote; raises `RlcliError` for other files."""
    path = Path(filepath)
    try:
        with open_file(path) as file:
            frame = file.read() or b""
    except OSError as error:
        message = f"there is no file `{path}` to read: {error.strerror}"
        raise RlcliError(message, "name a file that `dump` wrote") from error
    return _load_frame(memoryview(frame), path)


def _load_frame(frame: memoryview, source: str | os.PathLike[str]) -> Any:
    try:
        return restore_object(pickles.decode(_decompress(frame, source), MAX_OPCODES))
    except MalformedError as error:
        raise RlcliError(
            f"`{source}` was not written by `dump` and is not opened: it holds {error}",
            "`rlcli.runs.checkpoint.read` reads checkpoints; pickles could run code",
        ) from error


def _decompress(frame: memoryview, source: str | os.PathLike[str]) -> io.BytesIO:
    """Decompresses a single frame piece by piece; ignores the size in its header.

    Of the memory that is left the content may take a third: arrays are copied.
    """
    available = available_memory()
    if frame[: len(_MAGIC)] != _MAGIC:  # lz4 would skip "skippable" frames
        raise MalformedError("no lz4 frame")
    content = io.BytesIO()
    decompressor = lz4.frame.LZ4FrameDecompressor()
    for start in range(0, len(frame), pickles.PIECE_SIZE):
        if decompressor.eof:
            raise MalformedError("something behind its lz4 frame")
        try:
            piece = decompressor.decompress(frame[start : start + pickles.PIECE_SIZE])
        except RuntimeError as error:  # lz4 has no specific type
            raise MalformedError(f"an unsound lz4 frame: {error}") from error
        content.write(piece)
        if available is not None and 3 * content.tell() > available.size:
            raise RlcliError(
                f"reading `{source}` needs more memory than the "
                f"{format_size(available.size)} that are available",
                "read it on a machine with more memory",
            )
    if not decompressor.eof or decompressor.unused_data:
        raise MalformedError("an lz4 frame that does not end with the data")
    return content


def flatten_object(obj: Any, path: str = "", depth: int = 0) -> list[Any]:
    """Returns the plain data of an object.

    Raises `TypeError` or `ValueError`, with the path of an unsupported object.
    """
    table = _Table()
    return [table.item(obj, path, depth), *table.nodes]


class _Table:
    """The nodes of an object."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        # By value for str and bytes, so that equal ones are shared, else by identity.
        self._places: dict[tuple[type, Any], int] = {}

    def item(self, value: Any, path: str, depth: int) -> Any:
        """A number, or the reference to a node."""
        kind = type(value)
        is_short = kind is int and -(2**63) <= value < 2**63
        if is_short or kind in (type(None), bool, float):
            return value
        identity = kind, value if kind in (str, bytes) else id(value)
        if identity not in self._places:
            self.nodes.append(None)
            place = self._places[identity] = len(self.nodes)
            self.nodes[place - 1] = self._node(value, path, depth)
        return [self._places[identity]]

    def _node(self, value: Any, path: str, depth: int) -> Any:
        kind = type(value)
        if kind is np.ndarray or isinstance(value, jax.Array | np.generic):
            name = "scalar" if isinstance(value, np.generic) else "array"
            return [name, _to_host(value, path)]
        if kind in _LEAF_NODES:
            return _LEAF_NODES[kind](value)
        if kind not in (list, tuple, set, dict):
            raise TypeError(
                f"`{path or '/'}`: expected None, a bool, number, str, bytes, list, "
                f"tuple, set, dict or array, got {kind}"
            )
        pickles.check_depth(path, depth)
        steps: Iterable[tuple[Any, Any]] = enumerate(value)
        if kind is dict:
            names = [key if type(key) is str else repr(key) for key in value]
            pairs = zip(names, value.items(), strict=True)
            steps = [(name, each) for name, pair in pairs for each in pair]
        elif kind is set:  # sorted: its order differs between Python processes
            inside = f"{path}/{{}}", depth + 1
            ordered = sorted(value, key=lambda x: _encode(flatten_object(x, *inside)))
            steps = [("{}", each) for each in ordered]
        entries = [self.item(each, f"{path}/{step}", depth + 1) for step, each in steps]
        return [kind.__name__, *entries]


_LEAF_NODES: Mapping[type, Callable[[Any], Any]] = {
    str: lambda text: text,
    bytes: lambda data: ["bytes", np.frombuffer(data, np.uint8)],
    int: lambda number: ["int", hex(number)],
    complex: lambda number: ["complex", number.real, number.imag],
}


def _encode(data: list[Any]) -> bytes:
    return b"".join(pickles.encode(data, MAX_OPCODES))


def _to_host(value: Any, path: str) -> np.ndarray:
    if jnp.issubdtype(value.dtype, jax.dtypes.extended):
        raise TypeError(
            f"`{path or '/'}`: expected an array of numbers, got {value.dtype}; "
            "for a key, use `jax.random.key_data`"
        )
    array = np.asarray(value)
    pickles.check_dtype(array, path)
    return array


def restore_object(data: Any) -> Any:
    """The object of plain data; raises `MalformedError` for data of no object."""
    if type(data) is not list or not data:
        raise MalformedError("a pickle that is no list of nodes")
    try:
        return _Restorer(data).restore()
    except MalformedError:
        raise
    except (TypeError, ValueError) as error:
        raise MalformedError("a malformed object") from error


class _Restorer:
    """Makes the objects of nodes: leaves and empty containers first, then tuples."""

    def __init__(self, data: list[Any]) -> None:
        self._data = data
        self._objects: dict[int, Any] = {}
        self._sizes: dict[int, int] = {}  # of tuples: entries, shared ones repeated
        self._hash_work = 0

    def restore(self) -> Any:
        """The first object of the data."""
        containers = []
        for place, node in enumerate(self._data[1:], 1):
            if type(node) is str:
                self._objects[place] = node
                continue
            if type(node) is not list or not node or type(node[0]) is not str:
                raise MalformedError("a node without a kind")
            kind, *entries = node
            if kind in _LEAVES:
                self._objects[place] = _LEAVES[kind](*entries)
            elif kind in _KINDS:
                self._objects[place] = _KINDS[kind]()
                containers.append((self._objects[place], entries))
            elif kind != "tuple":
                raise MalformedError("a node of an unknown kind")
        for container, entries in containers:
            self._fill(container, entries)
        return self._object(self._data[0])

    def _object(self, item: Any, depth: int = 0) -> Any:
        if type(item) in (type(None), bool, int, float):
            return item
        place = self._place(item)
        if place not in self._objects:
            if depth > MAX_DEPTH:  # also a tuple that contains itself
                raise MalformedError(f"tuples nested more than {MAX_DEPTH} deep")
            entries = self._data[place][1:]
            result = tuple(self._object(each, depth + 1) for each in entries)
            self._sizes[place] = 1 + sum(map(self._size, entries))
            self._objects[place] = result
        return self._objects[place]

    def _place(self, item: Any) -> int:
        if type(item) is not list or len(item) != 1 or type(item[0]) is not int:
            raise MalformedError("an entry that is no number and no reference")
        if not 0 < item[0] < len(self._data):
            raise MalformedError("a reference to no node")
        return item[0]

    def _size(self, item: Any) -> int:
        return self._sizes.get(item[0], 1) if type(item) is list else 1

    def _fill(self, container: Any, entries: list[Any]) -> None:
        values = [*map(self._object, entries)]
        if type(container) is list:
            container.extend(values)
        elif type(container) is set:
            self._check_hashing(values, entries)
            container.update(values)
        else:
            self._check_hashing(values[::2], entries[::2])
            container.update(zip(values[::2], values[1::2], strict=True))

    def _check_hashing(self, keys: list[Any], entries: list[Any]) -> None:
        """Rejects keys whose hash or comparison would take long."""
        self._hash_work += sum(map(self._size, entries))
        if self._hash_work > _MAX_HASHED:
            raise MalformedError("keys that are too large")
        if max(Counter(map(hash, keys)).values(), default=0) > _MAX_EQUAL_HASHES:
            raise MalformedError("keys with too many hash collisions")


def _integer(text: Any) -> int:
    if type(text) is not str:
        raise MalformedError("an int that is no text")
    return int(text, 16)


def _complex(real: Any, imaginary: Any) -> complex:
    if type(real) is not float or type(imaginary) is not float:
        raise MalformedError("a complex number whose parts are not floats")
    return complex(real, imaginary)


def _array(array: Any) -> np.ndarray:
    """A writable array, like the one that was stored."""
    if type(array) is not np.ndarray:
        raise MalformedError("an array that is none")
    return array.copy()


def _scalar(array: Any) -> Any:
    if _array(array).shape != ():
        raise MalformedError("a scalar that is an array")
    return array[()]


_KINDS: Mapping[str, type] = {"list": list, "set": set, "dict": dict}
_LEAVES: Mapping[str, Callable[..., Any]] = {
    "bytes": lambda array: _array(array).tobytes(),
    "int": _integer,
    "complex": _complex,
    "array": _array,
    "scalar": _scalar,
}
