"""What is killed: runs of different kinds, runs with varied options, and sweeps."""

from __future__ import annotations

from typing import NamedTuple


class Kind(NamedTuple):
    """A recipe, and how `rlcli` trains it."""

    recipe: str
    arguments: tuple[str, ...] = ()  # after the recipe
    command: str = "train"  # or "sweep"
    needs: str = ""  # a module that the recipe needs


_TRAIN = """\
train:
  steps: {steps}
  seeds: {seeds}
  log: {{every: {log}}}
  evaluate: {{every: {evaluate}, episodes: 2, render: {render}}}
  checkpoint: {{every: {checkpoint}}}
"""


def _train(
    steps: int, *, seeds: int = 1, render: bool = False, unroll: int | None = None
) -> str:
    text = _TRAIN.format(
        steps=steps,
        seeds=seeds,
        log=steps // 40,
        evaluate=steps // 10,
        checkpoint=steps // 20,
        render=str(render).lower(),
    )
    return text if unroll is None else f"{text}  unroll: {unroll}\n"


_DQN = """\
environment: {name: CartPole-v1, num_envs: 2}
network: {name: mlp, layers: [16]}
updater: double_q_learning
"""
_UNIFORM = "replay: {name: uniform, capacity: 1_000, batch_size: 8}\n"

_RECIPES = {
    "dqn": _DQN + _UNIFORM + _train(4_000, render=True),
    "prioritized": _DQN
    + "replay: {name: prioritized, capacity: 1_000, batch_size: 8}\n"
    + _train(4_000),
    "ppo_seeds": """\
environment: {name: CartPole-v1, num_envs: 2}
network: {name: mlp, layers: [16]}
updater: {name: ppo, epochs: 2, minibatches: 2}
normalize: {observation: true, reward: true}
"""
    + _train(16_000, seeds=3, unroll=16),
    "recurrent": """\
environment: {name: CartPole-v1, num_envs: 2}
network: {name: mlp, layers: [16], memory: {name: gru, size: 8}}
updater: {name: a2c}
"""
    + _train(8_000, unroll=16),
    "gymnasium": """\
environment: gymnasium/CartPole-v1
network: {name: mlp, layers: [16]}
updater: q_learning
"""
    + _UNIFORM
    + _train(4_000),
    "hindsight": """\
environment: {name: BitFlip-v0, bits: 4, num_envs: 2}
network: {name: mlp, layers: [16]}
updater: double_dqn
replay: {name: hindsight, capacity: 1_000, batch_size: 8}
"""
    + _train(4_000),
    "offline": """\
environment: CartPole-v1
network: {name: mlp, layers: [16]}
updater: iql
replay: {name: dataset, path: data/cartpole_medium.npz, batch_size: 8}
normalize: {observation: true}
"""
    + _train(2_000, seeds=2),
    "rnd": """\
environment: {name: bsuite/DeepSea, size: 5, num_envs: 4}
network: {name: mlp, layers: [16]}
updater: {name: ppo, epochs: 2, minibatches: 2}
intrinsic_reward: {name: rnd, features: 8, epochs: 2, minibatches: 2}
"""
    + _train(8_000, unroll=16),
    "r2d2": """\
environment: {name: CartPole-v1, num_envs: 2}
network: {name: mlp, layers: [16], memory: {name: lstm, size: 8}}
updater: {name: double_q_learning, target: {polyak: 0.01}}
replay: {name: sequences, length: 8, burn_in: 4, batch_size: 4, priorities: {}}
"""
    + _train(2_000),
    "frames": """\
environment: {name: MinAtar/Breakout-v1, num_envs: 2}
network: {name: mlp, layers: [16], preprocess: [{name: frame_stack, frames: 2}]}
updater: dqn
replay: {name: frames, stack: 2, capacity: 500, batch_size: 8}
"""
    + _train(2_000),
    "data_parallel": """\
environment: {name: CartPole-v1, num_envs: 4}
network: {name: mlp, layers: [16]}
updater: dqn
replay: {name: prioritized, capacity: 1_000, batch_size: 8}
"""
    + _train(2_000)
    + "  data_parallel: 2\n",
}
_MUZERO = """\
environment: {name: CartPole-v1, num_envs: 2}
network: {name: mlp, layers: [8]}
updater: {name: muzero, size: 4, steps: 2}
policy: {name: gumbel_muzero, simulations: 2, considered: 2}
replay: {name: prioritized, capacity: 500, batch_size: 8}
""" + _train(1_000)
_EVOLUTION = """\
environment: {name: CartPole-v1, num_envs: 8, time_limit: 50}
network: {name: mlp, layers: [4]}
updater: {NAME}
""" + _train(16_000, unroll=50)
_LAKE = """\
environment: FrozenLakeNonSlippery-v0
network: table
updater: q_learning
""" + _train(4_000, seeds=2)
_SEARCH = (
    *("--space", "space.yaml", "--trials", "4", "--seeds", "2", "--confirm", "1"),
    *("--jobs", "1"),
)
SPACE = "optimizer.learning_rate: {log_uniform: [1e-3, 1.0]}\n"

KINDS: dict[str, Kind] = {
    **{name: Kind(recipe) for name, recipe in _RECIPES.items()},
    "muzero": Kind(_MUZERO, needs="mctx"),
    "open_es": Kind(_EVOLUTION.replace("{NAME}", "open_es"), needs="evosax"),
    "cma_es": Kind(_EVOLUTION.replace("{NAME}", "cma_es"), needs="evosax"),
    "vary": Kind(_LAKE, ("--vary", "optimizer.learning_rate=0.01,0.1,1.0")),
    "sweep": Kind(
        _LAKE, (*_SEARCH, "--sampler", "random", "--pruner", "none"), "sweep"
    ),
    "pbt": Kind(_LAKE, (*_SEARCH, "--sampler", "pbt"), "sweep"),
}
