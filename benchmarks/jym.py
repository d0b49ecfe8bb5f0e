"""The article's experiment: how soon DQN balances for 200 steps, and how fast it runs.

    python -m benchmarks.jym

Recipe `dqn_cartpole_jym`, 20 seeds in one program for the episodes, one seed for the
time: 20 000 steps, compile time apart.
"""

from __future__ import annotations

import statistics
import time

from rlcli.xla import threads

SEEDS, GOAL = 20, 200


def main() -> None:
    """Prints by which episode each seed first lasted longer than 200 steps."""
    threads.apply_layout(threads.Layout("one", 1))
    import jax
    import numpy as np

    from rlcli import loop, recipe
    from rlcli.assembly import build

    parsed = recipe.load_recipe("dqn_cartpole_jym")
    lone = loop.make_loop(build(parsed, (0,)))
    jax.block_until_ready(lone.advance(lone.begin(), 10)[0])
    times = []
    for _ in range(5):
        progress = jax.block_until_ready(lone.begin())
        start = time.perf_counter()
        jax.block_until_ready(lone.advance(progress, parsed.train.steps)[0])
        times.append(time.perf_counter() - start)
    print(f"20 000 steps of one seed: {statistics.median(times):.2f} s (median of 5)")

    every = loop.make_loop(build(parsed, tuple(range(SEEDS))))
    progress = every.begin()
    reached = np.full(SEEDS, -1)
    for _ in range(parsed.train.steps):
        progress, _ = every.advance(progress, 1)
        seen = jax.device_get(progress.statistics)
        now = (seen.last_length > GOAL) & (reached < 0)
        reached = np.where(now, seen.episodes, reached)
        if np.all(reached >= 0):
            break
    late = np.where(reached < 0, np.inf, reached)
    print(f"first episode over {GOAL} steps, by seed: {sorted(late.tolist())}")
    print(f"median: {np.median(late):.0f}")


if __name__ == "__main__":
    main()
