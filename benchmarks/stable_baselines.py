"""The same work in rlcli, Stable-Baselines3 and sbx, alternately.

    python -m benchmarks.stable_baselines PYTHON [WORK]

`PYTHON` is the interpreter of a virtual environment with `stable-baselines3==2.9.2
sbx-rl==0.28.0 gymnasium[mujoco]`. `WORK` is `ppo`, `dqn`, `sac`, `td3`, or, with the
extra `mujoco`, `ppo_hopper`, `sac_hopper` or `td3_hopper`. All train on Gymnasium's
environments; rlcli also on its own, which are compiled with the agent. Everything runs
on the CPU, each library with its faster number of threads. rlcli runs as in `rlcli
train`, with its default log, and without its files.

PPO trains on CartPole with four environments, unrolls of 128 steps, four epochs of four
minibatches and networks of 64-64; DQN on CartPole with one environment, a network of
64-64, and an update of 32 per step; SAC and TD3 on Pendulum with networks of 256-256
and an update of 256 per step. On MuJoCo's Hopper, which is not one of rlcli's own,
rlcli trains its built-in recipes, and the others do as much work per step.
"""

from __future__ import annotations

import functools
import importlib.util
import subprocess
import sys
from contextlib import AbstractContextManager, ExitStack
from typing import Any

from benchmarks import continuous, loop, pairs, peers

PPO = {
    "environment": {"name": "CartPole-v1", "num_envs": 4},
    "network": {"name": "mlp", "layers": [64, 64], "activation": "tanh"},
    "tracer": {"name": "lambda_return", "gamma": 0.99, "lambda": 0.95},
    "updater": {"name": "ppo", "epochs": 4, "minibatches": 4, "clip_ratio": 0.2},
    "optimizer": {"name": "adam", "learning_rate": 2.5e-4, "clip_norm": 0.5},
    "train": {"unroll": 128, "evaluate": None},
}
RECIPES: dict[str, dict[str, Any]] = {
    "ppo": PPO,
    "dqn": {**loop.RECIPE, "optimizer": {**loop.RECIPE["optimizer"], "clip_norm": 10}},
    "sac": continuous.recipe_of("sac"),
    "td3": continuous.recipe_of("td3"),
}
MUJOCO = ("ppo_hopper", "sac_hopper", "td3_hopper")
RECIPES |= {
    work: {
        "extends": work.replace("_", "_gymnasium_"),
        "train": {"evaluate": None, **({} if work.startswith("ppo") else {"start": 0})},
    }
    for work in MUJOCO
}
# By work: the steps per call of each loop, for calls of about half a second.
STEPS = {
    "ppo": {
        "native": 102_400,
        "gymnasium": 10_240,
        "stable_baselines3": 4_096,
        "sbx": 10_240,
    },
    "dqn": {
        "native": 20_480,
        "gymnasium": 4_096,
        "stable_baselines3": 1_024,
        "sbx": 1_024,
    },
    "sac": {"native": 512, "gymnasium": 512, "stable_baselines3": 128, "sbx": 256},
    "td3": {"native": 512, "gymnasium": 512, "stable_baselines3": 128, "sbx": 256},
    "ppo_hopper": {"gymnasium": 4_096, "stable_baselines3": 2_048, "sbx": 2_048},
    "sac_hopper": {"gymnasium": 512, "stable_baselines3": 128, "sbx": 256},
    "td3_hopper": {"gymnasium": 512, "stable_baselines3": 128, "sbx": 256},
}
LIBRARIES = ("stable_baselines3", "sbx")
ROUNDS = 9


def recipe_of(work: str, *, gymnasium: bool) -> dict[str, Any]:
    """The recipe of a kind of work, in Gymnasium's environment or in rlcli's own."""
    data = RECIPES[work]
    if work in MUJOCO or not gymnasium:
        return data
    environment = data["environment"]
    if isinstance(environment, str):
        environment = {"name": environment}
    name = f"gymnasium/{environment['name']}"
    return {**data, "environment": {**environment, "name": name}}


def main(python: str, work: str) -> None:
    """Prints steps per second of all, and the ratios."""
    steps = STEPS[work]
    peers.apply_layout(RECIPES[work])
    ours = {
        kind: pairs.Loop(
            peers.start_training(recipe_of(work, gymnasium=kind == "gymnasium")),
            steps[kind],
        )
        for kind in ("gymnasium", "native")
        if kind in steps
    }
    with ExitStack() as stack:
        others = {}
        for library in LIBRARIES:
            start = functools.partial(start_worker, python, work, library)
            threads = peers.fastest_threads(start)
            name = f"{library}, {'1 thread' if threads else 'all cores'}"
            others[name] = stack.enter_context(start(threads))
        pairs.compare(peers.TITLES[work], ours, others, ROUNDS)


def start_worker(
    python: str, work: str, library: str, threads: str
) -> AbstractContextManager[pairs.Loop]:
    """A library, with a number of threads."""
    steps = STEPS[work][library]
    return peers.start_worker(
        python, "stable_baselines", work, steps, library, threads=threads
    )


if __name__ == "__main__":
    if sys.argv[2:]:
        main(*sys.argv[1:])
    else:
        module = [sys.executable, "-m", "benchmarks.stable_baselines", sys.argv[1]]
        has_mujoco = importlib.util.find_spec("mujoco") is not None
        for name in STEPS:
            if name in MUJOCO and not has_mujoco:
                print(f"not compared on {name}: the extra `mujoco` is not installed")
                continue
            subprocess.run([*module, name], check=True)
