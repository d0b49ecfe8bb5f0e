"""Compiled-loop benchmark: DQN in rlcli and in plain JAX loops, equal and bare.

    python -m benchmarks.loop

One environment, batch 32, one update per step, MLP 64-64, one thread: rlcli chooses the
thread count and flags for the recipe. The loops run alternately.
"""

from __future__ import annotations

from typing import Any

from benchmarks import pairs
from rlcli.runs import thread_layout
from rlcli.xla import threads

RECIPE = {
    "environment": {"name": "CartPole-v1"},
    "network": {"name": "mlp", "layers": [64, 64]},
    "policy": {
        "name": "epsilon_greedy",
        "epsilon": {"from": 1.0, "to": 0.02, "over": 8_000},
    },
    "tracer": {"name": "n_step", "gamma": 0.99},
    "replay": {"name": "uniform", "capacity": 50_000, "batch_size": 32},
    "updater": {"name": "q_learning", "target": {"every": 200}},
    "optimizer": {"name": "adam", "learning_rate": 1e-3},
    "train": {"steps": 1_000_000, "start": 0, "evaluate": None},
}
STEPS, ROUNDS = 12_800, 15


def main() -> None:
    """Prints steps per second of all three, and the ratios of rlcli to the others."""
    threads.apply_layout(thread_layout.choose_layout(RECIPE))
    from benchmarks import equal_dqn, plain_dqn
    from rlcli import loop, recipe
    from rlcli.assembly import build

    rlcli_loop = loop.make_loop(build(recipe.load_recipe(RECIPE)))
    equal, bare = equal_dqn.make(), plain_dqn.make()
    # By loop: its state, and the function that advances it.
    states = {"rlcli": rlcli_loop.begin(), "equal": equal[0](0), "bare": bare[0](0)}
    advance = {
        "rlcli": lambda state, steps: rlcli_loop.advance(state, steps)[0],
        "equal": lambda state, steps: equal[1](state, steps // plain_dqn.BLOCK),
        "bare": lambda state, steps: bare[1](state, steps // plain_dqn.BLOCK),
    }

    def start(name: str) -> pairs.Loop:
        def run(steps: int) -> Any:
            states[name] = advance[name](states[name], steps)
            return states[name]

        return pairs.Loop(run, STEPS)

    others = {"plain, equal work": start("equal"), "plain, bare": start("bare")}
    pairs.compare("DQN on CartPole", {"rlcli": start("rlcli")}, others, ROUNDS)


if __name__ == "__main__":
    main()
