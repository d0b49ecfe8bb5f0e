"""The same work in rlcli and in rejax, alternately.

    python -m benchmarks.rejax PYTHON [sac | td3 | ppo | ppo_evaluated]

`PYTHON` is the interpreter of a virtual environment with rejax:
`pip install rejax==0.1.3 gymnax==0.0.9`. Each side runs with its faster layout of
threads. rlcli runs as in `rlcli train`, with its default log and evaluations, and
without its files. Compilation is not counted. PPO trains with five environments,
unrolls of 100 steps and five epochs of five minibatches; `ppo_evaluated` plays 128
episodes every 1 000 steps. SAC and TD3 have networks of 256-256 and batches of 256.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks import continuous
from rlcli.runs import thread_layout
from rlcli.xla import threads

PPO = {
    "environment": {"name": "CartPole-v1", "num_envs": 5},
    "network": {"name": "mlp", "layers": [64, 64], "activation": "silu"},
    "tracer": {"name": "lambda_return", "gamma": 0.99, "lambda": 0.95},
    "updater": {"name": "ppo", "epochs": 5, "minibatches": 5, "clip_ratio": 0.2},
    "optimizer": {"name": "adam", "learning_rate": 5e-4, "clip_norm": 0.5},
    "train": {"steps": 100_000_000, "unroll": 100},
}
# Measured: with its faster number of threads.
THREADS = {"sac": None, "td3": None, "ppo": "1", "ppo_evaluated": "1"}
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
    data = recipe_of(work)
    threads.apply_layout(thread_layout.choose_layout(data))
    import jax

    from rlcli.assembly import build
    from rlcli.recipe import load_recipe
    from rlcli.training.experiment import Experiment

    recipe = load_recipe(data)
    experiment = Experiment(recipe, build(recipe))
    experiment.begin()

    def train(steps: int) -> float:
        start, end = time.perf_counter(), experiment.step + steps
        while experiment.step < end:
            experiment.advance((end - experiment.step) // experiment.steps)
        jax.block_until_ready(experiment.progress)
        return time.perf_counter() - start

    worker = Path(__file__).with_name("rejax_worker.py")
    variables = {k: v for k, v in os.environ.items() if k not in ("NPROC", "XLA_FLAGS")}
    if THREADS[work]:
        variables["NPROC"] = THREADS[work]
    peer = subprocess.Popen(
        [python, "-P", str(worker), work],  # this folder also has a `rejax`
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=variables,
    )
    assert peer.stdin
    assert peer.stdout
    first = float(peer.stdout.readline())
    print(f"{work}: first call: rlcli {train(STEPS[work]):.1f} s, rejax {first:.1f} s")

    def ask() -> float:
        peer.stdin.write("\n")
        peer.stdin.flush()
        steps, seconds = map(float, peer.stdout.readline().split())
        return steps / seconds

    ask()
    speeds = [(STEPS[work] / train(STEPS[work]), ask()) for _ in range(ROUNDS)]
    peer.stdin.close()
    peer.wait()
    ours, theirs = (statistics.median(column) for column in zip(*speeds, strict=True))
    ratio = statistics.median(a / b for a, b in speeds)
    print(f"rlcli {ours:,.0f}  rejax {theirs:,.0f}  ratio {ratio:.2f}")


if __name__ == "__main__":
    if sys.argv[2:]:
        main(*sys.argv[1:])
    else:
        for name in STEPS:
            command = [sys.executable, "-m", "benchmarks.rejax", sys.argv[1], name]
            subprocess.run(command, check=True)
