"""Trains with rejax: `python -m benchmarks.workers.rejax WORK STEPS`."""

from __future__ import annotations

import sys

import jax
from rejax import PPO, SAC, TD3
from rejax.networks import DeterministicPolicy, QNetwork

from benchmarks.workers.serve import serve


def _ppo(steps: int, eval_freq: int) -> PPO:
    return PPO.create(
        env="CartPole-v1",
        num_envs=5,
        num_steps=100,
        num_epochs=5,
        num_minibatches=5,
        learning_rate=5e-4,
        total_timesteps=steps,
        eval_freq=eval_freq,
    )


def _without_evaluation(algorithm):
    return algorithm.replace(eval_callback=lambda *_: ())


def make(work: str, steps: int):
    """The algorithm of a kind of work."""
    if work == "ppo_evaluated":
        return _ppo(steps, 1_000)
    if work == "ppo":
        return _without_evaluation(_ppo(steps, steps))
    common = {
        "env": "Pendulum-v1",
        "learning_rate": 3e-4,
        "batch_size": 256,
        "buffer_size": 100_000,
        "fill_buffer": 256,
        "total_timesteps": steps,
        "eval_freq": steps,
        "skip_initial_evaluation": True,
    }
    if work == "sac":
        algorithm = SAC.create(num_envs=1, hidden_layer_sizes=(256, 256), **common)
        return _without_evaluation(algorithm)
    algorithm = TD3.create(num_envs=1, **common)
    layers = {"hidden_layer_sizes": (256, 256)}  # rejax has no option for them
    layers["activation"] = jax.nn.relu  # as in rlcli; its default swish takes longer
    old = algorithm.actor
    actor = DeterministicPolicy(old.action_dim, old.action_range, **layers)
    critic = QNetwork(**layers)
    return _without_evaluation(algorithm.replace(actor=actor, critic=critic))


def main(work: str, steps: int) -> None:
    """Trains on, `steps` per call."""
    algorithm = make(work, steps)
    state = jax.jit(algorithm.init_state)(jax.random.key(0))
    # With what the evaluations return: without, XLA would remove them.
    train = jax.jit(lambda state: algorithm.train(train_state=state))

    def run() -> None:
        nonlocal state
        state, _ = jax.block_until_ready(train(state))

    serve(run)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
