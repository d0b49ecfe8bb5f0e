"""Calls a function when `benchmarks.peers` asks for it."""

from __future__ import annotations

import sys
from collections.abc import Callable

READY = "benchmark worker: ready"  # printed once ready, and after each call


def serve(run: Callable[[], object]) -> None:
    """Calls `run` for each line on stdin."""
    print(READY, flush=True)
    for _ in sys.stdin:
        run()
        print(READY, flush=True)
