"""Formatting: numbers, durations, returns and changed options as text for people."""

import calendar
import math
import time
from collections.abc import Mapping, Sequence
from numbers import Integral
from typing import Any

from rlcli.errors import shorten
from rlcli.quoting import printable
from rlcli.runs.files import to_json
from rlcli.runs.naming import shorten_keys

NOTHING = "–"
LONGEST_VALUE = 24  # characters of the value of an option
_MAX_LISTED = 6  # differences in a message
_UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"))
_SHOWN_ELSEWHERE = ("train.seed", "train.seeds")


def format_number(value: float | None) -> str:
    """Formats a number: integers and large numbers whole, others with 3 digits.

    >>> [format_number(x) for x in (9953, 0.12345, 31234.5, None)]
    ['9,953', '0.123', '31,234', '–']
    """
    if value is None or not math.isfinite(value):
        return NOTHING
    if isinstance(value, Integral) or 999.5 <= abs(value) < 1e9:
        return f"{round(value):,d}"
    return f"{value:.3g}"


def format_count(value: float | None) -> str:
    """Formats a number of steps with three digits.

    >>> [format_count(x) for x in (256, 12_500, 50_000, 10_000_000, None)]
    ['256', '12.5k', '50k', '10M', '–']
    """
    if value is None or not math.isfinite(value):
        return NOTHING
    for size, suffix in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= 0.9995 * size:
            return f"{value / size:.3g}{suffix}"
    return f"{value:.3g}"


def format_number_of(number: int, noun: str) -> str:
    """`1 seed`, `2,000 seeds`."""
    return f"{number:,} {noun}" + "s" * (number != 1)


def format_duration(seconds: float) -> str:
    """Formats a duration in its largest unit: `12 s`, `5 min`, `3 h`, `2 d`."""
    for size, unit in _UNITS:
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{max(seconds, 0):.0f} s"


def parse_time(text: str | None) -> float | None:
    """The Unix time of a time in `run.json`; None if it is missing or invalid."""
    try:
        return calendar.timegm(time.strptime(text or "", "%Y-%m-%dT%H:%M:%SZ"))
    except ValueError:
        return None


def format_value(value: Any, longest: int = LONGEST_VALUE) -> str:
    """Formats the value of an option; a schedule from 0.001 to 0 as `0.001→0`."""
    if isinstance(value, Mapping) and {"from", "to"} <= value.keys():
        return "→".join(format_value(value[key]) for key in ("from", "to"))
    if isinstance(value, Mapping) and "name" in value:
        value = value["name"]
    if isinstance(value, float):
        value = f"{value:.6g}"
    elif isinstance(value, int) and not isinstance(value, bool):
        value = f"{value:_}"
    text = value if isinstance(value, str) else to_json(value)
    return printable(shorten(text, longest)).replace("\n", "\\n")


def format_differences(found: Mapping[str, tuple[Any, Any]]) -> str:
    """Formats values before and after, the first few: `jax 0.10.2 → 0.12.0; …`."""
    listed = [
        f"{printable(shorten(key))} {format_value(before)} → {format_value(now)}"
        for key, (before, now) in found.items()
    ]
    surplus = len(listed) - _MAX_LISTED
    more = [f"{surplus} more"] if surplus > 0 else []
    return "; ".join([*listed[:_MAX_LISTED], *more])


def format_return(result: Mapping[str, Any] | None) -> str:
    """The field `return` of a record in words; "" if no episode has finished."""
    if result is None:
        return ""
    is_evaluation = result["source"] == "evaluation"
    source = "evaluation" if is_evaluation else "running mean of training"
    source = f"{source} at step {result['step']:,}"
    mean = format_number(result["mean"])
    if result["ci95"] is None:
        return f"{mean} (95 % interval over seeds: n/a: 1 seed), {source}"
    iqm, low, high = map(format_number, (result["iqm"], *result["ci95"]))
    return (
        f"mean {mean}, IQM {iqm} (95 % bootstrap interval {low} to {high} over "
        f"{len(result['seeds'])} seeds), {source}"
    )


def format_source(init: Mapping[str, Any] | None) -> str:
    """The field `init` of a record: file, seeds, steps and SHA-256; "" without one.

    The folder is that of the source when the run was created: it may be gone.
    """
    if not init:
        return ""
    seeds, steps = (
        ", ".join(f"{number:,}" for number in dict.fromkeys(init.get(key) or ()))
        for key in ("seeds", "steps")
    )
    file, digest = init.get("file"), init.get("sha256")
    return f"{file}, seeds {seeds}, at step {steps}, SHA-256 {digest}"


def format_changes(changes: Mapping[str, Sequence[Any]] | None) -> list[str]:
    """The new values of changed options: `learning_rate=0.0005`.

    Omits the seeds, and the options of a part whose name has changed.
    """
    changes = changes or {}
    parts = {key.removesuffix("name") for key in changes if key.endswith(".name")}
    shown = {
        key: pair[1]
        for key, pair in changes.items()
        if key not in _SHOWN_ELSEWHERE
        and (key.endswith(".name") or not key.startswith((*parts,)))
    }
    names = shorten_keys([*shown])
    return [
        f"{printable(name)}={format_value(value)}"
        for name, value in zip(names, shown.values(), strict=True)
    ]
