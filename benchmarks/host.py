"""The host loop: DQN on Gymnasium's CartPole, beside Gymnasium's own stepping.

    python -m benchmarks.host

One environment, batch 32, one update per step: one dispatch per environment step, so
what is measured is that dispatch. Compile time stands apart.
"""

from __future__ import annotations

import statistics
import time

from benchmarks.loop import RECIPE
from rlcli import threads

STEPS, ROUNDS = 4_000, 7


def main() -> None:
    """Prints steps per second of the loop, and of Gymnasium alone."""
    threads.apply(threads.choose(RECIPE))
    import gymnasium
    import jax

    from rlcli import loop, recipe
    from rlcli.build import build

    data = {**RECIPE, "environment": {"name": "gymnasium/CartPole-v1"}}
    ours = loop.make(build(recipe.load(data)))
    start = time.perf_counter()
    progress, _ = ours.advance(ours.begin(), 200)
    print(f"compile: {time.perf_counter() - start:.1f} s")
    env = gymnasium.make("CartPole-v1")
    speeds, alone = [], []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        progress, _ = ours.advance(progress, STEPS)
        jax.block_until_ready(progress.iteration)
        middle = time.perf_counter()
        env.reset(seed=0)
        for step in range(STEPS):
            *_, terminated, truncated, _ = env.step(step % 2)
            if terminated or truncated:
                env.reset()
        end = time.perf_counter()
        speeds.append(STEPS / (middle - start))
        alone.append(STEPS / (end - middle))
        print(f"rlcli {speeds[-1]:9,.0f}  Gymnasium alone {alone[-1]:9,.0f} steps/s")
    print(
        f"median: rlcli {statistics.median(speeds):,.0f}, "
        f"Gymnasium alone {statistics.median(alone):,.0f} steps/s"
    )


if __name__ == "__main__":
    main()
