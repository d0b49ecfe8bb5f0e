"""Printing: readable objects and log messages."""

import logging
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.core import Tracer

_BRACKETS = {list: "[]", tuple: "()", set: "{}", frozenset: "{}"}


def pretty_print(obj: Any) -> None:
    """Prints `pretty_repr(obj)`."""
    print(pretty_repr(obj))


def pretty_repr(o: Any, d: int = 0) -> str:
    """Formats an object over several lines, one indented line per entry.

    An array is described by shape, dtype, minimum, median and maximum. Objects that are
    not containers have their own `repr`. `d` is the initial depth of indentation.
    """
    return _format(o, d, ())


def _format(o: Any, d: int, parents: tuple[int, ...]) -> str:
    """As `pretty_repr`; `parents` are the ids of the enclosing containers."""
    if isinstance(o, np.ndarray | jax.Array):
        return _summarize_array(o)
    inner = (*parents, id(o))

    def text(item: Any) -> str:
        return "…" if id(item) in inner else _format(item, d + 1, inner)

    if isinstance(o, tuple) and hasattr(o, "_asdict"):
        fields = zip(type(o)._fields, o, strict=True)  # pyright: ignore[reportAttributeAccessIssue] - a NamedTuple has them
        lines = [f"{name}={text(item)}" for name, item in fields]
        return type(o).__name__ + _indent(lines, "()", d)
    if isinstance(o, Mapping):
        return _indent([f"{key!r}: {text(o[key])}" for key in o], "{}", d)
    brackets = _BRACKETS.get(type(o))
    if brackets is None or (not o and isinstance(o, set | frozenset)):
        return repr(o)  # also `set()`, because {} is a dict
    return _indent([text(item) for item in o], brackets, d)


def _indent(lines: Iterable[str], brackets: str, d: int) -> str:
    body = "".join(f"\n{'  ' * (d + 1)}{line}," for line in lines)
    return brackets[0] + body + (f"\n{'  ' * d}" if body else "") + brackets[1]


def _summarize_array(array: Any) -> str:
    """Describes an array; a traced array has no numbers."""
    facts = [f"shape={tuple(array.shape)}", f"dtype={array.dtype}"]
    has_values = not isinstance(array, Tracer)
    if has_values and array.size and np.dtype(bool) != array.dtype and _is_real(array):
        entries = np.asarray(array, np.float64)
        for name in ("min", "median", "max"):
            facts.append(f"{name}={getattr(np, name)(entries):.3g}")
    return f"array({', '.join(facts)})"


def _is_real(array: Any) -> bool:
    return any(
        jax.numpy.issubdtype(array.dtype, kind)
        for kind in (jax.numpy.floating, jax.numpy.integer)
    )


def enable_logging(
    name: str | None = None,
    level: int = logging.INFO,
    output_filepath: str | os.PathLike[str] | None = None,
    output_level: int | None = None,
) -> None:
    """Prints log messages on stderr, and optionally appends them to a file.

    Configures the root logger, as `logging.basicConfig(level=level)`. A second call
    changes the levels, and does not duplicate messages.

    Args:
        name: name of this process, a prefix of each message.
        level: minimum level of printed messages.
        output_filepath: file to append to; missing folders are created.
        output_level: minimum level of messages in the file; `level` by default.
    """
    label = "" if name is None else f"{name}|"
    form = f"[{label}%(name)s|%(levelname)s] %(message)s"
    logging.basicConfig(level=level, format=form)
    root = logging.getLogger()
    stream_handlers = [
        handler for handler in root.handlers if type(handler) is logging.StreamHandler
    ]
    for handler in stream_handlers:
        handler.setLevel(level)
    file_level = level if output_level is None else output_level
    if output_filepath is not None:
        handler = _file_handler(root, Path(output_filepath).absolute())
        handler.setLevel(file_level)
        handler.setFormatter(logging.Formatter(form))
        root.setLevel(min(level, file_level))
    else:
        root.setLevel(level)


def _file_handler(root: logging.Logger, path: Path) -> logging.FileHandler:
    """The handler that writes to a file: the existing one, or a new one."""
    for handler in root.handlers:
        is_file = isinstance(handler, logging.FileHandler)
        if is_file and Path(handler.baseFilename) == path:
            return handler
    path.parent.mkdir(parents=True, exist_ok=True)
    handler = logging.FileHandler(path)
    root.addHandler(handler)
    return handler
