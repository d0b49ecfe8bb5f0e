"""Checks: validates the options of `plot` and `compare`, before reading any run."""

import math
from collections.abc import Sequence

from rlcli.errors import RlcliError, quote, suggest
from rlcli.results.figure import WIDTHS, FigureStyle


def check_choice(option: str, value: str, choices: Sequence[str]) -> None:
    """An error that suggests a choice, unless `value` is one."""
    if value not in choices:
        message = f"`{option}` cannot be {quote(value)}"
        raise RlcliError(message, suggest(value, choices))


def check_style(width: str | None, serif: bool) -> FigureStyle:
    """The style of a figure, with a width that there is."""
    if width is not None:
        check_choice("width", width, [*WIDTHS])
    return FigureStyle(width, serif)


def check_threshold(threshold: float | None) -> None:
    """An error unless the threshold is None or finite."""
    if threshold is not None and not math.isfinite(threshold):
        raise RlcliError(
            f"`threshold` cannot be {threshold}", "pass a finite number, such as 475"
        )
