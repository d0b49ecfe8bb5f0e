"""Films: the GIFs and videos in the folder of a run, which may come from elsewhere."""

import os
import re
from collections.abc import Iterator
from pathlib import Path

from rlcli.errors import RlcliError, quote
from rlcli.runs.files import read_bytes
from rlcli.runs.opened_folder import OpenedFolder

LARGEST = 64 * 2**20  # bytes
_MOST = 100  # films of a run, the newest
_NAME = re.compile(r"[\w.-]{1,100}\.(?:gif|mp4|png)", re.ASCII)
_FOLDERS = ("", "films")  # what `rlcli render` and evaluations write
# The beginning of a file of each kind: what a browser gets is what the file says.
_KINDS = (
    (re.compile(rb"GIF8[79]a"), "image/gif"),
    (re.compile(rb"\x89PNG\r\n\x1a\n"), "image/png"),
    (re.compile(rb".{4}ftyp", re.DOTALL), "video/mp4"),
)


def list_films(run: Path) -> list[str]:
    """The names of the films of a run, the last first: `films/000050000.gif`."""
    found = [name for folder in _FOLDERS for name in _names_in(run, folder)]
    return found[:_MOST]


def _names_in(run: Path, folder: str) -> Iterator[str]:
    try:
        place = OpenedFolder(run).find(folder) if folder else run
        with os.scandir(place) as entries:
            names = [
                entry.name
                for entry in entries
                if _NAME.fullmatch(entry.name) and entry.is_file(follow_symlinks=False)
            ]
    except (OSError, RlcliError):  # none, or a link in its place
        return
    for name in sorted(names, reverse=True):
        yield f"{folder}/{name}" if folder else name


def read_film(run: Path, name: str) -> tuple[bytes, str]:
    """The bytes of a film of a run, and its media type by its first bytes."""
    if name not in list_films(run):
        raise RlcliError(f"there is no film {quote(name)}")
    path = OpenedFolder(run).find(*name.split("/"))
    data = read_bytes(path, "remove it", most=LARGEST)
    for pattern, kind in _KINDS:
        if pattern.match(data):
            return data, kind
    raise RlcliError(f"{quote(name)} is neither a GIF, a PNG nor an MP4")
