"""Checks: validates the options of `plot` and `compare`, before reading any run."""

import math
from collections.abc import Sequence
from pathlib import Path

from rlcli.errors import RlcliError, quote, suggest
from rlcli.results.figure import FORMATS, WIDTHS, FigureStyle


def check_choice(option: str, value: str, choices: Sequence[str]) -> None:
    """An error that suggests a choice, unless `value` is one."""
    if value not in choices:
        message = f"`{option}` cannot be {quote(value)}"
        raise RlcliError(message, suggest(value, choices))


def check_style(
    width: str | None, serif: bool, output: str | Path | None
) -> FigureStyle:
    """The style of the figure in the file `output`, with a width that there is."""
    if width is not None:
        check_choice("width", width, [*WIDTHS])
    if (width or serif) and Path(output or "").suffix.lower() not in FORMATS:
        message = f"`{'width' if width else 'serif'}` is for figures only"
        raise RlcliError(message, "write one with `--output`, such as `figure.pdf`")
    return FigureStyle(width, serif)


def check_threshold(threshold: float | None) -> None:
    """An error unless the threshold is None or finite."""
    if threshold is not None and not math.isfinite(threshold):
        raise RlcliError(
            f"`threshold` cannot be {threshold}", "pass a finite number, such as 475"
        )
