"""Load: a run of ten million steps, and many runs, seeds and environments at once.

    python -m benchmarks.load [--runs N] [long together seeds environments]

`long`: ten million steps, 1 000 checkpoints and a million rows of metrics. The table
has memory, open files and speed in the second tenth of the run and in the last one.
`together`: N runs that start at once below one folder, by default eight per core: each
is a process with an interpreter and JAX of its own, which takes seconds of a core and a
third of a GB. `seeds`: 1 024 seeds. `environments`: 65 536 environments.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from rlcli.xla.threads import usable_cores

STEPS = 10_000_000
LONG = (
    f"train.steps={STEPS}",
    "train.log.every=10",
    f"train.checkpoint.every={STEPS // 1_000}",
    "train.evaluate=null",
    "train.stop=null",
)
RUNS_PER_CORE = 8
MIB = 2**20


class Sample(NamedTuple):
    """A process at a moment."""

    seconds: float
    step: int
    memory: int  # resident, bytes
    files: int  # open


def rlcli(*arguments: str) -> subprocess.Popen:
    """Starts rlcli in a separate process."""
    command = [sys.executable, "-m", "rlcli", *arguments]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL)


def observe(process: subprocess.Popen, run: Path) -> list[Sample]:
    """Samples of a process that trains a run, at each new checkpoint."""
    begin, samples = time.perf_counter(), []
    page = os.sysconf("SC_PAGE_SIZE")
    while process.poll() is None:
        time.sleep(0.05)
        try:
            latest = json.loads((run / "checkpoints.json").read_text())["latest"]
            step = int(latest.partition(".")[0])
            memory = int(Path(f"/proc/{process.pid}/statm").read_text().split()[1])
            files = len(os.listdir(f"/proc/{process.pid}/fd"))
        except (OSError, IndexError):  # before the first checkpoint, or at the end
            continue
        if not samples or step > samples[-1].step:
            seconds = time.perf_counter() - begin
            samples.append(Sample(seconds, step, memory * page, files))
    return samples


def measure_long(folder: Path) -> None:
    """Prints a run's speed, memory and files near its beginning and at its end."""
    run = folder / "long"
    sets = [word for each in LONG for word in ("--set", each)]
    process = rlcli(
        "train", "qlearning_frozenlake", "--quiet", "--run", str(run), *sets
    )
    samples = observe(process, run)
    if process.returncode:
        raise SystemExit(f"the run ended with exit code {process.returncode}")
    parts = [
        [each for each in samples if low * STEPS <= each.step <= high * STEPS]
        for low, high in ((0.1, 0.2), (0.9, 1.0))
    ]
    print(f"{samples[-1].seconds:.0f} s")
    with (run / "metrics.jsonl").open(encoding="utf-8") as file:
        print(f"{sum(1 for _ in file):,} rows, {len(samples):,} checkpoints seen")
    print("\n| part of the run | steps/s | memory MiB | open files |")
    print("|---|---|---|---|")
    for name, part in zip(("second tenth", "last tenth"), parts, strict=True):
        steps = part[-1].step - part[0].step
        rate = steps / (part[-1].seconds - part[0].seconds)
        memory = statistics.median(each.memory for each in part) / MIB
        files = statistics.median(each.files for each in part)
        print(f"| {name} | {rate:,.0f} | {memory:,.1f} | {files:.0f} |", flush=True)


def measure_together(folder: Path, runs: int) -> None:
    """Prints how many of the runs that start at once have finished, in folders."""
    begin = time.perf_counter()
    command = ("train", "qlearning_frozenlake", "--smoke", "--quiet", "--runs")
    processes = [rlcli(*command, str(folder / "together")) for _ in range(runs)]
    codes = [process.wait() for process in processes]
    infos = [
        json.loads(path.read_text())["status"]
        for path in (folder / "together").glob("*/*/run.json")
    ]
    seconds = time.perf_counter() - begin
    print(
        f"{runs} runs at once: {codes.count(0)} with exit code 0, {len(infos)} "
        f"folders, {infos.count('finished')} finished, {seconds:.0f} s"
    )


def measure_one(name: str, folder: Path, arguments: Sequence[str]) -> None:
    """Prints exit code, time and peak memory of one command."""
    begin = time.perf_counter()
    process = rlcli("train", *arguments, "--quiet", "--run", str(folder / name))
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - begin
    print(
        f"{name}: exit code {os.waitstatus_to_exitcode(status)}, {seconds:.0f} s, "
        f"peak {usage.ru_maxrss / 1024:,.0f} MiB: rlcli train {' '.join(arguments)}"
    )


def measure_seeds(folder: Path) -> None:
    """Measures 1 024 seeds."""
    measure_one("seeds", folder, ["dqn_cartpole", "--smoke", "--seeds", "1024"])


def measure_environments(folder: Path) -> None:
    """Measures 65 536 environments."""
    size = ["--set", "environment.num_envs=65536", "--set", "train.steps=33_554_432"]
    measure_one("environments", folder, ["ppo_cartpole", *size])


MEASUREMENTS: Mapping[str, Callable[[Path], None]] = {
    "long": measure_long,
    "seeds": measure_seeds,
    "environments": measure_environments,
}


def main() -> None:
    """Runs the measurements that are named, by default all."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    runs = RUNS_PER_CORE * usable_cores()
    parser.add_argument("--runs", type=int, default=runs, metavar="N")
    parser.add_argument("names", nargs="*", metavar="NAME")
    options = parser.parse_args()
    measurements = {
        **MEASUREMENTS,
        "together": lambda folder: measure_together(folder, options.runs),
    }
    if unknown := sorted({*options.names} - {*measurements}):
        known = ", ".join(measurements)
        parser.error(f"{', '.join(unknown)}: expected some of {known}")
    for name in options.names or measurements:
        with tempfile.TemporaryDirectory() as folder:
            measurements[name](Path(folder))


if __name__ == "__main__":
    main()
