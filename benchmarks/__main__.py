"""Runs all benchmarks, each in a separate process: `make bench`."""

from __future__ import annotations

import subprocess
import sys

for name in ("loop", "host", "monitor", "jym", "environments", "memory"):
    print(f"\n== {name}", flush=True)
    subprocess.run([sys.executable, "-m", f"benchmarks.{name}"], check=True)
