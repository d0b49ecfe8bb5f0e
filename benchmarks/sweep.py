"""A sweep of short trials of equal structure, compared with one program of them.

    python -m benchmarks.sweep [TRIALS] [ROUNDS]

The commands `rlcli sweep --sampler random` and `rlcli train --vary-zip`, with the same
learning rates, one seed each: from the start of the process to its end, once with an
empty compilation cache and once with the programs in it. The commands alternate, and
the ratio of a round is that of commands next to each other. `--jobs 1` trains all
trials in one process, as `rlcli train` does; by default there is one for each core.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from rlcli.studies.search.space import load_space

RECIPE, STEPS = "dqn_cartpole", 20_000  # of each trial
KEY = "optimizer.learning_rate"
SPACE = {KEY: {"log_uniform": [1e-4, 1e-2]}}
TRIALS, ROUNDS = 64, 5
SETS = (f"train.steps={STEPS}", f"train.evaluate.every={STEPS // 4}", "train.stop=null")
HEADER = """\
| cache | command | s | rlcli train --vary-zip, s | ratio | quartiles |
|---|---|---|---|---|---|"""


def commands(trials: int, folder: Path) -> dict[str, list[str]]:
    """The arguments of `rlcli` by the names of the commands; the last is one program.

    Every command writes to `folder / "out"`.
    """
    file = folder / "space.yaml"
    file.write_text(f"{KEY}: {{log_uniform: {SPACE[KEY]['log_uniform']}}}\n")
    space = load_space(file)
    rates = ",".join(str(space.draw(0, trial)[KEY]) for trial in range(trials))
    common = ["--quiet", "--seed", "0", "--seeds", "1", "--run", str(folder / "out")]
    for setting in SETS:
        common += ["--set", setting]
    search = ["sweep", "--space", str(file), "--trials", str(trials), "--sampler"]
    search += ["random", "--pruner", "none", "--confirm", "0", *common]
    return {
        "rlcli sweep": [*search, RECIPE],
        "rlcli sweep --jobs 1": [*search, "--jobs", "1", RECIPE],
        "program": ["train", "--vary-zip", f"{KEY}={rates}", *common, RECIPE],
    }


def measure(arguments: Sequence[str], folder: Path, cache: Path) -> float:
    """The seconds of a command, from its start to its end."""
    shutil.rmtree(folder / "out", ignore_errors=True)
    start = time.perf_counter()
    subprocess.run(
        [sys.executable, "-m", "rlcli", *arguments],
        env=os.environ | {"XDG_CACHE_HOME": str(cache)},
        stdout=subprocess.DEVNULL,
        check=True,
    )
    return time.perf_counter() - start


def main(trials: int = TRIALS, rounds: int = ROUNDS) -> None:
    """Prints the seconds of each command, and the ratio to one program."""
    print(f"{trials} trials of {RECIPE}, {STEPS:,} steps each\n\n{HEADER}", flush=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for cache in ("empty", "filled"):
            seconds = [measure_round(trials, folder, cache) for _ in range(rounds)]
            *ours, program = seconds[0]
            for command in ours:
                print_row(
                    cache,
                    command,
                    [each[command] for each in seconds],
                    [each[program] for each in seconds],
                )


def measure_round(trials: int, folder: Path, cache: str) -> dict[str, float]:
    """The seconds of each command; the programs of the last round fill the cache."""
    seconds = {}
    for index, (name, arguments) in enumerate(commands(trials, folder).items()):
        place = folder / f"cache-{index}"
        if cache == "empty":
            shutil.rmtree(place, ignore_errors=True)
        seconds[name] = measure(arguments, folder, place)
    return seconds


def print_row(
    cache: str, command: str, ours: Sequence[float], program: Sequence[float]
) -> None:
    """Prints the medians over the rounds, and the quartiles of the ratio."""
    ratios = [one / other for one, other in zip(ours, program, strict=True)]
    low, high = min(ratios), max(ratios)
    if len(ratios) > 1:
        low, _, high = statistics.quantiles(ratios, n=4)
    cells = [
        cache,
        command,
        f"{statistics.median(ours):.1f}",
        f"{statistics.median(program):.1f}",
        f"{statistics.median(ratios):.3f}",
        f"{low:.3f} … {high:.3f}",
    ]
    print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
