"""Measures loops alternately, for ratios that a busy machine does not change."""

from __future__ import annotations

import re
import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

Advance = Callable[[int], Any]  # runs a number of environment steps

HEADER = """\
| work | rlcli | steps/s | other | steps/s | ratio | quartiles | first calls, s |
|---|---|---|---|---|---|---|---|"""
ROW = re.compile(r"\|.*\| \S+ … \S+ \| \S+ · \S+ \|")  # a row of this table


class Loop(NamedTuple):
    """A loop to measure, and the environment steps of one call.

    Loops of very different speeds take different numbers of steps, so that a call of
    each is long enough to be measured.
    """

    advance: Advance
    steps: int


def compare(
    work: str, ours: Mapping[str, Loop], others: Mapping[str, Loop], rounds: int
) -> None:
    """Prints a table: each loop of rlcli compared with each of the others.

    Every round calls all loops in turn. Speeds and ratios are medians over the rounds;
    the ratio of a round is that of calls next to each other. The first call of a loop
    compiles its program; it is a column of its own and is not counted.
    """
    loops = {**ours, **others}
    first = {name: measure(loop) for name, loop in loops.items()}
    speeds = [
        {name: loop.steps / measure(loop) for name, loop in loops.items()}
        for _ in range(rounds)
    ]
    medians = {name: statistics.median(row[name] for row in speeds) for name in loops}
    print(HEADER)
    for our in ours:
        for other in others:
            ratios = [row[our] / row[other] for row in speeds]
            low, *_, high = statistics.quantiles(ratios, n=4)
            cells = [
                work,
                our,
                format_speed(medians[our]),
                other,
                format_speed(medians[other]),
                format_ratio(statistics.median(ratios)),
                f"{format_ratio(low)} … {format_ratio(high)}",
                f"{first[our]:.1f} · {first[other]:.1f}",
            ]
            print("| " + " | ".join(cells) + " |", flush=True)


def format_speed(speed: float) -> str:
    """Formats steps per second: 42 500."""
    return f"{speed:,.0f}".replace(",", " ")


def format_ratio(ratio: float) -> str:
    """Formats a ratio with three digits: 0.956, 1.23, 14.6, 146."""
    return (
        f"{ratio:.{3 if ratio < 1 else 2 if ratio < 10 else 1 if ratio < 100 else 0}f}"
    )


def measure(loop: Loop) -> float:
    """Returns the seconds of a call."""
    import jax

    start = time.perf_counter()
    jax.block_until_ready(loop.advance(loop.steps))
    return time.perf_counter() - start
