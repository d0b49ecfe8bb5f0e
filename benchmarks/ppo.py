"""PPO on CartPole in rlcli and in a plain JAX loop.

    python -m benchmarks.ppo

Four environments, unrolls of 128 steps, four epochs of four minibatches, networks of
64-64. rlcli runs as the command does: once with the default of a log row every 1 000
steps, and once with a single row per call. One thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from benchmarks import pairs
from rlcli.runs import thread_layout
from rlcli.xla import threads

RECIPE = {
    "environment": {"name": "CartPole-v1", "num_envs": 4},
    "network": {"name": "mlp", "layers": [64, 64], "activation": "tanh"},
    "tracer": {"name": "lambda_return", "gamma": 0.99, "lambda": 0.95},
    "updater": {"name": "ppo", "epochs": 4, "minibatches": 4, "clip_ratio": 0.2},
    "optimizer": {"name": "adam", "learning_rate": 2.5e-3, "clip_norm": 0.5},
    "train": {"steps": 100_000_000, "unroll": 128, "evaluate": None},
}
ITERATION = 512  # environment steps
LOG_EVERY = 2  # iterations: a row every 1 000 steps falls on every second iteration
STEPS, ROUNDS = 100 * ITERATION, 15


def main() -> None:
    """Prints steps per second, and the ratios of rlcli to the plain loop."""
    threads.apply_layout(thread_layout.choose_layout(RECIPE))
    from benchmarks import plain_ppo
    from rlcli import loop, recipe
    from rlcli.assembly import build

    rlcli_loop = loop.make_loop(build(recipe.load_recipe(RECIPE)))
    begin, advance = plain_ppo.make(plain_ppo.Sizes())
    states: dict[str, Any] = {name: rlcli_loop.begin() for name in ("rows", "one row")}
    states["plain"] = begin(0)
    iterations = STEPS // ITERATION
    rows = range(LOG_EVERY, iterations + 1, LOG_EVERY)

    def run_rlcli(name: str, counts: int | Sequence[int]) -> Any:
        states[name], _ = rlcli_loop.advance(states[name], counts)
        return states[name]

    def run_plain(steps: int) -> Any:
        states["plain"] = advance(states["plain"], steps // ITERATION)
        return states["plain"]

    ours = {
        "a row every 1 000 steps": lambda _: run_rlcli("rows", [*rows]),
        "one row": lambda _: run_rlcli("one row", iterations),
    }
    pairs.compare(
        "PPO on CartPole",
        {name: pairs.Loop(advance, STEPS) for name, advance in ours.items()},
        {"plain": pairs.Loop(run_plain, STEPS)},
        ROUNDS,
    )
    print(f"average return: plain {states['plain']['average']:.0f}")


if __name__ == "__main__":
    main()
