"""Reloading: modules read again while Python goes on running."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from importlib.machinery import SourceFileLoader
from types import FunctionType, ModuleType


def reload_recursive(
    module: ModuleType | str, reload_external_modules: bool = False
) -> None:
    """Reloads a module and what it needs, each after what it needs itself.

    Only modules inside of it (`package.…`), or else all that are written in Python and
    are used anywhere below; Python cannot load those in C a second time.
    """
    root = importlib.import_module(module) if isinstance(module, str) else module

    def follow(candidate: ModuleType) -> bool:
        if candidate.__name__.startswith(f"{root.__name__}."):
            return True
        loader = getattr(candidate.__spec__, "loader", None)
        return reload_external_modules and isinstance(loader, SourceFileLoader)

    for dependency in _dependency_order(root, follow):
        importlib.reload(dependency)


def _dependency_order(
    root: ModuleType, follow: Callable[[ModuleType], bool]
) -> list[ModuleType]:
    """What `root` needs, then itself. Without recursion: chains of imports are long."""
    visited, order = {root.__name__}, []
    waiting = [(root, _dependencies(root))]
    while waiting:
        module, dependencies = waiting[-1]
        for dependency in dependencies:
            if dependency.__name__ not in visited and follow(dependency):
                visited.add(dependency.__name__)
                waiting.append((dependency, _dependencies(dependency)))
                break
        else:
            order.append(module)
            waiting.pop()
    return order


def _dependencies(module: ModuleType) -> Iterator[ModuleType]:
    """The modules in a module, and those that its functions and classes are of."""
    for value in [*vars(module).values()]:
        if isinstance(value, FunctionType | type):
            value = sys.modules.get(value.__module__)
        if isinstance(value, ModuleType) and sys.modules.get(value.__name__) is value:
            yield value
