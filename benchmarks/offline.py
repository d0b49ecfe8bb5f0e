"""Compares the offline updaters on expert, medium and random data.

    python -m benchmarks.offline [--seeds 5] [--steps 6000] [--folder build/offline]

The expert is a policy of the zoo, the medium policy one whose training stopped early;
both act as in training. Each data set has 10 000 steps. The table has the greedy return
of 100 episodes: the interquartile mean over seeds, and its 95 % bootstrap interval.

The medium data are those of the recipes, so that they are the same on every machine.
`--collect-medium` only collects them again (`make datasets` copies them to `recipes`).
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import rlcli

DATA_STEPS = 10_000
# environment -> the policy of the expert, the recipe of the medium policy, the return
# at which its training stops, and the steps between its evaluations
SOURCES: dict[str, tuple[str, str, float, int]] = {
    "cartpole": ("zoo/ppo_cartpole", "ppo_cartpole", 120.0, 1_024),
    "pendulum": ("zoo/sac_pendulum", "sac_pendulum", -900.0, 100),
}
SHIPPED = Path(__file__).parents[1] / "recipes" / "data"
FIRST_SEED = 2_000  # options were tuned on lower ones
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
            "extends": "iql_pendulum",
            "updater": {"name": "behaviour_cloning"},
        },
        "cql": {"extends": "cql_pendulum"},
        "iql": {"extends": "iql_pendulum"},
        "awac": {"extends": "awac_pendulum"},
        "td3_bc": {"extends": "td3_bc_pendulum"},
    },
}
# Random actions are not worth imitating.
ON_RANDOM_DATA: dict[tuple[str, str], dict[str, Any]] = {
    ("pendulum", "td3_bc"): {"extends": "td3_bc_pendulum", "updater": {"alpha": 40.0}},
}


def collect_data(
    environment: str, folder: Path, qualities: tuple[str, ...]
) -> dict[str, Path]:
    """The data sets of an environment by their quality; collects missing ones."""
    expert, recipe, goal, period = SOURCES[environment]
    files = {quality: folder / f"{environment}_{quality}.npz" for quality in qualities}
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
    train = {"steps": steps, "seed": FIRST_SEED, "seeds": seeds, "evaluate": None}
    recipe = {**changes, "replay": {"path": str(data.resolve())}, "train": train}
    rlcli.train(recipe, run=run, quiet=True)
    result = rlcli.eval(run)["return"]
    low, high = result["ci95"] or (result["iqm"], result["iqm"])
    return f"{result['iqm']:.0f} [{low:.0f} … {high:.0f}]"


def changes_on(environment: str, method: str, quality: str) -> dict[str, Any]:
    """What a method changes on data of a quality."""
    changes = METHODS[environment][method]
    if quality == "random":
        return ON_RANDOM_DATA.get((environment, method), changes)
    return changes


def main() -> None:
    """Prints a table for each environment."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=6_000)
    parser.add_argument("--folder", type=Path, default=Path("build/offline"))
    parser.add_argument("--environment", choices=[*SOURCES], action="append")
    parser.add_argument("--collect-medium", action="store_true")
    arguments = parser.parse_args()
    for environment in arguments.environment or SOURCES:
        if arguments.collect_medium:
            collect_data(environment, arguments.folder, ("medium",))
            continue
        collected = collect_data(environment, arguments.folder, ("expert", "random"))
        files = {
            "expert": collected["expert"],
            "medium": SHIPPED / f"{environment}_medium.npz",
            "random": collected["random"],
        }
        print(f"\n| {environment} | " + " | ".join(files) + " |", flush=True)
        print("|---" * (len(files) + 1) + "|")
        for method in METHODS[environment]:
            cells = [
                measure(
                    changes_on(environment, method, quality),
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
