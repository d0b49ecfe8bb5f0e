"""Output: data goes to stdout, talk to stderr."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TextIO

from rlcli.terminal import printable, printable_json

if TYPE_CHECKING:
    from rich.console import Console


def open_standard_streams() -> None:
    """Opens on the null device what the caller has closed of stdin, stdout and stderr.

    Else the next file to be opened would get the number of stderr, and with it whatever
    a library writes there.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest number that is free
        if getattr(sys, name) is None:
            mode = "r" if name == "stdin" else "w"
            setattr(sys, name, os.fdopen(os.dup(number), mode))


def print_data(text: object) -> None:
    """Prints the result of a command on stdout, without control characters.

    A reader that has closed the pipe, as `head` does, gets no more.
    """
    try:
        print(printable(str(text)), flush=True)
    except BrokenPipeError:
        silence(sys.stdout)


def print_message(text: str) -> None:
    """Prints what is good to know, on stderr, without control characters."""
    if sys.stderr is None:  # `print` would choose stdout
        return
    try:
        print(printable(text), file=sys.stderr)
    except OSError:  # a closed pipe, or a terminal that is gone
        silence(sys.stderr)


def console() -> Console:
    """Stdout for tables. A reader that has closed the pipe gets no more."""
    from rich.console import Console  # here, for `--help` is to answer at once

    class Stdout(Console):
        def on_broken_pipe(self) -> None:  # Rich would end the process
            silence(sys.stdout)

    return Stdout(highlight=False)


def silence(stream: TextIO) -> None:
    """Sends what is still written to a stream to the null device.

    Python would try to write what is buffered at exit, and fail again.
    """
    descriptor = os.open(os.devnull, os.O_WRONLY)
    os.dup2(descriptor, stream.fileno())
    os.close(descriptor)


def as_json(value: Any) -> str:
    """The value as JSON, for which NaN and infinity are no numbers: null."""
    text = json.dumps(
        _replace_non_finite(value), indent=2, ensure_ascii=False, default=str
    )
    return printable_json(text)


def _replace_non_finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _replace_non_finite(item) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_replace_non_finite(item) for item in value]
    return value
