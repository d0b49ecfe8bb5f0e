"""Checks: of the options of `plot` and `compare`, before any run is read."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rlcli.errors import RlcliError, quote, suggest


def check_choice(option: str, value: str, choices: Sequence[str]) -> None:
    """An error that suggests a choice, unless `value` is one."""
    if value not in choices:
        message = f"`{option}` cannot be {quote(value)}"
        raise RlcliError(message, suggest(value, choices))


def check_output(path: Path, kind: str, formats: Sequence[str]) -> None:
    """An error unless a file of a `kind` can be written in one of the `formats`."""
    if path.suffix.lower() not in formats:
        raise RlcliError(
            f"{quote(path)} is not the name of a {kind}",
            "end it with " + ", ".join(f"`{each}`" for each in formats),
        )
    if not path.absolute().parent.is_dir():
        raise RlcliError(f"there is no folder {quote(path.absolute().parent)}")
