"""Fuzzing: 100 000 random cases, each a success or one clear error; `make fuzz`.

A case is named by a number: `--seed NUMBER --cases 1` repeats it alone.
"""

from __future__ import annotations

import argparse
import collections
import faulthandler
import itertools
import os
import resource
import sys
import tempfile
import time
import traceback
from pathlib import Path

import jax
from fuzz_guard import FoundError, Guard
from fuzz_targets import TARGETS, Place, cases

_REPORT = 5_000  # cases between two lines, a multiple of `_BLOCK`
_BLOCK, _PATIENCE = 250, 900  # so many cases have so many seconds


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--target", choices=TARGETS, nargs="+", default=TARGETS, help="only these kinds"
    )
    parser.add_argument("--traceback", action="store_true", help="of every defect")
    options = parser.parse_args()
    counts: collections.Counter[str] = collections.Counter()
    accepted: collections.Counter[str] = collections.Counter()
    seconds: collections.Counter[str] = collections.Counter()
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        # What rlcli keeps for the user is below the folder too.
        for kind in ("CACHE", "CONFIG", "DATA"):
            os.environ[f"XDG_{kind}_HOME"] = str(folder / kind.lower())
        place, guard = Place(folder), Guard(folder)
        remaining = enumerate(cases(options.seed, options.cases))
        while block := [*itertools.islice(remaining, _BLOCK)]:
            faulthandler.dump_traceback_later(_PATIENCE, exit=True)
            with guard.limits():  # of memory, beyond what the blocks before have left
                for index, (kind, draw) in block:
                    if kind not in options.target:
                        continue
                    target, begin = TARGETS[kind], time.perf_counter()
                    counts[kind] += 1
                    try:
                        case = target.make(draw, place)
                        accepted[kind] += guard.run(case, is_data=target.is_data)
                    except FoundError as error:
                        counts["DEFECTS"] += 1
                        print(f"{options.seed + index} {kind}: {error}", flush=True)
                        if options.traceback:
                            traceback.print_exc()
                    seconds[kind] += time.perf_counter() - begin
            jax.clear_caches()  # programs of commands
            done = block[-1][0] + 1
            if done % _REPORT == 0:
                print(f"{done:,} cases", flush=True)
    faulthandler.cancel_dump_traceback_later()
    for kind in TARGETS:
        print(
            f"{kind:14} {counts[kind]:7,} cases, {accepted[kind]:7,} accepted, "
            f"{seconds[kind]:6.0f} s"
        )
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"{time.monotonic() - start:.0f} s, slowest case {guard.slowest:.2f} s, peak "
        f"memory {peak:.0f} MiB, {counts['DEFECTS']} defects"
    )
    return int(counts["DEFECTS"] > 0)


if __name__ == "__main__":
    sys.exit(main())
