"""Durations: limits of time such as `90s`, `10m` and `3h50m`."""

import math
import re
import time

# Of the process, approximately: `import rlcli` imports this module.
START_TIME = time.monotonic()
_NUMBER = r"([0-9]{1,9}(?:\.[0-9]{1,9})?)"
_DURATION = re.compile(rf"(?:{_NUMBER}h)?(?:{_NUMBER}m)?(?:{_NUMBER}s)?")


def parse_duration(duration: str | float) -> float:
    """Converts a duration to seconds; a number is already in seconds.

    Raises a ValueError for other text, and for durations that are not positive.

    >>> parse_duration("3h50m")
    13800.0
    """
    if isinstance(duration, str):
        match = _DURATION.fullmatch(duration.strip())
        parts = match.groups(default="0") if match else ("0", "0", "0")
        hours, minutes, rest = map(float, parts)
        total = 3600 * hours + 60 * minutes + rest
    else:
        total = float(duration)
    if not total > 0:  # refuses NaN as well
        expected = "expected a duration such as 90s, 10m or 3h50m"
        raise ValueError(f"{expected}, got {duration!r}")
    return total


class Deadline(float):
    """The monotonic time at which a limit is over, in seconds.

    It is passed on as `max_time`, so that all parts of a call end at the same time.
    """


def deadline_of(
    max_time: str | float | None, begin: float | None = None
) -> Deadline | None:
    """The time at which `max_time` is over; None if there is no limit.

    A duration is counted from `begin`, by default from now.
    """
    if max_time is None or isinstance(max_time, Deadline):
        return max_time
    begin = time.monotonic() if begin is None else begin
    return Deadline(begin + parse_duration(max_time))


def max_time_arguments(seconds: float) -> list[str]:
    """The arguments of a command with this limit, in whole seconds, at least one."""
    return ["--max-time", f"{max(1, math.ceil(seconds))}s"]
