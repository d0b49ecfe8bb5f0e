"""Printing: objects and log messages, for people to read."""

from __future__ import annotations

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
    """An object over several lines: an entry a line, indented by how deep it lies.

    Of an array there are shape, dtype, least, median and largest entry; of what is no
    container its own `repr`. `d` is how deep `o` itself lies.
    """
    return _format(o, d, ())


def _format(o: Any, d: int, parents: tuple[int, ...]) -> str:
    """As `pretty_repr`; `parents` are the ids of what it lies in."""
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
        return repr(o)  # among others `set()`, for {} is a dict
    return _indent([text(item) for item in o], brackets, d)


def _indent(lines: Iterable[str], brackets: str, d: int) -> str:
    body = "".join(f"\n{'  ' * (d + 1)}{line}," for line in lines)
    return brackets[0] + body + (f"\n{'  ' * d}" if body else "") + brackets[1]


def _summarize_array(array: Any) -> str:
    """An array in a few words; numbers only where they are known by now."""
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
    """Shows log messages on stderr, and writes them to a file if one is named.

    Sets up the root logger, as `logging.basicConfig(level=level)` does; a second call
    changes levels, and writes no message twice.

    Args:
        name: of this process, put in front of each message.
        level: the least level that is shown.
        output_filepath: the file to append to; folders that are missing are made.
        output_level: the least level that is written there; `level` if left out.
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
    """The handler that writes to a file: the one that does so already, or a new one."""
    for handler in root.handlers:
        is_file = isinstance(handler, logging.FileHandler)
        if is_file and Path(handler.baseFilename) == path:
            return handler
    path.parent.mkdir(parents=True, exist_ok=True)
    handler = logging.FileHandler(path)
    root.addHandler(handler)
    return handler
