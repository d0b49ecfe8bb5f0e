"""User code: modules of the user that a recipe imports, by an import path.

They are found beside the recipe, then as Python finds modules, then in the current
folder, and compiled from their source: bytecode beside it may be that of other code.
Imports no rlcli module.
"""

import ast
import contextlib
import functools
import importlib
import os
import sys
import sysconfig
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

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
    if _SourceFinder not in sys.meta_path:
        sys.meta_path.insert(sys.meta_path.index(PathFinder), _SourceFinder)
    importlib.invalidate_caches()
    _forget_shadowed_modules()


class _SourceLoader(SourceFileLoader):
    """Compiles a module from its source, whatever bytecode lies beside it.

    Python takes bytecode for that of a source by the size and the time of the file.
    """

    def path_stats(self, path: object) -> NoReturn:
        raise OSError(f"no bytecode of {path} is used")


class _SourceFinder:
    """Finds modules as Python does, and compiles the user's from their source."""

    @staticmethod
    def find_spec(*arguments: Any) -> ModuleSpec | None:
        spec = PathFinder.find_spec(*arguments)
        loader = spec and spec.loader
        if spec and isinstance(loader, SourceFileLoader) and is_user_file(loader.path):
            spec.loader, spec.cached = _SourceLoader(spec.name, loader.path), None
        return spec


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
    """The files of user modules, and of those beside them that they import.

    The keys are paths below an entry of `sys.path`: `my_parts/network.py`. Modules that
    are imported later, inside functions, are included, and those of compiled code.
    """
    return _follow_imports(modules, _find_imported, sys.modules)


def find_files(
    modules: Iterable[str], *folders: Path, is_only: bool = False
) -> dict[str, Path]:
    """The same files as a recipe in `folders` would import them; imports nothing.

    `is_only`: as after `search_only`.
    """
    here = directory()
    entries = [os.path.normpath(os.path.join(here, entry)) for entry in sys.path]
    places = [*(str(folder.resolve()) for folder in folders), *entries]
    places += [] if is_only else [here]

    def find(name: str) -> Path | None:
        module = sys.modules.get(name.partition(".")[0])
        if module is not None and not any(map(is_user_file, _places(module))):
            return None  # imported before, and not replaced
        return _find_file(name, places)

    return _follow_imports(modules, find, ())


def module_name(path: str) -> str:
    """The module at a path below an entry of `sys.path`, a key of `find_files`."""
    parts = Path(path).parent / Path(path).name.partition(".")[0]
    return ".".join(parts.parts).removesuffix(".__init__")


def _follow_imports(
    modules: Iterable[str],
    find_file: Callable[[str], Path | None],
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
        file = find_file(name)
        if file is None:
            continue
        is_package = file.name.startswith("__init__.")
        suffix = file.name[file.name.index(".") :]
        path = name.replace(".", "/") + ("/__init__" if is_package else "")
        files[f"{path}{suffix}"] = file
        queue += _imported_names(file, name if is_package else name.rpartition(".")[0])
        prefix = f"{name.partition('.')[0]}."
        queue += [other for other in imported if other.startswith(prefix)]
    return dict(sorted(files.items()))


def _find_file(name: str, places: Sequence[str]) -> Path | None:
    """The file of a user module below `places`; None if there is none."""
    parts = name.split(".")
    if not all(map(str.isidentifier, parts)):
        return None
    spec = None
    for part in parts:  # without its parents, which have to be imported
        spec = PathFinder.find_spec(part, places)
        if spec is None:
            return None
        places = _search_places(spec)
    return _as_user_file(spec.origin if spec else None)


def _forget_shadowed_modules() -> None:
    """Forgets modules that the folders searched first replace by others."""
    for name in (_top_level_names(_folders) - {"__main__"}) & sys.modules.keys():
        places = [*map(os.path.realpath, _places(sys.modules[name]))]
        if not places or not all(map(is_user_file, places)):
            continue
        spec = PathFinder.find_spec(name, [*_folders])
        new = [spec.origin] if spec and spec.origin else _search_places(spec)
        if new and os.path.realpath(new[0]) not in places:
            for other in [n for n in sys.modules if n.partition(".")[0] == name]:
                del sys.modules[other]


def _top_level_names(folders: Iterable[str]) -> set[str]:
    """The names of files and folders that may be modules, without their suffixes."""
    names: set[str] = set()
    for folder in folders:
        with contextlib.suppress(OSError):
            names |= {entry.partition(".")[0] for entry in os.listdir(folder)}
    return names


def _places(module: object) -> list[str]:
    """The file of a module, or the folders of a package without `__init__.py`."""
    file = getattr(module, "__file__", None)
    return [file] if file else _search_places(getattr(module, "__spec__", None))


def _search_places(spec: object) -> list[str]:
    return [*(getattr(spec, "submodule_search_locations", None) or [])]


def _find_imported(name: str) -> Path | None:
    """The file of a user module, which need not be imported; None if there is none."""
    module = sys.modules.get(name)
    if module is None:
        parent, _, last = name.rpartition(".")
        if parent not in sys.modules:
            return _find_file(name, sys.path)
        places = _search_places(getattr(sys.modules[parent], "__spec__", None))
        return _find_file(last, places)
    return _as_user_file(getattr(module, "__file__", None))


def _as_user_file(file: str | None) -> Path | None:
    return Path(file) if file and is_user_file(file) and Path(file).is_file() else None


def _imported_names(file: Path, package: str) -> Iterator[str]:
    """The modules that a file imports anywhere, and names that may be modules."""
    try:
        tree = ast.parse(file.read_bytes())
    # Of compiled code, or so deep that Python cannot import it either.
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
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
