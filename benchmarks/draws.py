"""What numbers cost that every episode draws anew, beside fixed ones.

    python -m benchmarks.draws

PPO and DQN of `benchmarks.ppo` and `benchmarks.loop` on CartPole: with three numbers
that every environment has fixed, and with the same three drawn (`each`). One thread.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from benchmarks import pairs
from benchmarks.loop import RECIPE as DQN
from benchmarks.ppo import RECIPE as PPO
from rlcli.runs import thread_layout
from rlcli.xla import threads

FIXED = {"length": [0.5], "masspole": [0.1], "gravity": [9.8]}
DRAWN = {
    "length": {"log_uniform": [0.2, 2.0]},
    "masspole": {"uniform": [0.05, 0.2]},
    "gravity": {"choice": [8.0, 9.8, 12.0]},
}
ROUNDS = 31


def make_run(recipe_data: Mapping[str, Any], each: Mapping) -> Callable[[int], Any]:
    """Returns a function that trains for some environment steps."""
    from rlcli import loop, recipe
    from rlcli.assembly import build

    environment = {**recipe_data["environment"], "each": each}
    setup = build(recipe.load_recipe({**recipe_data, "environment": environment}))
    rlcli_loop = loop.make_loop(setup)
    progress = rlcli_loop.begin()

    def run(steps: int) -> Any:
        nonlocal progress
        per_iteration = setup.unroll * setup.environment.num_envs
        progress, _ = rlcli_loop.advance(progress, steps // per_iteration)
        return progress

    return run


def main() -> None:
    """Prints steps per second of both, and their ratio."""
    threads.apply_layout(thread_layout.choose_layout(PPO))
    for work, data, steps in (("PPO", PPO, 51_200), ("DQN", DQN, 12_800)):
        drawn, fixed = (
            {name: pairs.Loop(make_run(data, each), steps)}
            for name, each in (("drawn", DRAWN), ("fixed", FIXED))
        )
        pairs.compare(f"{work} on CartPole", drawn, fixed, ROUNDS)


if __name__ == "__main__":
    main()
