"""File options: options of parts that name files, such as data sets."""

from pathlib import Path

from rlcli.recipe.documents import Document, Place
from rlcli.registry.paths import enter
from rlcli.replays.datasets.names import HASH, shipped_folder


def find_file(document: Document, place: Place, text: str, suffix: str = "") -> str:
    """The absolute path of a file that a recipe names, with the rest of the option.

    The path is relative to the file where it is written, and with `--set` or without a
    file to the current folder. A file that comes with rlcli keeps its relative path,
    so that the recipe of a run does not depend on where rlcli is installed; its name
    may omit `suffix`.
    """
    name, mark, rest = text.partition(HASH)
    is_setting = any(place[: len(origin)] == origin for origin in document.origins)
    source = "" if is_setting else document.find_mark(place)[0]
    path = enter((Path(source).parent if source else Path()) / name)
    shipped = shipped_folder()
    if not exists(path) and (
        exists(shipped / name) or exists(shipped / f"{name}{suffix}")
    ):
        return text
    if path.is_relative_to(shipped) and exists(path):
        path = path.relative_to(shipped)
    return f"{path}{mark}{rest}"


def exists(path: Path) -> bool:
    """Whether a file exists; False for a name that no file can have."""
    try:
        return path.exists()
    except (OSError, ValueError):  # a name too long for a file, or a null byte
        return False
