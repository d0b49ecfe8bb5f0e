"""Trains with Stable-Baselines3 or sbx, on the CPU.

python -m benchmarks.workers.stable_baselines WORK STEPS (stable_baselines3 | sbx)
"""

from __future__ import annotations

import importlib
import sys
from typing import Any

from benchmarks.workers.serve import serve

PPO = {
    "n_steps": 128,
    "batch_size": 128,
    "n_epochs": 4,
    "learning_rate": 2.5e-4,
    "ent_coef": 0.01,
    "policy_kwargs": {"net_arch": {"pi": [64, 64], "vf": [64, 64]}},
}
OFF_POLICY = {"learning_starts": 0, "train_freq": 1, "gradient_steps": 1}
DQN = {
    **OFF_POLICY,
    "batch_size": 32,
    "buffer_size": 50_000,
    "target_update_interval": 200,
    "learning_rate": 1e-3,
    "policy_kwargs": {"net_arch": [64, 64]},
}
SAC = {
    **OFF_POLICY,
    "batch_size": 256,
    "buffer_size": 100_000,
    "learning_rate": 3e-4,
    "policy_kwargs": {"net_arch": [256, 256]},
}
# Those of rlcli's recipes for Hopper.
HOPPER = {**SAC, "buffer_size": 1_000_000}
PPO_HOPPER = {
    "n_steps": 2048,
    "batch_size": 64,
    "n_epochs": 10,
    "learning_rate": 3e-4,
    "clip_range_vf": 0.2,
    "policy_kwargs": {"net_arch": {"pi": [64, 64], "vf": [64, 64]}},
}
# By work: the environment, the number of its copies, and the options of the algorithm.
WORK: dict[str, tuple[str, int, dict[str, Any]]] = {
    "ppo": ("CartPole-v1", 4, PPO),
    "dqn": ("CartPole-v1", 1, DQN),
    "sac": ("Pendulum-v1", 1, SAC),
    "td3": ("Pendulum-v1", 1, SAC),
    "ppo_hopper": ("Hopper-v5", 1, PPO_HOPPER),
    "sac_hopper": ("Hopper-v5", 1, HOPPER),
    "td3_hopper": ("Hopper-v5", 1, HOPPER),
}


def main(work: str, steps: int, library: str) -> None:
    """Trains on, `steps` per call."""
    import numpy as np
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.noise import NormalActionNoise
    from stable_baselines3.common.vec_env import VecNormalize

    name, num_envs, options = WORK[work]
    algorithm = work.partition("_")[0]
    env = make_vec_env(name, num_envs)
    if work == "ppo_hopper":
        env = VecNormalize(env)
    if algorithm == "td3":  # its only exploration
        size, scale = (1, 0.4) if work == "td3" else (3, 0.1)
        noise = NormalActionNoise(np.zeros(size), np.full(size, scale))
        options = {**options, "action_noise": noise}
    model = getattr(importlib.import_module(library), algorithm.upper())(
        "MlpPolicy", env, seed=0, device="cpu", **options
    )
    serve(lambda: model.learn(steps, reset_num_timesteps=False))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3])
