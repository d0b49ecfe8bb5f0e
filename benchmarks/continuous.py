"""SAC and TD3 on Pendulum in rlcli and in plain JAX loops.

    python -m benchmarks.continuous [sac | td3]

Networks of 256-256, batches of 256, an update per step. rlcli chooses its number of
threads, and the plain loop runs with the same.
"""

from __future__ import annotations

import subprocess
import sys
from typing import Any

from benchmarks import pairs
from rlcli.runs import thread_layout
from rlcli.xla import threads

STEPS, ROUNDS = 512, 9
POLICY = {"sac": "sampled", "td3": {"name": "gaussian_noise", "scale": 0.2}}


def recipe_of(algorithm: str) -> dict[str, Any]:
    """The recipe of an algorithm."""
    return {
        "environment": "Pendulum-v1",
        "network": {"name": "mlp", "layers": [256, 256]},
        "policy": POLICY[algorithm],
        "tracer": {"name": "n_step", "gamma": 0.99},
        "replay": {"name": "uniform", "capacity": 100_000, "batch_size": 256},
        "updater": algorithm,
        "optimizer": {"name": "adam", "learning_rate": 3e-4},
        "train": {"steps": 1_000_000, "start": 0, "evaluate": None},
    }


def main(algorithm: str) -> None:
    """Prints steps per second, and the ratio of rlcli to the plain loop."""
    data = recipe_of(algorithm)
    threads.apply_layout(thread_layout.choose_layout(data))
    from benchmarks import plain_continuous, plain_dqn
    from rlcli import loop, recipe
    from rlcli.assembly import build

    rlcli_loop = loop.make_loop(build(recipe.load_recipe(data)))
    begin, advance = plain_continuous.make(getattr(plain_continuous, algorithm)())
    states: dict[str, Any] = {"rlcli": rlcli_loop.begin(), "plain": begin(0)}

    def run_rlcli(steps: int) -> Any:
        states["rlcli"], _ = rlcli_loop.advance(states["rlcli"], steps)
        return states["rlcli"]

    def run_plain(steps: int) -> Any:
        blocks = steps // plain_dqn.BLOCK
        states["plain"] = advance(states["plain"], blocks)
        return states["plain"]

    pairs.compare(
        f"{algorithm} on Pendulum, threads: {threads.layout(1).threads}",
        {"rlcli": pairs.Loop(run_rlcli, STEPS)},
        {"plain": pairs.Loop(run_plain, STEPS)},
        ROUNDS,
    )
    print(f"average return: plain {states['plain']['average']:.0f}")


if __name__ == "__main__":
    if sys.argv[1:]:
        main(sys.argv[1])
    else:
        for name in POLICY:
            command = [sys.executable, "-m", "benchmarks.continuous", name]
            subprocess.run(command, check=True)
