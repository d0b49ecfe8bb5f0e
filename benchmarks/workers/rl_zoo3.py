"""Tunes PPO with rl-zoo3 over the space of `benchmarks.rl_zoo3`.

    python -m benchmarks.workers.rl_zoo3 SPACE [option of rl_zoo3.train]...

rl-zoo3's own space is part of its code, so this replaces the function that samples it.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from rl_zoo3 import hyperparams_opt
from rl_zoo3.train import train
from torch import nn

# By our option: that of Stable-Baselines3.
NAMES = {
    "optimizer.learning_rate": "learning_rate",
    "optimizer.clip_norm": "max_grad_norm",
    "tracer.gamma": "gamma",
    "tracer.lambda": "gae_lambda",
    "updater.clip_ratio": "clip_range",
    "updater.epochs": "n_epochs",
    "train.unroll": "n_steps",
}
ACTIVATIONS = {"tanh": nn.Tanh, "relu": nn.ReLU}


def suggest(trial: Any, key: str, distribution: dict[str, list]) -> Any:
    """The value of an option, drawn by Optuna."""
    ((kind, values),) = distribution.items()
    if kind == "choice":
        # Optuna's categories are scalars: the index of the value.
        return values[trial.suggest_categorical(key, list(range(len(values))))]
    return trial.suggest_float(key, *values, log=kind == "log_uniform")


def sampler(space: dict[str, dict[str, list]]) -> Any:
    """A function in the form of those in `HYPERPARAMS_SAMPLER`."""

    def sample(trial: Any, n_actions: int, n_envs: int, more: dict) -> dict[str, Any]:
        drawn = {key: suggest(trial, key, values) for key, values in space.items()}
        rows = drawn["train.unroll"] * n_envs
        (regularizer,) = drawn["updater.regularizers"]
        layers = drawn["network.layers"]
        return {
            **{name: drawn[key] for key, name in NAMES.items()},
            "batch_size": rows // drawn["updater.minibatches"],
            "ent_coef": regularizer["weight"],
            "policy_kwargs": {
                "net_arch": {"pi": layers, "vf": layers},
                "activation_fn": ACTIVATIONS[drawn["network.activation"]],
            },
        }

    return sample


if __name__ == "__main__":
    space = json.loads(Path(sys.argv.pop(1)).read_text())
    hyperparams_opt.HYPERPARAMS_SAMPLER["ppo"] = sampler(space)
    train()
