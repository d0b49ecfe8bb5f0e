"""Tuning PPO on CartPole with rlcli and with rl-zoo3: the same space and budget.

    python -m benchmarks.rl_zoo3 PYTHON [--trials 20] [--rounds 3]

`PYTHON` is the interpreter of a virtual environment with `rl_zoo3==2.9.2`; rlcli needs
the extra `sweep`. Both search `SPACE` with TPE and without pruning, in two processes. A
trial trains one seed for 98 304 steps in eight environments, and has the mean return
of 20 greedy episodes at the end. The times include the start of the processes, tracing
and compiling; each search of rlcli has an empty compilation cache. A round is a search
of each, one after the other, with a seed of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[1]
STEPS = 98_304  # whole iterations for each length of an unroll
ENVIRONMENTS, EPISODES, GOAL, PROCESSES = 8, 20, 475, 2
# Similar to the space of rl-zoo3 for PPO. Both search exactly this one: the worker
# `benchmarks.workers.rl_zoo3` translates it.
SPACE: dict[str, dict[str, list]] = {
    "optimizer.learning_rate": {"log_uniform": [1e-5, 2e-3]},
    "optimizer.clip_norm": {"uniform": [0.3, 2.0]},
    "tracer.gamma": {"uniform": [0.97, 0.9999]},
    "tracer.lambda": {"uniform": [0.9, 0.9999]},
    "updater.clip_ratio": {"choice": [0.1, 0.2, 0.3, 0.4]},
    "updater.epochs": {"choice": [1, 5, 10, 20]},
    "updater.minibatches": {"choice": [1, 4, 16]},
    "updater.regularizers": {
        "choice": [
            [{"name": "entropy", "weight": weight}] for weight in (0.0, 1e-4, 1e-2, 0.1)
        ]
    },
    "train.unroll": {"choice": [32, 128, 512]},
    "network.layers": {"choice": [[64], [64, 64], [256, 256]]},
    "network.activation": {"choice": ["tanh", "relu"]},
}
RECIPE = {
    "environment": {"name": "CartPole-v1", "num_envs": ENVIRONMENTS},
    "network": {"name": "mlp", "init": "orthogonal"},
    "tracer": "lambda_return",
    "updater": "ppo",
    "optimizer": {"name": "adam", "eps": 1e-5},
    "train": {
        "steps": STEPS,
        "evaluate": {"every": STEPS, "episodes": EPISODES},
        "checkpoint": None,
    },
}


class Search(NamedTuple):
    """The trials of a search: (seconds from its start to the trial's end, value)."""

    seconds: float
    trials: list[tuple[float, float]]


def search_with_rlcli(folder: Path, trials: int, seed: int) -> Search:
    """Runs `rlcli sweep`."""
    recipe, space, run = (folder / name for name in ("ppo.yaml", "space.yaml", "run"))
    recipe.write_text(json.dumps(RECIPE))
    space.write_text(json.dumps(SPACE))
    command = [
        *(sys.executable, "-m", "rlcli", "sweep", str(recipe), "--quiet"),
        *("--space", str(space), "--trials", str(trials), "--seeds", "1"),
        *("--seed", str(seed), "--sampler", "tpe", "--pruner", "none"),
        *("--confirm", "0", "--jobs", str(PROCESSES), "--run", str(run)),
    ]
    variables = os.environ | {"JAX_COMPILATION_CACHE_DIR": str(folder / "cache")}
    begin = time.time()
    subprocess.run(command, check=True, env=variables, stdout=subprocess.DEVNULL)
    return Search(time.time() - begin, read_trials(run / "journal.log", begin))


def search_with_rl_zoo3(python: str, folder: Path, trials: int, seed: int) -> Search:
    """Runs `python -m rl_zoo3.train --optimize`, with the space of this benchmark."""
    space, journal = folder / "space.yaml", folder / "trials.log"
    space.write_text(json.dumps(SPACE))
    variables = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    begin = time.time()
    processes = [
        subprocess.Popen(
            [
                *(python, "-W", "ignore", "-m", "benchmarks.workers.rl_zoo3"),
                *(str(space), "--algo", "ppo", "--env", "CartPole-v1", "--optimize"),
                *("--n-timesteps", str(STEPS), "--n-evaluations", "1"),
                *("--eval-episodes", str(EPISODES), "--sampler", "tpe"),
                *("--pruner", "none", "--storage", str(journal), "--device", "cpu"),
                *("--study-name", "search", "--max-total-trials", str(trials)),
                *("--seed", str(PROCESSES * seed + index), "--num-threads", "1"),
                *("--no-optim-plots", "--verbose", "0", "--log-folder", str(folder)),
            ],
            env=variables,
            stdout=subprocess.DEVNULL,
        )
        for index in range(PROCESSES)
    ]
    if any(process.wait() for process in processes):
        raise RuntimeError("a process of rl-zoo3 failed")
    return Search(time.time() - begin, read_trials(journal, begin))


def read_trials(journal: Path, begin: float) -> list[tuple[float, float]]:
    """The completed trials in Optuna's journal of a search."""
    import optuna  # the extra `sweep`

    backend = optuna.storages.journal.JournalFileBackend(str(journal))
    study = optuna.load_study(
        study_name=None, storage=optuna.storages.JournalStorage(backend)
    )
    return [
        (trial.datetime_complete.timestamp() - begin, trial.value)
        for trial in study.trials
        if trial.value is not None and trial.datetime_complete is not None
    ]


def row(name: str, search: Search) -> str:
    """A line of the table."""
    reached = [seconds for seconds, value in search.trials if value >= GOAL]
    cells: tuple[Any, ...] = (
        *(name, len(search.trials), f"{search.seconds:.0f}"),
        f"{3600 * len(search.trials) / search.seconds:.0f}",
        len(reached),
        f"{min(reached):.0f}" if reached else "none",
        f"{max(value for _, value in search.trials):.1f}",
    )
    return f"| {' | '.join(map(str, cells))} |"


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("python")
    parser.add_argument("--trials", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    print(
        f"| search | trials | seconds | trials/hour | with ≥ {GOAL} | "
        f"seconds to the first | best |\n|---|---|---|---|---|---|---|"
    )
    for seed in range(options.rounds):
        for name in ("rlcli", "rl-zoo3"):
            with tempfile.TemporaryDirectory() as temporary:
                sizes = (Path(temporary), options.trials, seed)
                if name == "rlcli":
                    search = search_with_rlcli(*sizes)
                else:
                    search = search_with_rl_zoo3(options.python, *sizes)
            print(row(f"{name}, seed {seed}", search), flush=True)


if __name__ == "__main__":
    main()
