"""The long form of the tests of faults: every call on a file of a run fails once.

`make faults` runs it. With a C compiler the calls are those of the C library, else
those of Python. Prints the number of cases and their outcomes for each kind of fault,
and exits with 1 if a run was damaged.
"""

from __future__ import annotations

import argparse
import collections
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from fault_injection import PythonInjector, ShimInjector
from fault_scenarios import BrokenRunError, Campaign, sharing_a_program

_SOURCE = Path(__file__).with_name("shim.c")
_LOADED = "RLCLI_FAULT_SHIM"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--every", type=int, default=1, help="fails only every N-th call"
    )
    parser.add_argument("--first", type=int, default=1, help="begins at this call")
    parser.add_argument("--python", action="store_true", help="uses no C compiler")
    parser.add_argument("--scenario", choices=["train", "resume"], action="append")
    parser.add_argument("--fault", choices=ShimInjector.faults, action="append")
    options = parser.parse_args()
    compiler = shutil.which(os.environ.get("CC", "cc"))
    if not options.python and compiler and not os.environ.get(_LOADED):
        _restart_with_shim(compiler)
    injector = ShimInjector() if os.environ.get(_LOADED) else PythonInjector()
    print(f"injection by {type(injector).__name__}", flush=True)
    failed = 0
    with tempfile.TemporaryDirectory() as folder, sharing_a_program():
        campaign = Campaign(injector, Path(folder))
        for scenario in options.scenario or ["train", "resume"]:
            calls = range(options.first, campaign.counts[scenario] + 1, options.every)
            for fault in options.fault or injector.faults:
                failed += _run(campaign, scenario, fault, calls)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"peak memory: {peak:.0f} MiB")
    return int(failed > 0)


def _restart_with_shim(compiler: str) -> None:
    """Replaces this process by one with the shim."""
    library = Path(tempfile.mkdtemp()) / "shim.so"
    command = [compiler, "-shared", "-fPIC", "-o", library, _SOURCE, "-ldl"]
    subprocess.run(command, check=True)
    os.environ |= {"LD_PRELOAD": str(library), _LOADED: "1"}
    os.execv(sys.executable, [sys.executable, *sys.argv])


def _run(campaign: Campaign, scenario: str, fault: str, calls: range) -> int:
    """Runs all cases of a fault, and prints their outcomes; the number of failures."""
    outcomes: collections.Counter[str] = collections.Counter()
    start = time.monotonic()
    for at in calls:
        try:
            outcomes[campaign.check(scenario, fault, at)] += 1
        except BrokenRunError as error:
            outcomes["DAMAGED"] += 1
            print(f"{scenario} {fault} {at}: {error}", flush=True)
    seconds = time.monotonic() - start
    print(f"{scenario} {fault}: {sum(outcomes.values())} cases, {seconds:.0f} s")
    for outcome, count in outcomes.most_common():
        print(f"    {count:5d} {outcome}", flush=True)
    return outcomes["DAMAGED"]


if __name__ == "__main__":
    sys.exit(main())
