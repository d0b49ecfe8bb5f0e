"""Fuzzing: 100 000 random cases, each a success or one clear error; `make fuzz`.

A case is named by a number: `--seed NUMBER --cases 1` repeats it alone.
"""

from __future__ import annotations

import argparse
import collections
import faulthandler
import resource
import sys
import tempfile
import time
import traceback
from pathlib import Path

from fuzz_guard import FoundError, Guard
from fuzz_targets import TARGETS, Place, cases

_REPORT = 5_000  # cases between two lines
_WATCHED, _PATIENCE = 100, 600  # so many cases have so many seconds


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--target", choices=TARGETS, help="only cases of this kind")
    parser.add_argument("--traceback", action="store_true", help="of every defect")
    options = parser.parse_args()
    counts: collections.Counter[str] = collections.Counter()
    accepted: collections.Counter[str] = collections.Counter()
    seconds: collections.Counter[str] = collections.Counter()
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        place, guard = Place(folder), Guard(folder)
        with guard.limits():
            for index, (kind, draw) in enumerate(cases(options.seed, options.cases)):
                if options.target not in (None, kind):
                    continue
                if index % _WATCHED == 0:  # for code that does not return to Python
                    faulthandler.dump_traceback_later(_PATIENCE, exit=True)
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
                if (index + 1) % _REPORT == 0:
                    print(f"{index + 1:,} cases", flush=True)
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
