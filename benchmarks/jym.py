"""jym's experiment: when DQN first balances for 200 steps, and how fast it runs.

    python -m benchmarks.jym

Recipe `dqn_cartpole_jym`: 20 seeds in one program to count episodes, one seed to
measure time: 20 000 steps, without compile time.
"""

from __future__ import annotations

import statistics
import time

from rlcli.xla import threads

SEEDS, GOAL = 20, 200


def main() -> None:
    """Prints the first episode of each seed that lasts longer than 200 steps."""
    threads.apply_layout(threads.Layout("one", 1))
    import jax
    import numpy as np

    from rlcli import loop, recipe
    from rlcli.assembly import build

    parsed = recipe.load_recipe("dqn_cartpole_jym")
    single_loop = loop.make_loop(build(parsed, (0,)))
    jax.block_until_ready(single_loop.advance(single_loop.begin(), 10)[0])
    times = []
    for _ in range(5):
        progress = jax.block_until_ready(single_loop.begin())
        start = time.perf_counter()
        jax.block_until_ready(single_loop.advance(progress, parsed.train.steps)[0])
        times.append(time.perf_counter() - start)
    print(f"20 000 steps of one seed: {statistics.median(times):.2f} s (median of 5)")

    seeds_loop = loop.make_loop(build(parsed, tuple(range(SEEDS))))
    progress = seeds_loop.begin()
    first_episode = np.full(SEEDS, -1)
    for _ in range(parsed.train.steps):
        progress, _ = seeds_loop.advance(progress, 1)
        statistics_now = jax.device_get(progress.statistics)
        is_first = (statistics_now.last_length > GOAL) & (first_episode < 0)
        first_episode = np.where(is_first, statistics_now.episodes, first_episode)
        if np.all(first_episode >= 0):
            break
    episodes = np.where(first_episode < 0, np.inf, first_episode)
    print(f"first episode over {GOAL} steps, by seed: {sorted(episodes.tolist())}")
    print(f"median: {np.median(episodes):.0f}")


if __name__ == "__main__":
    main()
