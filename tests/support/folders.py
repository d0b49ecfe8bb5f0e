"""Folders: what a test compares to find out whether a run has been changed."""

from pathlib import Path


def snapshot(folder: Path) -> dict[Path, tuple[int, bytes]]:
    """The time of the last change of every file and folder, and the bytes of files."""
    return {
        path: (path.stat().st_mtime_ns, path.read_bytes() if path.is_file() else b"")
        for path in (folder, *folder.rglob("*"))
    }
