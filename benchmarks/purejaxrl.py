"""The same work in rlcli and in purejaxrl, alternately.

    python -m benchmarks.purejaxrl PYTHON CHECKOUT [ppo | dqn]

`PYTHON` is the interpreter of a virtual environment with `gymnax==0.0.9 flax distrax
flashbax`, `CHECKOUT` a clone of https://github.com/luchris429/purejaxrl, whose own
`make_train` is measured. Each side runs on one thread, the faster layout of both. rlcli
runs as in `rlcli train`, with its log, and without its files; purejaxrl returns the
statistics of episodes at every step.

PPO trains on CartPole with four environments, unrolls of 128 steps, four epochs of four
minibatches and networks of 64-64; DQN on CartPole with one environment, a network of
120-84, and an update of 32 per step.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks import pairs, peers

RECIPES: dict[str, dict[str, Any]] = {
    "ppo": {
        "environment": {"name": "CartPole-v1", "num_envs": 4},
        "network": {
            "name": "mlp",
            "layers": [64, 64],
            "activation": "tanh",
            "init": "orthogonal",
        },
        "tracer": {"name": "lambda_return", "gamma": 0.99, "lambda": 0.95},
        "updater": {
            "name": "ppo",
            "epochs": 4,
            "minibatches": 4,
            "clip_ratio": 0.2,
            "value_clip_ratio": 0.2,
        },
        "optimizer": {
            "name": "adam",
            "learning_rate": {"from": 2.5e-4, "to": 0.0},
            "eps": 1e-5,
            "clip_norm": 0.5,
        },
        "train": {"unroll": 128, "evaluate": None},
    },
    "dqn": {
        "environment": "CartPole-v1",
        "network": {"name": "mlp", "layers": [120, 84]},
        "policy": {
            "name": "epsilon_greedy",
            "epsilon": {"from": 1.0, "to": 0.05, "over": 10_000},
        },
        "tracer": {"name": "n_step", "gamma": 0.99},
        "replay": {"name": "uniform", "capacity": 10_000, "batch_size": 32},
        "updater": {"name": "q_learning", "loss": "mse", "target": {"every": 500}},
        "optimizer": {"name": "adam", "learning_rate": 2.5e-4},
        "train": {"start": 0, "evaluate": None},
    },
}
LOG_EVERY = (1_000, 100_000)  # steps between two rows of metrics
STEPS = {"ppo": 102_400, "dqn": 20_480}
ROUNDS = 15


def recipe_of(work: str, log_every: int) -> dict[str, Any]:
    """The recipe of a kind of work, with a period of its log."""
    data = RECIPES[work]
    return {**data, "train": {**data["train"], "log": {"every": log_every}}}


def main(python: str, checkout: str, work: str) -> None:
    """Prints steps per second of both, and the ratios."""
    if not (Path(checkout) / "purejaxrl" / f"{work}.py").is_file():
        sys.exit(f"expected a clone of luchris429/purejaxrl at `{checkout}`")
    steps = STEPS[work]
    peers.apply_layout(RECIPES[work])
    ours = {
        f"a row every {pairs.format_speed(every)} steps": pairs.Loop(
            peers.start_training(recipe_of(work, every)), steps
        )
        for every in LOG_EVERY
    }
    with peers.start_worker(
        python, "purejaxrl", work, steps, checkout, threads="1"
    ) as purejaxrl:
        pairs.compare(peers.TITLES[work], ours, {"purejaxrl": purejaxrl}, ROUNDS)


if __name__ == "__main__":
    if sys.argv[3:]:
        main(*sys.argv[1:])
    else:
        for name in STEPS:
            module = [sys.executable, "-m", "benchmarks.purejaxrl"]
            subprocess.run([*module, *sys.argv[1:], name], check=True)
