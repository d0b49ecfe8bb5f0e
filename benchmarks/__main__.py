"""Runs all benchmarks, each in a separate process: `make bench`.

    python -m benchmarks [PYTHON]

`PYTHON` is the interpreter of an environment with rejax; without it, `benchmarks.rejax`
is left out.
"""

from __future__ import annotations

import subprocess
import sys

NAMES = (
    "loop",
    "seeds",
    "host",
    "ppo",
    "continuous",
    "backend",
    "first_result",
    "monitor",
    "jym",
    "environments",
    "memory",
)

commands = [[name] for name in NAMES]
commands += [["rejax", python] for python in sys.argv[1:]]
for name, *arguments in commands:
    print(f"\n== {name}", flush=True)
    subprocess.run([sys.executable, "-m", f"benchmarks.{name}", *arguments], check=True)
