"""Reloading: reloads modules in a running Python process."""

import importlib
import sys
from collections.abc import Callable, Iterator
from importlib.machinery import SourceFileLoader
from types import FunctionType, ModuleType


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
