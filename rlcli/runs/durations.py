"""Durations, as people write them: `90s`, `10m`, `3h50m`."""

from __future__ import annotations

import re
import time

START_TIME = (
    time.monotonic()
)  # of the process, as nearly as we know: `rlcli` imports this
_NUMBER = r"([0-9]{1,9}(?:\.[0-9]{1,9})?)"
_DURATION = re.compile(rf"(?:{_NUMBER}h)?(?:{_NUMBER}m)?(?:{_NUMBER}s)?")


def parse_duration(duration: str | float) -> float:
    """How many seconds a duration is; a number is that many.

    ValueError where it is no duration, or no time at all.

    >>> seconds("3h50m")
    13800.0
    """
    if isinstance(duration, str):
        match = _DURATION.fullmatch(duration.strip())
        parts = match.groups(default="0") if match else ("0", "0", "0")
        hours, minutes, rest = map(float, parts)
        total = 3600 * hours + 60 * minutes + rest
    else:
        total = float(duration)
    if not total > 0:  # NaN is no time either
        raise ValueError(
            f"expected a duration such as 90s, 10m or 3h50m, got {duration!r}"
        )
    return total
