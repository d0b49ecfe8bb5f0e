"""Folders of fuzzing: templates to copy, and how their files change."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
from pathlib import Path

import fuzz_values
import yaml

SECRET = b"a file outside of the folder\n"


class Template:
    """A folder whose copies the cases change."""

    def __init__(self, folder: Path, copy: Path) -> None:
        self.folder = folder
        self._copy = copy
        self.files = [
            path.relative_to(folder) for path in folder.rglob("*") if path.is_file()
        ]
        self._contents = {name: (folder / name).read_bytes() for name in self.files}

    def content(self, name: Path) -> bytes:
        """The bytes of a file."""
        return self._contents[name]

    def copy(self) -> Path:
        """A new copy of the folder, always in the same place."""
        shutil.rmtree(self._copy, ignore_errors=True)
        for name, data in self._contents.items():
            (self._copy / name).parent.mkdir(parents=True, exist_ok=True)
            (self._copy / name).write_bytes(data)
        return self._copy

    def spoil(self, draw: random.Random) -> Path:
        """A new copy in which one or two files have changed."""
        folder = self.copy()
        for _ in range(draw.choice((1, 1, 2))):
            spoil_file(draw, folder / draw.choice(self.files))
        return folder

    def misplace(
        self, draw: random.Random, secret: Path, more: tuple[str, ...] = ()
    ) -> Path:
        """A new copy in which something is a link, a pipe, a device or a folder.

        `more` are the names of folders and files that may exist as well.
        """
        folder = self.copy()
        parents = {parent for name in self.files for parent in name.parents}
        names = [*self.files, *sorted(parents - {Path()}), *map(Path, more)]
        path = folder / draw.choice(names)
        if path.is_dir():
            shutil.rmtree(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        kind = draw.randrange(9)
        if kind == 0:
            os.mkfifo(path)
        elif kind == 1:
            path.mkdir()
        elif kind == 8:
            os.link(secret, path)
        else:
            targets = (secret, path, "/dev/zero", secret.parent, "missing", "/")
            path.symlink_to(targets[kind - 2])
        return folder


def spoil_file(draw: random.Random, path: Path) -> None:
    """Changes values of a file of JSON or YAML, or bytes, or removes the file."""
    if not path.exists():  # it was removed
        return
    data = path.read_bytes()
    lines = data.splitlines() if path.suffix in (".jsonl", ".log") else [data]
    kinds = (".json", ".jsonl", ".log", ".yaml")
    if path.suffix in kinds and lines and draw.random() < 0.6:
        index = draw.randrange(len(lines))
        with contextlib.suppress(ValueError):  # bytes of it were changed before
            changed = fuzz_values.change(draw, _parse(path, lines[index]))
            lines[index] = fuzz_values.to_json(changed)
            path.write_bytes(b"".join(line + b"\n" for line in lines))
            return
    if draw.random() < 0.1:
        path.unlink()
    else:
        path.write_bytes(fuzz_values.mutate(draw, data))


def _parse(path: Path, data: bytes) -> object:
    if path.suffix != ".yaml":
        return json.loads(data)
    try:
        return yaml.safe_load(data)
    except yaml.YAMLError as error:
        raise ValueError from error
