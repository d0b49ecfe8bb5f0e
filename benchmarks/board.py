"""Board: how fast 1 000 runs of 10 000 rows open and update, and what training pays.

    python -m benchmarks.board [--runs N] [--rows N] [--repeats N] [--folder DIR]

Writes runs as training does, with a seed, an evaluation every 200th row, and ten
groups; with 3.5 GB by default. Prints, as medians over repeats:

* `table`: from a new index to the rows of the table, without the start of Python;
* `open`: the same, and the results and curves of all runs;
* `update`: from a row that a run has appended to the new table and curves of its group;
* `update of all`: the same, of the curves of all runs;
* with --train, the steps per second of a run of `ppo_cartpole` alone and while a board
  of the runs is asked every second, alternating.

Run it on an idle machine. It needs no extra.
"""

import argparse
import contextlib
import json
import math
import os
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

from rlcli.errors import RlcliError
from rlcli.results.board.page_parts import PartMaker, Selection
from rlcli.results.board.run_index import RunIndex

GROUPS = 10
SEEDS = 64  # of the run that is trained beside a board
RESOLVED = """\
environment: {{name: CartPole-v1, num_envs: 8}}
network: {{name: mlp, layers: [64, 64]}}
policy: {{name: sampled}}
updater: {{name: ppo}}
optimizer: {{name: adam, learning_rate: {rate}}}
train: {{steps: {steps}, seed: {seed}, seeds: 1}}
"""


def write_run(folder: Path, number: int, rows: int) -> None:
    """A finished run without checkpoints."""
    group, draw = number % GROUPS, random.Random(number)
    rate, steps = 1e-4 * (1 + group), 100 * rows
    folder.mkdir(parents=True)
    info = {"recipe": "ppo_cartpole", "status": "finished", "seeds": [number]}
    info |= {"created": "2026-11-20T10:00:00Z", "total_steps": steps}
    info |= {"changes": {"optimizer.learning_rate": [3e-4, rate]}, "tags": []}
    (folder / "run.json").write_text(json.dumps(info))
    text = RESOLVED.format(rate=rate, steps=steps, seed=number)
    (folder / "resolved.yaml").write_text(text)
    with (folder / "metrics.jsonl").open("w") as file:
        for row in range(1, rows + 1):
            file.write(line(number, row, rows, group, draw))


def line(seed: int, row: int, rows: int, group: int, draw: random.Random) -> str:
    """A row of metrics, and an evaluation after every 200th."""
    value = 50 * (group + 1) * (1 - math.exp(-4 * row / rows)) + draw.gauss(0, 5)
    fields = {"T": 100 * row, "seed": seed, "ep": 3 * row, "G": value, "t": 77.0}
    fields |= {"avg_G": value, "avg_r": 1.0, "updates": row, "loss": draw.random()}
    fields |= {"value_loss": draw.random(), "entropy": draw.random()}
    fields |= {"kl": draw.random() / 100, "clip_fraction": draw.random()}
    fields |= {"explained_variance": draw.random(), "gradient_norm": draw.random()}
    fields |= {"dt": 0.01, "steps_per_second": 1e5, "updates_per_second": 1e3}
    text = json.dumps({**fields, "time": 1.7e9 + row}) + "\n"
    if row % 200 == 0:
        result = {"mean": value, "std": 3.0, "min": value - 9, "max": value + 9}
        result |= {"length": value, "episodes": 20}
        text += json.dumps({"T": 100 * row, "seed": seed, "evaluation": result}) + "\n"
    return text


def measure(action: Callable[[], object]) -> float:
    """The seconds that an action takes."""
    begin = time.perf_counter()
    action()
    return time.perf_counter() - begin


def measure_board(runs: Path, rows: int) -> dict[str, float]:
    """The seconds of each figure, with a new index."""
    found: dict[str, float] = {}
    maker: PartMaker | None = None

    def open_table() -> None:
        nonlocal maker
        maker = PartMaker(RunIndex([runs]))
        maker.list_runs("", 0, 0)

    found["table"] = measure(open_table)
    assert maker is not None
    everything = Selection()
    found["open"] = found["table"] + measure(lambda: maker.make("learning", everything))
    (first, *_) = sorted(runs.glob("*/run.json"))
    number = int(first.parent.name)
    listed = maker.list_runs("", 0, 0)
    ids = [
        row["id"]
        for row in listed["rows"]
        if int(Path(row["run"]).name) % GROUPS == number % GROUPS
    ]
    one = Selection(runs=tuple(ids[:10]))
    for name, selection in (("update", one), ("update of all", everything)):
        maker.make("learning", selection)
        time.sleep(3)  # longer than the index waits between two looks
        with (first.parent / "metrics.jsonl").open("a") as file:
            file.write(line(number, rows + 1, rows, number % GROUPS, random.Random()))
        version = listed["version"]
        found[name] = measure(
            lambda selection=selection, version=version: (
                maker.list_runs("", version, 0),
                maker.make("learning", selection),
            )
        )
    return found


def train(folder: Path) -> float:
    """The steps per second of a run in another process, of all seeds."""
    command = [sys.executable, "-m", "rlcli", "train", "ppo_cartpole", "--quiet"]
    command += ["--seeds", str(SEEDS), "--run", str(folder)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    rows = [json.loads(each) for each in (folder / "metrics.jsonl").open()]
    rates = [row["steps_per_second"] for row in rows if "steps_per_second" in row]
    return statistics.median(rates[len(rates) // 2 :])


def measure_training(runs: Path, repeats: int) -> dict[str, list[float]]:
    """Steps per second alone, and beside a board that is asked every second."""
    rates: dict[str, list[float]] = {"alone": [], "beside a board": []}
    for repeat in range(repeats):
        rates["alone"].append(train(runs / f"alone-{repeat}"))
        has_ended = threading.Event()
        maker = PartMaker(RunIndex([runs]))

        def ask(maker: PartMaker = maker, end: threading.Event = has_ended) -> None:
            os.nice(19)  # as the command; on Linux that of this thread only
            version = 0
            while not end.wait(1.0):
                version = maker.list_runs("", version, 0)["version"]
                with contextlib.suppress(RlcliError):  # no metrics yet
                    maker.make("learning", Selection(filter="beside"))

        thread = threading.Thread(target=ask)
        thread.start()
        rates["beside a board"].append(train(runs / f"beside-{repeat}"))
        has_ended.set()
        thread.join()
    return rates


def main() -> None:
    """Prints the figures."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.board")
    parser.add_argument("--runs", type=int, default=1_000)
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--folder", type=Path, help="where runs are, or are written")
    parser.add_argument("--train", action="store_true", help="train beside a board")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        runs = (options.folder or Path(temporary)) / "runs"
        for number in range(options.runs):
            folder = runs / f"{number:04d}"
            if not folder.exists():
                write_run(folder, number, options.rows)
        found = [measure_board(runs, options.rows) for _ in range(options.repeats)]
        print(f"{options.runs:,} runs of {options.rows:,} rows, seconds:")
        for name in found[0]:
            values = [each[name] for each in found]
            print(f"  {name}: {statistics.median(values):.2f} (max {max(values):.2f})")
        if options.train:
            print("steps per second:")
            for name, rates in measure_training(runs, options.repeats).items():
                print(f"  {name}: {statistics.median(rates):,.0f}")


if __name__ == "__main__":
    main()
