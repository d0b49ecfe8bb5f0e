"""SIGKILL at random moments: every run is resumed to the result of an undisturbed one.

`make faults` runs it: five recipes with evaluations, one with films, each killed again
and again at any moment of its process, from its start to its end.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from kill_recipes import RECIPES

from rlcli.runs import checkpoint
from rlcli.runs.metrics import CLOCK_FIELDS
from rlcli.runs.run_folder import Run, is_run

_FIELDS = ("checkpoint", "policies", "rows", "temporary files", "films", "status")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=100, help="in all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--recipe", choices=RECIPES, action="append")
    options = parser.parse_args()
    names = options.recipe or [*RECIPES]
    failed, draw = 0, random.Random(options.seed)
    os.environ.setdefault(
        "JAX_COMPILATION_CACHE_DIR", f"{tempfile.gettempdir()}/rlcli-kills"
    )
    for index, name in enumerate(names):
        kills = options.kills // len(names) + (index < options.kills % len(names))
        with tempfile.TemporaryDirectory() as folder:
            failed += not _check(name, kills, draw, Path(folder))
    return int(failed > 0)


def _check(name: str, kills: int, draw: random.Random, folder: Path) -> bool:
    """Kills runs of a recipe so many times; whether all gave the same result."""
    recipe = folder / "mine.yaml"
    recipe.write_text(RECIPES[name], encoding="utf-8")
    start = time.monotonic()
    train = ["train", recipe, "--quiet", "--run"]
    for _ in range(2):  # the second has all programs in the cache
        shutil.rmtree(folder / "whole", ignore_errors=True)
        began = time.monotonic()
        if _run([*train, folder / "whole"]) != 0:
            print(f"{name}: the undisturbed run failed")
            return False
        duration = time.monotonic() - began
    expected, done, runs = _result(folder / "whole"), 0, 0
    while done < kills:
        run, runs = folder / f"run-{runs}", runs + 1
        command = [*train, run]
        # At most eight kills in a run, and then it has to end.
        for _ in range(min(8, kills - done)):
            code = _run(command, kill_after=draw.random() * duration)
            done += code == -signal.SIGKILL
            if code not in (0, -signal.SIGKILL):
                print(f"{name}: exit code {code} of {run}")
                return False
            for path in Run(run).newest_first() if is_run(run) else ():
                checkpoint.read(path)
            command = _continue(run, [*train, run])
            if code == 0:
                break
        if _run(command) != 0:
            return False
        found = _result(run)
        if found != expected:
            pairs = zip(_FIELDS, found, expected, strict=True)
            different = [field for field, one, other in pairs if one != other]
            print(f"{name}: {run.name} has other {', '.join(different)}", flush=True)
            return False
    seconds = time.monotonic() - start
    print(
        f"{name}: {done} kills in {runs} runs, all equal, {seconds:.0f} s", flush=True
    )
    return True


def _continue(run: Path, train: list) -> list:
    """The command after a kill: a run without a recipe has not begun."""
    if not is_run(run):
        return train
    return ["resume", run, "--quiet"]


def _run(command: list, kill_after: float | None = None) -> int:
    """Runs rlcli, and kills it after so many seconds; the exit code."""
    process = subprocess.Popen(
        [sys.executable, "-m", "rlcli", *map(str, command)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        process.wait(kill_after)
    except subprocess.TimeoutExpired:
        process.kill()
    code, message = process.wait(), process.communicate()[1].decode()
    if code not in (0, -signal.SIGKILL):
        print(message, flush=True)
    return code


def _result(folder: Path) -> tuple:
    """The bytes of checkpoint and policies, the rows, and the temporary files."""
    run = Run(folder)
    latest = run.latest_checkpoint()
    rows = [json.loads(line) for line in run.metrics.read_text().splitlines()]
    return (
        latest and (latest.name, latest.read_bytes()),
        [path.read_bytes() for path in (run.policy, run.best)],
        [{k: v for k, v in row.items() if k not in CLOCK_FIELDS} for row in rows],
        [path.name for path in folder.rglob("*.tmp")],
        sorted(path.name for path in folder.glob("films/*")),
        run.read_info()["status"],
    )


if __name__ == "__main__":
    sys.exit(main())
