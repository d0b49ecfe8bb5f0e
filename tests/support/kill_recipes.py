"""The recipes of runs that are killed: small ones of different kinds."""

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

RECIPES = {
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
}
