"""What the choices for a CPU are worth: the same recipes with and without them.

    python -m benchmarks.backend [RECIPE]

`xla.backend` is the switch: fusion barriers, unrolled random bits and convolutions as
matrix products. The programs run on this machine either way.
"""

from __future__ import annotations

import subprocess
import sys
from typing import Any

from benchmarks import pairs
from rlcli.runs import thread_layout

RECIPES = {"dqn_cartpole": 10_000, "ppo_cartpole": 50_000, "ppo_breakout": 10_240}
ROUNDS = 7


def main(name: str) -> None:
    """Prints steps per second with and without the choices, and the ratio."""
    thread_layout.apply_for_recipe(name, set=["train.seeds=1"])
    from rlcli import loop, recipe
    from rlcli.assembly import build
    from rlcli.xla.backend import assume_backend

    parsed = recipe.load_recipe(name, ["train.seeds=1"])

    def start(platform: str) -> pairs.Advance:
        with assume_backend(platform):
            setup = build(parsed)
            run = loop.make_loop(setup)
            progress = run.begin()
            progress, _ = run.advance(progress, 1)  # traced here

        def advance(steps: int) -> Any:
            nonlocal progress
            progress, _ = run.advance(progress, steps // setup.steps_per_iteration)
            return progress.iteration

        return advance

    steps = RECIPES[name]
    ours = {"with the choices": pairs.Loop(start("cpu"), steps)}
    others = {"without": pairs.Loop(start("cuda"), steps)}
    pairs.compare(name, ours, others, ROUNDS)


if __name__ == "__main__":
    if sys.argv[1:]:
        main(sys.argv[1])
    else:
        for each in RECIPES:
            command = [sys.executable, "-m", "benchmarks.backend", each]
            subprocess.run(command, check=True)
