"""The compiled DQN loop beside a plain JAX loop of equal work, alternately.

    python -m benchmarks.loop

One environment, batch 32, one update per step, MLP 64-64, one thread: the thread count
and flags are those that rlcli chooses for the recipe.
"""

from __future__ import annotations

import statistics
import time

from rlcli import threads

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
    "train": {"steps": 1_000_000, "start": 0},
}
STEPS, ROUNDS = 12_800, 15


def main() -> None:
    """Prints steps per second of both, and their ratio in each round."""
    threads.apply(threads.choose(RECIPE))
    import jax

    from benchmarks import plain_dqn
    from rlcli import loop, recipe
    from rlcli.build import build

    ours = loop.make(build(recipe.load(RECIPE)))
    begin, advance = plain_dqn.make()
    start = time.perf_counter()
    progress = jax.block_until_ready(ours.advance(ours.begin(), 1_280)[0])
    compiled = time.perf_counter() - start
    start = time.perf_counter()
    state = jax.block_until_ready(advance(begin(0), 10))
    print(f"compile: rlcli {compiled:.1f} s, plain {time.perf_counter() - start:.1f} s")
    ratios, speeds = [], []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        progress = jax.block_until_ready(ours.advance(progress, STEPS)[0])
        middle = time.perf_counter()
        state = jax.block_until_ready(advance(state, STEPS // plain_dqn.BLOCK))
        end = time.perf_counter()
        mine, plain = STEPS / (middle - start), STEPS / (end - middle)
        ratios.append(mine / plain)
        speeds.append((mine, plain))
        print(
            f"rlcli {mine:9,.0f}  plain {plain:9,.0f} steps/s  ratio {ratios[-1]:.3f}"
        )
    mine, plain = (statistics.median(each) for each in zip(*speeds, strict=True))
    ratio = statistics.median(ratios)
    print(f"median: rlcli {mine:,.0f}, plain {plain:,.0f} steps/s, ratio {ratio:.3f}")


if __name__ == "__main__":
    main()
