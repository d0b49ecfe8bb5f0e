"""Printing and reloading: for whoever works in a running Python process."""

import importlib
import logging
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import FunctionType, ModuleType
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
    kinds = (jax.numpy.floating, jax.numpy.integer)
    is_real = any(jax.numpy.issubdtype(array.dtype, kind) for kind in kinds)
    if is_real and array.size and not isinstance(array, Tracer):
        entries = np.asarray(array, np.float64)
        for name in ("min", "median", "max"):
            facts.append(f"{name}={getattr(np, name)(entries):.3g}")
    return f"array({', '.join(facts)})"


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
    for handler in root.handlers:
        if type(handler) is logging.StreamHandler:
            handler.setLevel(level)
    file_level = level if output_level is None else output_level
    root.setLevel(level)
    if output_filepath is not None:
        handler = _file_handler(root, Path(output_filepath).absolute())
        handler.setLevel(file_level)
        handler.setFormatter(logging.Formatter(form))
        root.setLevel(min(level, file_level))


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


def reload_recursive(
    module: ModuleType | str, reload_external_modules: bool = False
) -> None:
    """Reloads a module and its dependencies, in the order of dependency.

    Reloads only its submodules (`package.…`) or, with `reload_external_modules`, all
    dependencies written in Python. Python cannot reload modules written in C. The
    standard library is not reloaded: others hold what it defines, such as the class of
    all enumerations, and stop working with two versions of it.
    """
    root = importlib.import_module(module) if isinstance(module, str) else module

    def is_included(candidate: ModuleType) -> bool:
        if candidate.__name__.startswith(f"{root.__name__}."):
            return True
        loader = getattr(candidate.__spec__, "loader", None)
        is_standard = candidate.__name__.partition(".")[0] in sys.stdlib_module_names
        return (
            reload_external_modules
            and isinstance(loader, SourceFileLoader)
            and not is_standard
        )

    for dependency in _dependency_order(root, is_included):
        importlib.reload(dependency)


def _dependency_order(
    root: ModuleType, is_included: Callable[[ModuleType], bool]
) -> list[ModuleType]:
    """The dependencies of `root`, then `root`. Iterative: import chains are long."""
    visited, order = {root.__name__}, []
    stack = [(root, _dependencies(root))]
    while stack:
        module, dependencies = stack[-1]
        for dependency in dependencies:
            if dependency.__name__ not in visited and is_included(dependency):
                visited.add(dependency.__name__)
                stack.append((dependency, _dependencies(dependency)))
                break
        else:
            order.append(module)
            stack.pop()
    return order


def _dependencies(module: ModuleType) -> Iterator[ModuleType]:
    """The modules in a module, and those that define its functions and classes."""
    for value in [*vars(module).values()]:
        if isinstance(value, FunctionType | type):
            value = sys.modules.get(value.__module__)
        if isinstance(value, ModuleType) and sys.modules.get(value.__name__) is value:
            yield value
