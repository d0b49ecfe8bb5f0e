"""SIGKILL at random moments: every run is resumed to the result of an undisturbed one.

`make faults` runs it: runs of all kinds of algorithms, runs with varied options, sweeps
and populations, each killed again and again at any moment of its process, from its
start to its end. Kinds whose extra is not installed are left out.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from compilation import cache_programs, disable_optimization
from kill_recipes import KINDS, SPACE, Kind
from run_results import RunResult, differences, read_result

import rlcli
from rlcli.runs import checkpoint
from rlcli.runs.run_folder import Run, is_run
from rlcli.runs.study_record import find_study
from rlcli.studies.search.layout import is_sweep

_RESULTS = ("counts", "winner", "confirmed", "importance")  # of a sweep


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=200, help="in all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kind", choices=KINDS, action="append")
    options = parser.parse_args()
    names = []
    for name in options.kind or KINDS:
        if (needs := KINDS[name].needs) and importlib.util.find_spec(needs) is None:
            print(f"{name}: left out, because `{needs}` is not installed")
        else:
            names.append(name)
    failed, draw = 0, random.Random(options.seed)
    cache_programs(f"{tempfile.gettempdir()}/rlcli-kills")
    disable_optimization()  # of the programs of all runs alike
    for index, name in enumerate(names):
        kills = options.kills // len(names) + (index < options.kills % len(names))
        with tempfile.TemporaryDirectory() as folder:
            failed += not _check(name, kills, draw, Path(folder))
    return int(failed > 0)


def _check(name: str, kills: int, draw: random.Random, folder: Path) -> bool:
    """Kills runs of a kind so many times; whether all gave the same result."""
    kind, start = KINDS[name], time.monotonic()
    (folder / "mine.yaml").write_text(kind.recipe, encoding="utf-8")
    (folder / "space.yaml").write_text(SPACE, encoding="utf-8")
    for _ in range(2):  # the second has all programs in the cache
        shutil.rmtree(folder / "whole", ignore_errors=True)
        began = time.monotonic()
        if _run(_begin(kind, folder / "whole")) != 0:
            print(f"{name}: the undisturbed run failed")
            return False
        duration = time.monotonic() - began
    expected, done, runs = _read(folder / "whole"), 0, 0
    while done < kills:
        run, runs = folder / f"run-{runs}", runs + 1
        # At most eight kills in a run, and then it has to end.
        for _ in range(min(8, kills - done)):
            command = _next(kind, run)
            code = _run(command, kill_after=draw.random() * duration)
            done += code == -signal.SIGKILL
            if code not in (0, -signal.SIGKILL):
                print(f"{name}: exit code {code} of {run}")
                return False
            for each in _runs_below(run):
                for path in Run(each).newest_first():
                    checkpoint.read(path)
            if code == 0:
                break
        if _run(_next(kind, run)) != 0:
            return False
        if different := _differences(_read(run), expected):
            print(f"{name}: {run.name} has other {different}", flush=True)
            return False
    seconds = time.monotonic() - start
    print(
        f"{name}: {done} kills in {runs} runs, all equal, {seconds:.0f} s", flush=True
    )
    return True


def _begin(kind: Kind, run: Path) -> list[str]:
    """The command that begins a run, several or a sweep in this folder."""
    return [kind.command, "mine.yaml", *kind.arguments, "--quiet", "--run", str(run)]


def _next(kind: Kind, run: Path) -> list[str]:
    """The command after a kill: what has no recipe yet has not begun."""
    if kind.command == "sweep":
        has_begun = is_sweep(run)
        # With as many processes as before: checkpoints record their cores.
        resume = ["sweep", str(run), "--resume", "--quiet", "--jobs", "1"]
    else:
        has_begun = bool(find_study(run) or _runs_below(run))
        resume = ["resume", str(run), "--quiet"]
    if has_begun:
        return resume
    shutil.rmtree(run, ignore_errors=True)
    return _begin(kind, run)


def _runs_below(folder: Path) -> list[Path]:
    """The run in a folder, or those below it."""
    below = (path.parent for path in folder.rglob("run.json"))
    return sorted(path for path in {folder, *below} if is_run(path))


def _run(command: list[str], kill_after: float | None = None) -> int:
    """Runs rlcli, and kills it after so many seconds; the exit code."""
    process = subprocess.Popen(
        [sys.executable, "-m", "rlcli", *command],
        cwd=Path(command[-1]).parent if "--run" in command else Path(command[1]).parent,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        process.wait(kill_after)
    except subprocess.TimeoutExpired:
        for each in _descendants(process.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(each, signal.SIGKILL)
    code, message = process.wait(), process.communicate()[1].decode()
    if code not in (0, -signal.SIGKILL):
        print(message, flush=True)
    return code


def _descendants(process: int) -> list[int]:
    """A process and those that it has started, which have groups of their own."""
    listed = subprocess.run(
        ["ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True, check=True
    )
    pairs = [tuple(map(int, line.split())) for line in listed.stdout.splitlines()]
    found = [process]
    for parent in found:  # grows
        found += [child for child, its_parent in pairs if its_parent == parent]
    return found


def _read(folder: Path) -> dict[str, RunResult | object]:
    """The results of all runs below a folder, and those of a sweep, by their names."""
    results: dict[str, RunResult | object] = {
        str(run.relative_to(folder)): read_result(run) for run in _runs_below(folder)
    }
    results["temporary files"] = sorted(path.name for path in folder.rglob("*.tmp"))
    if is_sweep(folder):
        summary = rlcli.show_sweep(folder)
        results |= {name: summary[name] for name in _RESULTS}
        trials = summary["trials"]
        results["trials"] = [(trial["options"], trial["value"]) for trial in trials]
    rounds = folder / "trials" / "rounds.jsonl"
    results["rounds"] = rounds.read_bytes() if rounds.exists() else b""
    return results


def _differences(
    found: dict[str, RunResult | object], expected: dict[str, RunResult | object]
) -> str:
    """What differs, in words; "" for nothing."""
    words = []
    for name in sorted({*found, *expected}):
        one, other = found.get(name), expected.get(name)
        if isinstance(one, RunResult) and isinstance(other, RunResult):
            words += [f"{field} of {name}" for field in differences(one, other)]
        elif one != other:
            words.append(name)
    return ", ".join(words)


if __name__ == "__main__":
    sys.exit(main())
