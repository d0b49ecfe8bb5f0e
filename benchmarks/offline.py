"""Compares the offline updaters on data that it collects: expert, medium, random.

    python -m benchmarks.offline [--seeds 5] [--steps 6000] [--folder build/offline]

The expert is a policy of the zoo, the medium policy one whose training stopped early;
both act as in training. Each data set has 10 000 steps. The table has the greedy return
of 100 episodes: the interquartile mean over seeds, and its 95 % bootstrap interval.
`--data-only` only collects the data (`make datasets` copies two of them to `recipes`).
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import rlcli

DATA_STEPS = 10_000
# environment -> the policy of the expert, the recipe of the medium policy, and the
# return at which its training stops
SOURCES: dict[str, tuple[str, str, float, int]] = {
    "cartpole": ("zoo/ppo_cartpole", "ppo_cartpole", 120.0, 1_024),
    "pendulum": ("zoo/sac_pendulum", "sac_pendulum", -700.0, 250),
}
# environment -> the recipe that each method extends, and what it changes
METHODS: dict[str, dict[str, dict[str, Any]]] = {
    "cartpole": {
        "behaviour_cloning": {"extends": "behaviour_cloning_cartpole"},
        "cql": {"extends": "cql_cartpole"},
        "iql": {
            "extends": "behaviour_cloning_cartpole",
            "updater": {"name": "iql", "target": {"polyak": 0.02}},
        },
        "awac": {
            "extends": "behaviour_cloning_cartpole",
            "updater": {"name": "awac", "target": {"polyak": 0.02}},
        },
    },
    "pendulum": {
        "behaviour_cloning": {
            "extends": "td3_bc_pendulum",
            "updater": {"name": "behaviour_cloning"},
        },
        "cql": {
            "extends": "td3_bc_pendulum",
            "updater": {
                "name": "cql",
                "alpha": 20.0,
                "samples": 4,
                "target": {"polyak": 0.02},
            },
        },
        "iql": {"extends": "iql_pendulum"},
        "awac": {"extends": "awac_pendulum"},
        "td3_bc": {"extends": "td3_bc_pendulum"},
    },
}


def collect_data(environment: str, folder: Path) -> dict[str, Path]:
    """The data sets of an environment by their quality; collects missing ones."""
    expert, recipe, goal, period = SOURCES[environment]
    files = {
        quality: folder / f"{environment}_{quality}.npz"
        for quality in ("expert", "medium", "random")
    }
    for quality, file in files.items():
        if file.is_file():
            continue
        policy: str | Path = expert
        if quality == "medium":
            policy = folder / "runs" / environment
            sets = [
                f"train.stop.return={goal}",
                f"train.evaluate={{every: {period}, episodes: 20}}",
            ]
            rlcli.train(recipe, set=sets, run=policy, quiet=True)
        result = rlcli.collect(
            policy,
            steps=DATA_STEPS,
            explore=quality != "random",
            random=quality == "random",
            output=file,
        )
        print(f"{file}: return {result['return']['mean']:.1f}", flush=True)
    return files


def measure(
    changes: dict[str, Any], data: Path, run: Path, *, steps: int, seeds: int
) -> str:
    """Trains a method, and returns the cell of its row."""
    train = {"steps": steps, "seeds": seeds, "evaluate": None}
    recipe = {**changes, "replay": {"path": str(data.resolve())}, "train": train}
    rlcli.train(recipe, run=run, quiet=True)
    result = rlcli.eval(run)["return"]
    low, high = result["ci95"] or (result["iqm"], result["iqm"])
    return f"{result['iqm']:.0f} [{low:.0f} … {high:.0f}]"


def main() -> None:
    """Prints a table for each environment."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=6_000)
    parser.add_argument("--folder", type=Path, default=Path("build/offline"))
    parser.add_argument("--environment", choices=[*SOURCES], action="append")
    parser.add_argument("--data-only", action="store_true")
    arguments = parser.parse_args()
    for environment in arguments.environment or SOURCES:
        files = collect_data(environment, arguments.folder)
        if arguments.data_only:
            continue
        print(f"\n| {environment} | " + " | ".join(files) + " |", flush=True)
        print("|---" * (len(files) + 1) + "|")
        for method, changes in METHODS[environment].items():
            cells = [
                measure(
                    changes,
                    file,
                    arguments.folder / "runs" / f"{environment}_{method}_{quality}",
                    steps=arguments.steps,
                    seeds=arguments.seeds,
                )
                for quality, file in files.items()
            ]
            print(f"| `{method}` | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
