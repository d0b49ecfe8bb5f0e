"""Debugging: programs without compilation that stop at the first value that is NaN.

Within `debug` every operation runs by itself, on arrays that can be printed, and raises
a `FloatingPointError` if its result is NaN. `locate` says where that was.
"""

import contextlib
import linecache
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.core import Tracer

# Files whose lines say nothing about where an operation is.
_PASSED = ("site-packages", __file__, "networks/activations.py")
_open: list[bool] = []  # one entry for each `debug` that runs


@contextlib.contextmanager
def debug() -> Iterator[None]:
    """Runs the programs that are called here without `jit`, with a trap for NaN."""
    with jax.disable_jit(), jax.debug_nans(True):
        _open.append(True)
        try:
            yield
        finally:
            _open.pop()


def is_debugging() -> bool:
    """Whether this runs within `debug`."""
    return bool(_open)


@contextlib.contextmanager
def locate(place: str) -> Iterator[None]:
    """Adds a place, such as a layer, to a `FloatingPointError` that passes."""
    try:
        yield
    except FloatingPointError as error:
        error.add_note(place)
        raise


def check_finite(place: str, tree: Any) -> None:
    """Raises a `FloatingPointError` if an array of a tree is not finite.

    Does not check what JAX traces.
    """
    for path, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]:
        is_number = np.issubdtype(leaf.dtype, np.floating)
        if isinstance(leaf, Tracer) or not is_number:
            continue
        array = np.asarray(leaf)
        bad = array[~np.isfinite(array)]
        if bad.size:
            name = "/".join(str(getattr(key, "key", key)) for key in path)
            where = f"`{name}` of {place}" if name else place
            message = f"{where} has {bad.size} of {array.size} numbers like {bad[0]}"
            raise FloatingPointError(message)


def describe(error: FloatingPointError) -> str:
    """The place of an error: its notes from the inside, and the line of the code."""
    parts = [str(error).split(".")[0], *getattr(error, "__notes__", ())]
    # Of a gradient, JAX gives the traceback of the operation that it differentiates.
    frames = [
        frame
        for each in (error, error.__cause__ or error)
        for frame in traceback.extract_tb(each.__traceback__)
        if not any(part in frame.filename for part in _PASSED)
    ]
    if frames:
        last = frames[-1]
        path = Path(last.filename)
        line = linecache.getline(last.filename, last.lineno or 0).strip()
        parts.append(f"{path.parent.name}/{path.name}:{last.lineno}: `{line}`")
    notes = dict.fromkeys(" ".join(part.split()) for part in parts)
    return ", in ".join(note for note in notes if not note.startswith("---"))
