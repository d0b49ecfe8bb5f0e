"""User code: modules of the user that a recipe imports, by an import path.

They are found beside the recipe, then as Python finds modules, then in the current
folder. Imports no rlcli module.
"""

import ast
import contextlib
import functools
import importlib
import os
import sys
import sysconfig
import traceback
from collections.abc import Callable, Iterable, Iterator
from importlib.machinery import PathFinder
from pathlib import Path
from types import ModuleType

from rlcli.registry.paths import directory

_folders: tuple[str, ...] = ()  # searched first: that of the recipe, or of a run's code
_is_only = False  # whether modules are not searched in the current folder as well
_added: tuple[str, ...] = ()  # entries of `sys.path` that this module has added


def search_first(*folders: Path) -> None:
    """Sets the folders in which import paths are searched first.

    They enter `sys.path` when a recipe imports user code, not before: a module beside a
    recipe without import paths never replaces an installed one.
    """
    global _folders, _is_only
    _folders = tuple(str(folder.resolve()) for folder in folders)
    _is_only = False


def search_only(*folders: Path) -> None:
    """The same for code that was checked: the current folder is not searched last."""
    global _is_only
    search_first(*folders)
    _is_only = True


@contextlib.contextmanager
def keep_search() -> Iterator[None]:
    """Context that restores the folders of `search_first` at its end."""
    global _folders, _is_only
    before = _folders, _is_only
    try:
        yield
    finally:
        _folders, _is_only = before


def extend_path() -> None:
    """Puts the folders of the user code on `sys.path`, as Python does for a script.

    Modules of the same name from elsewhere are imported again, so that one process can
    use two recipes whose modules have the same names.
    """
    global _added
    entries = [*sys.path]
    for added in _added:  # once: the same folder may have been there before
        with contextlib.suppress(ValueError):
            entries.remove(added)
    first = [] if entries[: len(_folders)] == [*_folders] else [*_folders]
    here = directory()
    # Before "" and ".", which lead elsewhere once a module changes the directory.
    paths: list[str] = []
    between: list[str] = []
    for entry in entries:
        if here and not os.path.isabs(entry):
            between.append(os.path.normpath(f"{here}/{entry}"))
            paths.append(between[-1])
        paths.append(entry)
    is_last = here and not _is_only and here not in (*first, *paths)
    last = [here] if is_last else []
    sys.path[:] = [*first, *paths, *last]
    _added = (*first, *between, *last)
    importlib.invalidate_caches()
    _forget_shadowed_modules()


def import_module(name: str) -> ModuleType:
    """Imports a module of the user, or an installed one."""
    extend_path()
    return importlib.import_module(name)


def searches_directory() -> bool:
    """Whether this process finds modules in the current folder before all others.

    `python -m rlcli` does, the command `rlcli` does not.
    """
    if sys.flags.safe_path or not sys.path:
        return False
    return os.path.realpath(sys.path[0] or ".") == os.path.realpath(directory())


def module_command(name: str) -> list[str]:
    """The command of another process that runs a module with this Python.

    It finds modules in the current folder, which may come from elsewhere, only if this
    process does.
    """
    safe = [] if searches_directory() else ["-P"]
    return [sys.executable, *safe, "-m", name]


def is_user_file(file: str | Path) -> bool:
    """Whether a file belongs to the user: not to Python, rlcli or a package."""
    path = Path(file)
    if not path.is_absolute() or {"site-packages", "dist-packages"} & {*path.parts}:
        return False
    return not any(path.is_relative_to(folder) for folder in _installed_folders())


def find_place(error: BaseException, file: str = "") -> tuple[str, int] | None:
    """The innermost file and line of user code, or of `file`, in a traceback."""
    if isinstance(error, SyntaxError) and error.filename and error.lineno:
        return error.filename, error.lineno
    frames = traceback.extract_tb(error.__traceback__)
    places = [
        (frame.filename, frame.lineno or 1)
        for frame in frames
        if frame.filename == file or is_user_file(frame.filename)
    ]
    return places[-1] if places else None


def format_place(place: tuple[str, int]) -> str:
    """A file and a line, `my_env.py:12`; relative if below the current folder."""
    path = Path(place[0])
    with contextlib.suppress(ValueError):
        path = path.relative_to(directory())
    return f"{path}:{place[1]}"


def imported_files(modules: Iterable[str]) -> dict[str, Path]:
    """The source files of user modules, and of those beside them that they import.

    The keys are paths below an entry of `sys.path`: `my_parts/network.py`. Modules that
    are imported later, inside functions, are included.
    """
    return _follow_imports(modules, _source_file, sys.modules)


def find_files(modules: Iterable[str], *folders: Path) -> dict[str, Path]:
    """The same files as a recipe in `folders` would import them; imports nothing."""
    here = directory()
    entries = [os.path.normpath(os.path.join(here, entry)) for entry in sys.path]
    places = [*(str(folder.resolve()) for folder in folders), *entries, here]
    return _follow_imports(modules, lambda name: _find_source(name, places), ())


def _follow_imports(
    modules: Iterable[str],
    find_source: Callable[[str], Path | None],
    imported: Iterable[str],
) -> dict[str, Path]:
    """The files of modules, and of those beside them that they import.

    `imported` are modules that may have been imported by their names as strings.
    """
    files: dict[str, Path] = {}
    queue = [*modules]
    seen: set[str] = set()
    while queue:
        name = queue.pop()
        if name in seen:
            continue
        seen.add(name)
        queue += [name.rpartition(".")[0]] if "." in name else []
        file = find_source(name)
        if file is None:
            continue
        is_package = file.name == "__init__.py"
        files[_relative_path(name, is_package)] = file
        queue += _imported_names(file, name if is_package else name.rpartition(".")[0])
        prefix = f"{name.partition('.')[0]}."
        queue += [other for other in imported if other.startswith(prefix)]
    return dict(sorted(files.items()))


def _find_source(name: str, places: list[str]) -> Path | None:
    """The source file of a user module below `places`; None if there is none."""
    parts = name.split(".")
    if parts[0] in sys.stdlib_module_names or not all(map(str.isidentifier, parts)):
        return None
    spec = None
    for end in range(1, len(parts) + 1):
        spec = PathFinder.find_spec(".".join(parts[:end]), places)
        if spec is None:
            return None
        places = _search_places(spec)
    file = spec.origin if spec else None
    return Path(file) if file and _is_source(file) else None


def _forget_shadowed_modules() -> None:
    """Forgets modules that the folders searched first replace by others."""
    if not _folders:
        return
    for name, module in list(sys.modules.items()):
        if "." in name or name == "__main__":
            continue
        places = [*map(os.path.realpath, _places(module))]
        if not places or not all(map(is_user_file, places)):
            continue
        spec = PathFinder.find_spec(name, [*_folders])
        new = [spec.origin] if spec and spec.origin else _search_places(spec)
        if new and os.path.realpath(new[0]) not in places:
            for other in [n for n in sys.modules if n.partition(".")[0] == name]:
                del sys.modules[other]


def _places(module: object) -> list[str]:
    """The file of a module, or the folders of a package without `__init__.py`."""
    file = getattr(module, "__file__", None)
    return [file] if file else _search_places(getattr(module, "__spec__", None))


def _search_places(spec: object) -> list[str]:
    return [*(getattr(spec, "submodule_search_locations", None) or [])]


def _source_file(name: str) -> Path | None:
    """The source file of a user module; None if there is none."""
    module = sys.modules.get(name)
    if module is None:
        if name.partition(".")[0] in sys.stdlib_module_names:
            return None
        parent = sys.modules.get(name.rpartition(".")[0])
        path = (
            _search_places(getattr(parent, "__spec__", None)) if "." in name else None
        )
        with contextlib.suppress(ImportError, ValueError):
            spec = PathFinder.find_spec(name, path)
            file = spec.origin if spec else None
            return Path(file) if file and _is_source(file) else None
        return None
    file = getattr(module, "__file__", None)
    return Path(file) if file and _is_source(file) else None


def _is_source(file: str) -> bool:
    return file.endswith(".py") and is_user_file(file) and Path(file).is_file()


def _relative_path(name: str, is_package: bool) -> str:
    path = name.replace(".", "/")
    return f"{path}/__init__.py" if is_package else f"{path}.py"


def _imported_names(file: Path, package: str) -> Iterator[str]:
    """The modules that a file imports anywhere, and names that may be modules."""
    try:
        tree = ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        if isinstance(node, ast.ImportFrom):
            parents = package.split(".")[: len(package.split(".")) + 1 - node.level]
            base = [*(parents if node.level else []), *filter(None, [node.module])]
            yield ".".join(base)
            yield from (".".join([*base, alias.name]) for alias in node.names)


@functools.cache
def _installed_folders() -> tuple[Path, ...]:
    """The folders of Python, of its packages and of rlcli."""
    names = ("stdlib", "platstdlib", "purelib", "platlib")
    paths = [Path(path) for name in names if (path := sysconfig.get_path(name))]
    return (*paths, Path(__file__).parents[1])
