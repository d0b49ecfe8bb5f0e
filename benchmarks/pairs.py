"""Measures loops alternately, for ratios that a busy machine does not change."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any

Advance = Callable[[int], Any]  # runs a number of environment steps


def compare(loops: Mapping[str, Advance], steps: int, rounds: int) -> None:
    """Prints steps per second of all, and the ratios of the first to the others.

    The first call of each compiles its program and is not counted.
    """
    import jax

    def seconds(name: str) -> float:
        start = time.perf_counter()
        jax.block_until_ready(loops[name](steps))
        return time.perf_counter() - start

    compiled = ", ".join(f"{name} {seconds(name):.1f} s" for name in loops)
    print(f"first call, with compilation: {compiled}")
    speeds = [{name: steps / seconds(name) for name in loops} for _ in range(rounds)]
    ours, *others = loops
    medians = {name: statistics.median(row[name] for row in speeds) for name in loops}
    print("  ".join(f"{name} {speed:9,.0f}" for name, speed in medians.items()))
    for name in others:
        ratios = [row[ours] / row[name] for row in speeds]
        low, *_, high = statistics.quantiles(ratios, n=4)
        middle = statistics.median(ratios)
        print(f"ratio to {name}: {middle:.3f} (quartiles {low:.3f} to {high:.3f})")
