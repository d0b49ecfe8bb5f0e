"""The same work in rlcli and in rejax, alternately.

    python -m benchmarks.rejax PYTHON [sac | td3 | ppo | ppo_evaluated]

`PYTHON` is the interpreter of a virtual environment with rejax:
`pip install rejax==0.1.3 gymnax==0.0.9`. Each side runs with its faster layout of
threads. rlcli runs as in `rlcli train`, with its default log and evaluations, and
without its files. PPO trains with five environments, unrolls of 100 steps and five
epochs of five minibatches; `ppo_evaluated` plays 128 episodes every 1 000 steps. SAC
and TD3 have networks of 256-256 and batches of 256.
"""

from __future__ import annotations

import subprocess
import sys
from typing import Any

from benchmarks import continuous, pairs, peers

PPO = {
    "environment": {"name": "CartPole-v1", "num_envs": 5},
    "network": {"name": "mlp", "layers": [64, 64], "activation": "silu"},
    "tracer": {"name": "lambda_return", "gamma": 0.99, "lambda": 0.95},
    "updater": {"name": "ppo", "epochs": 5, "minibatches": 5, "clip_ratio": 0.2},
    "optimizer": {"name": "adam", "learning_rate": 5e-4, "clip_norm": 0.5},
    "train": {"unroll": 100, "evaluate": None},
}
# Measured: with its faster number of threads.
THREADS = {"sac": "", "td3": "", "ppo": "1", "ppo_evaluated": "1"}
STEPS = {"sac": 1_024, "td3": 1_024, "ppo": 100_000, "ppo_evaluated": 20_000}
ROUNDS = 9


def recipe_of(work: str) -> dict[str, Any]:
    """The recipe of a kind of work."""
    if work in ("sac", "td3"):
        return continuous.recipe_of(work)
    if work == "ppo":
        return PPO
    evaluate = {"every": 1_000, "episodes": 128}
    return {**PPO, "train": {**PPO["train"], "evaluate": evaluate}}


def main(python: str, work: str) -> None:
    """Prints steps per second of both, and the ratio."""
    data, steps = recipe_of(work), STEPS[work]
    peers.apply_layout(data)
    ours = {"rlcli": pairs.Loop(peers.start_training(data), steps)}
    with peers.start_worker(
        python, "rejax", work, steps, threads=THREADS[work]
    ) as rejax:
        pairs.compare(peers.TITLES[work], ours, {"rejax": rejax}, ROUNDS)


if __name__ == "__main__":
    if sys.argv[2:]:
        main(*sys.argv[1:])
    else:
        for name in STEPS:
            command = [sys.executable, "-m", "benchmarks.rejax", sys.argv[1], name]
            subprocess.run(command, check=True)
