"""Trains with purejaxrl: `python -m benchmarks.workers.purejaxrl WORK STEPS CHECKOUT`.

`CHECKOUT` is a clone of https://github.com/luchris429/purejaxrl, which is not a
package. Its functions `make_train` run as they are. A call is a whole run of `STEPS`,
with its first state, because they do not continue a run.
"""

from __future__ import annotations

import importlib
import itertools
import sys
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import jax

from benchmarks.workers.serve import serve

# Its files import these, and what is measured does not use them.
UNUSED = ("wandb", "navix", "brax", "brax.envs", "brax.envs.wrappers.training")
COMMON = {"ENV_NAME": "CartPole-v1", "GAMMA": 0.99, "LR": 2.5e-4}
PPO = {
    "NUM_ENVS": 4,
    "NUM_STEPS": 128,
    "UPDATE_EPOCHS": 4,
    "NUM_MINIBATCHES": 4,
    "GAE_LAMBDA": 0.95,
    "CLIP_EPS": 0.2,
    "ENT_COEF": 0.01,
    "VF_COEF": 0.5,
    "MAX_GRAD_NORM": 0.5,
    "ACTIVATION": "tanh",
    "ANNEAL_LR": True,
}
DQN = {
    "NUM_ENVS": 1,
    "BUFFER_SIZE": 10_000,
    "BUFFER_BATCH_SIZE": 32,
    "EPSILON_START": 1.0,
    "EPSILON_FINISH": 0.05,
    "EPSILON_ANNEAL_TIME": 10_000,
    "TARGET_UPDATE_INTERVAL": 500,
    "LEARNING_STARTS": 0,
    "TRAINING_INTERVAL": 1,
    "TAU": 1.0,
}
CONFIGS: dict[str, dict[str, Any]] = {"ppo": PPO, "dqn": DQN}


def main(work: str, steps: int, checkout: str) -> None:
    """Runs `steps` per call, each call with the key of another seed."""
    sys.modules |= {name: MagicMock() for name in UNUSED}
    if not hasattr(jax, "tree_map"):  # JAX has removed this name
        jax.tree_map = jax.tree.map
    sys.path.insert(0, str(Path(checkout) / "purejaxrl"))
    config = {**COMMON, **CONFIGS[work], "TOTAL_TIMESTEPS": steps}
    train = jax.jit(importlib.import_module(work).make_train(config))
    keys = map(jax.random.key, itertools.count())
    serve(lambda: jax.block_until_ready(train(next(keys))))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3])
