"""Files: written whole or not at all, and JSON. Imports only errors."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rlcli.errors import RlcliError


def replace_file(path: Path, data: bytes) -> None:
    """Writes a file whole or not at all: whoever reads sees the old one or the new.

    A temporary file in the same folder, whose name starts with a dot, takes its place
    once it is safely on the disk.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)  # the new name, too, is then on the disk
    finally:
        os.close(folder)


def to_json(value: Any, *, indent: int | None = None) -> str:
    """JSON of anything made of mappings, lists, strings and numbers.

    Scalars of NumPy and JAX are numbers, paths are strings; what is not finite is
    null, as JSON knows no NaN.
    """
    return json.dumps(_plain(value), indent=indent, allow_nan=False, ensure_ascii=False)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(name): _plain(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if hasattr(value, "item"):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def read_json(path: Path) -> dict[str, Any]:
    """The JSON object in a file; {} where there is none yet."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except ValueError as error:  # no JSON, or no text at all
        raise RlcliError(f"`{path}` is damaged: {error}") from error
    if not isinstance(value, dict):
        raise RlcliError(f"`{path}` is damaged: it holds no JSON object")
    return value


def merge_json(path: Path, fields: Mapping[str, Any]) -> None:
    """Sets these fields of the JSON object in a file, and leaves the others."""
    merged = to_json(read_json(path) | dict(fields), indent=2)
    replace_file(path, (merged + "\n").encode())
