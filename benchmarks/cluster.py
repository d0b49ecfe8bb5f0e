"""Compares a sweep on a Ray cluster that loses a node with an undisturbed local one.

    python -m benchmarks.cluster [--trials 20] [--seeds 3] [--folder build/cluster]
        [--run-storage URL]

Needs the extras `sweep` and `ray`, and `storage` for a URL. The cluster has two nodes
on this machine, with a CPU each. With a URL they do not use the folder of the sweep.
One node is killed when half of the trials have ended. Both sweeps search the same space
with the sampler `random`, without pruning, so they have the same trials: the table
compares them, and prints trials per hour.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import rlcli

SPACE = {
    "optimizer.learning_rate": {"log_uniform": [1e-4, 1e-2]},
    "tracer.gamma": {"uniform": [0.9, 0.999]},
}
RECIPE = "ppo_cartpole"
SETTINGS = ("train.steps=40_000", "train.evaluate.every=20_000")


def sweep(
    folder: Path,
    *,
    trials: int,
    seeds: int,
    report: Callable[[Any], None] = lambda progress: None,
    **keywords: Any,
) -> dict[str, Any]:
    """Runs a sweep; returns what `rlcli.show_sweep` says, and its `seconds`."""
    begin = time.perf_counter()
    rlcli.sweep(
        RECIPE,
        space=SPACE,
        trials=trials,
        together=1,  # a process for each trial: some have ended when a node is lost
        seeds=seeds,
        sampler="random",
        pruner="none",
        confirm=1,
        set=SETTINGS,
        run=folder,
        report=report,
        **keywords,
    )
    return rlcli.show_sweep(folder) | {"seconds": time.perf_counter() - begin}


def sweep_with_a_lost_node(
    folder: Path, *, trials: int, seeds: int, run_storage: str | None = None
) -> dict[str, Any]:
    """Runs the sweep on two nodes, and kills one when half of the trials have ended.

    The result has `lost_at`, the number of trials that had ended.
    """
    from ray.cluster_utils import Cluster  # the extra `ray`

    # Workers have an environment of their own in which to find the package.
    os.environ["PYTHONPATH"] = str(Path(rlcli.__file__).parents[1])
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    node = cluster.add_node(num_cpus=1)
    lost_at: list[int] = []

    def kill_a_node(progress: Any) -> None:
        ended = sum(each.state == "complete" for each in progress.trials)
        running = sum(each.state == "running" for each in progress.trials)
        if not lost_at and ended >= trials // 2 and running == 2:
            lost_at.append(ended)
            cluster.remove_node(node, allow_graceful=False)

    try:
        result = sweep(
            folder,
            trials=trials,
            seeds=seeds,
            report=kill_a_node,
            engine="ray",
            address=cluster.address,
            run_storage=run_storage,
        )
    finally:
        cluster.shutdown()
    return result | {"lost_at": lost_at[0] if lost_at else None}


def summarize(result: dict[str, Any]) -> tuple[Any, ...]:
    """The trials with their values, and the winner: equal for equal sweeps."""
    trials = [
        (each["trial"], each["state"], each["options"], each["value"])
        for each in result["trials"]
    ]
    winner = result["winner"]
    return trials, winner["trial"], winner["value"], winner["seeds"]


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--trials", type=int, default=20)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--folder", type=Path, default=Path("build/cluster"))
    parser.add_argument("--run-storage", metavar="URL")
    options = parser.parse_args()
    sizes = {"trials": options.trials, "seeds": options.seeds}
    local = sweep(options.folder / "local", jobs=2, **sizes)
    cluster = sweep_with_a_lost_node(
        options.folder / "cluster", **sizes, run_storage=options.run_storage
    )
    print("| sweep | trials | seconds | trials/hour | winner | confirmed |")
    print("|---|---|---|---|---|---|")
    lost = f"Ray, two nodes, one killed after {cluster['lost_at']} trials"
    for name, each in {"local, two processes": local, lost: cluster}.items():
        counts = ", ".join(f"{n} {state}" for state, n in each["counts"].items())
        rate = 3600 * each["total"] / each["seconds"]
        cells = (
            *(name, counts, f"{each['seconds']:.0f}", f"{rate:.0f}"),
            *(each["winner"]["trial"], f"{each['winner']['value']:.1f}"),
        )
        print("|", " | ".join(map(str, cells)), "|")
    same = "equal" if summarize(local) == summarize(cluster) else "DIFFERENT"
    print(f"\nTrials, values and winner: {same}")


if __name__ == "__main__":
    main()
