"""A study of 3 recipes × 4 environments × 5 seeds, beside the same cells one by one.

    python -m benchmarks.study [ROUNDS] [STEPS]

`rlcli study` trains the cells in a process per core. By hand each cell is a process of
`rlcli train` with a core of its own, begun when another ends. The two alternate,
with an empty compilation cache each. Prints the seconds of both from the start to the
end, and how many cells have a policy of the same bytes.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from rlcli.recipe.documents import dump_yaml
from rlcli.runs.study_record import find_study

RECIPES = ("ppo_cartpole", "a2c_cartpole", "dqn_cartpole")
ENVIRONMENTS = ("CartPole-v1", "Acrobot-v1", "MountainCar-v0", "GridWorld-v0")
ROUNDS, STEPS, SEEDS = 2, 10_000, 5
_COMMAND = (sys.executable, "-m", "rlcli")


def make_study(steps: int, seeds: int = SEEDS) -> dict[str, object]:
    """The data of the study, as in its file; all cells have an evaluation."""
    settings = [f"train.steps={steps}", "train.stop=null"]
    settings += [f"train.evaluate.every={steps}", f"train.log.every={steps // 4}"]
    settings += ["train.evaluate.episodes=2", f"train.checkpoint.every={steps // 4}"]
    return {
        "recipes": [*RECIPES],
        "environments": [*ENVIRONMENTS],
        "seeds": seeds,
        "set": settings,
    }


def measure(train: Callable[[Path, Mapping[str, str]], None], folder: Path) -> float:
    """The seconds of a way to train the cells, with an empty compilation cache."""
    variables = os.environ | {"XDG_CACHE_HOME": str(folder / "cache")}
    begin = time.perf_counter()
    train(folder, variables)
    seconds = time.perf_counter() - begin
    shutil.rmtree(folder / "cache", ignore_errors=True)
    return seconds


def train_study(folder: Path, variables: Mapping[str, str]) -> None:
    """`rlcli study` of the file in the folder."""
    words = [*_COMMAND, "study", str(folder / "paper.yaml"), "--quiet"]
    words += ["--run", str(folder / "study")]
    subprocess.run(words, env=variables, stdout=subprocess.DEVNULL, check=True)


def train_by_hand(folder: Path, variables: Mapping[str, str]) -> None:
    """A process of `rlcli train` for each cell of the study in the folder."""
    study = find_study(folder / "study")
    assert study is not None
    waiting, cores = [*study.cells], sorted(os.sched_getaffinity(0))
    running: dict[int, subprocess.Popen[bytes]] = {}  # by their cores
    while waiting or running:
        for core in cores:
            if core in running or not waiting:
                continue
            cell = waiting.pop(0)
            words = [*_COMMAND, "train", str(cell.recipe), "--quiet"]
            words += ["--run", str(folder / "hand" / cell.label)]
            for setting in cell.sets:
                words += ["--set", setting]
            process = subprocess.Popen(words, env=variables, stdout=subprocess.DEVNULL)
            os.sched_setaffinity(process.pid, [core])
            running[core] = process
        time.sleep(0.05)
        running = {c: each for c, each in running.items() if each.poll() is None}


def count_equal(folder: Path) -> int:
    """How many cells have the same policy, to the byte, in both ways."""
    study = find_study(folder / "study")
    assert study is not None
    name = "policy.pkl.lz4"
    return sum(
        (cell.folder / name).read_bytes()
        == (folder / "hand" / cell.label / name).read_bytes()
        for cell in study.cells
    )


def main(rounds: int = ROUNDS, steps: int = STEPS) -> None:
    """Prints the seconds of each round, and their ratio."""
    cells = len(RECIPES) * len(ENVIRONMENTS)
    print(f"{cells} cells of {SEEDS} seeds, {steps:,} steps each\n")
    print("| round | rlcli study, s | by hand, s | ratio | equal policies |")
    print("|---|---|---|---|---|")
    ratios = []
    for number in range(1, rounds + 1):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            (folder / "paper.yaml").write_text(dump_yaml(make_study(steps)))
            ours, theirs = (
                measure(way, folder) for way in (train_study, train_by_hand)
            )
            ratios.append(ours / theirs)
            row = f"{number} | {ours:.1f} | {theirs:.1f} | {ratios[-1]:.2f}"
            print(f"| {row} | {count_equal(folder)} of {cells} |", flush=True)
    print(f"\nmedian of the ratios: {statistics.median(ratios):.2f}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
