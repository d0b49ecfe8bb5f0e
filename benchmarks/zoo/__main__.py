"""Makes the policies of the zoo: `make zoo`.

    python -m benchmarks.zoo [NAME …] [--seeds N] [--runs DIR] [--measure]

Trains each recipe for classic control and MinAtar that has no file in `zoo/` yet, or
only the named ones, several seeds as one program. Keeps the latest policy of the best
seed and evaluates it over 100 other episodes. Writes the results to `results.json`
beside this file, and from there to the table. To train a recipe again, remove its file.
`--runs` takes finished runs of `python -m benchmarks.learning --runs DIR` where there
are some, instead of training. `--measure` also evaluates again the files that there
are, because what evaluates them may have changed.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.zoo import table
from rlcli import recipe
from rlcli.recipe import read_without_parts
from rlcli.runs import snapshots
from rlcli.runs.run_folder import SUFFIX
from rlcli.runs.statistics import bootstrap_ci95

ROOT = Path(__file__).parents[2]
ZOO = ROOT / "recipes" / "zoo"
RESULTS = Path(__file__).with_name("results.json")
PAGE = ROOT / "docs" / "zoo.md"
EPISODES = 100
# Of the episodes: those that choose the seed do not count for its return.
CHOICE, MEASUREMENT = 0, 1
# Larger policies are stored in half precision, so that all fit into 5 MB.
MAX_FLOAT32 = 200_000  # bytes
ENVIRONMENTS = (
    *("Acrobot-v1", "CartPole-v1", "MountainCar-v0", "MountainCarContinuous-v0"),
    *("Pendulum-v1", "MinAtar/"),
)
LONGER = "_10m"  # ends the name of a recipe with more steps


def zoo_recipes() -> list[str]:
    """The shipped recipes for the environments of the zoo.

    Of a recipe and its longer version only the latter: its policy is better, and the
    wheel stays small.
    """
    names = []
    for name in recipe.shipped_recipes():
        environment = read_without_parts(name, ()).data["environment"]
        if isinstance(environment, dict):
            environment = environment["name"]
        names += [name] if environment.startswith(ENVIRONMENTS) else []
    return [name for name in names if f"{name}{LONGER}" not in names]


def rlcli(*arguments: str) -> str:
    """Runs an rlcli command in a separate process and returns its stdout."""
    process = subprocess.run(
        [sys.executable, "-m", "rlcli", *arguments],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    return process.stdout


def evaluate(path: Path, seed: int) -> list[dict[str, Any]]:
    """The results of each seed's policy."""
    words = ("--episodes", str(EPISODES), "--seed", str(seed), "--json")
    return json.loads(rlcli("eval", str(path), *words))["seeds"]


def make(name: str, file: Path, seeds: int, runs: Path | None) -> str:
    """Writes the policy of the best seed of a recipe; returns the training command."""
    run = None if runs is None else runs / name
    with tempfile.TemporaryDirectory() as folder:
        if run is None or not run.exists():
            run = Path(folder) / "run"
            rlcli("train", name, "--seeds", str(seeds), "--run", str(run), "--quiet")
        means = [row["mean"] for row in evaluate(run, CHOICE)]
        trained = write_policy(run / f"policy{SUFFIX}", file, int(np.argmax(means)))
    first = f" --seed {trained[0]}" if trained[0] else ""
    return f"rlcli train {name}{first} --seeds {len(trained)}"


def write_policy(source: Path, target: Path, index: int) -> tuple[int, ...]:
    """Writes the policy of one of the seeds of a policy file; returns all seeds."""
    policy = snapshots.load_snapshot(source)
    acting = {name: leaf[index : index + 1] for name, leaf in policy.acting.items()}
    acting |= copies_of_best(acting)
    if sum(leaf.nbytes for leaf in acting.values()) > MAX_FLOAT32:
        acting = {name: halve_precision(leaf) for name, leaf in acting.items()}
    kept = policy._replace(
        seeds=policy.seeds[index : index + 1],
        steps=policy.steps[index : index + 1],
        episodes=policy.episodes[index : index + 1],
        acting=acting,
    )
    snapshots.save_policy(target, kept)
    return tuple(policy.seeds)


def copies_of_best(acting: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The best member in place of each member of a population; compresses well."""
    return {
        name: np.broadcast_to(acting[best][:, None], leaf.shape).copy()
        for name, leaf in acting.items()
        if name.startswith("members/")
        and (best := name.replace("members", "best", 1)) in acting
    }


def halve_precision(leaf: np.ndarray) -> np.ndarray:
    """A float32 array as float16, unless a number is too large for it."""
    with np.errstate(over="ignore"):
        half = leaf.astype(np.float16) if leaf.dtype == np.float32 else leaf
    return half if np.all(np.isfinite(half)) else leaf


def measure(file: Path) -> dict[str, Any]:
    """The return of a policy of the zoo, and its file."""
    (row,) = evaluate(file, MEASUREMENT)
    return {
        "mean": row["mean"],
        "ci95": [*bootstrap_ci95(row["returns"], "mean")],
        "bytes": file.stat().st_size,
        "sha256": hashlib.sha256(file.read_bytes()).hexdigest(),
    }


def main() -> None:
    """Makes the named policies, all by default; writes the table after each."""
    known = zoo_recipes()
    parser = argparse.ArgumentParser(prog="python -m benchmarks.zoo")
    parser.add_argument("names", nargs="*", help="recipes; all by default")
    parser.add_argument("--seeds", type=int, default=3, help="seeds to choose from")
    parser.add_argument("--runs", type=Path, metavar="DIR", help="take finished runs")
    parser.add_argument("--measure", action="store_true", help="evaluate files again")
    options = parser.parse_args()
    if unknown := sorted(set(options.names) - set(known)):
        parser.error(f"{', '.join(unknown)}: expected some of {', '.join(known)}")
    for name in options.names or known:
        file = ZOO / f"{name}{SUFFIX}"
        if not file.exists():
            command = make(name, file, options.seeds, options.runs)
        elif options.measure:
            command = stored_results()[name]["command"]
        else:
            continue
        store(name, {"command": command, **measure(file)}, known)


def stored_results() -> dict[str, Any]:
    """The results so far."""
    return json.loads(RESULTS.read_text()) if RESULTS.exists() else {}


def store(name: str, result: dict[str, Any], known: list[str]) -> None:
    """Adds a result to the stored ones and writes the table."""
    results = {**stored_results(), name: result}
    print(table.line(name, result), flush=True)
    ordered = {name: results[name] for name in known if name in results}
    RESULTS.write_text(json.dumps(ordered, indent=1) + "\n")
    PAGE.write_text(table.page(known, ordered), encoding="utf-8")


if __name__ == "__main__":
    main()
