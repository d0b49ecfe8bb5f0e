"""Flags of XLA that the installed jaxlib knows. Does not import JAX.

XLA ends a process whose `XLA_FLAGS` has an unknown flag, and flags come and go with the
versions of jaxlib. jaxlib has no function that lists them, but its library contains the
name of each as a C string.
"""

from __future__ import annotations

import importlib.util
import mmap
from pathlib import Path


def is_known_flag(flag: str) -> bool:
    """Whether the installed jaxlib knows a flag, such as `--xla_dump_to`.

    False if jaxlib is not installed. The library has some 300 MB: the answer takes
    20 ms for a flag that it has, and half a second for another one.
    """
    library = _jaxlib_library()
    return library is not None and _contains(library, flag)


def _jaxlib_library() -> Path | None:
    """The library of jaxlib that contains XLA: its largest file."""
    specification = importlib.util.find_spec("jaxlib")  # does not import it
    folders = specification and specification.submodule_search_locations
    files = [
        path
        for folder in folders or ()
        for pattern in ("*.so*", "*.dylib", "*.pyd", "*.dll")
        for path in Path(folder).glob(pattern)
    ]
    return max(files, key=lambda path: path.stat().st_size, default=None)


def _contains(library: Path, flag: str) -> bool:
    """Whether a library contains the name of a flag, between two NUL bytes."""
    name = b"\0" + flag.removeprefix("--").encode() + b"\0"
    with (
        library.open("rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content,
    ):
        return content.find(name) >= 0
