"""SimpleBandit: eleven arms with fixed rewards."""

import gymnasium
import jax.numpy as jnp
import numpy as np

from rlcli.environments.native.bsuite import Seed
from rlcli.environments.native.timesteps import make_timestep
from rlcli.registry import register
from rlcli.types import Array, Core, Count, Key, TimeStep


@register("environment", "bsuite/SimpleBandit")
def simple_bandit(*, num_actions: Count = 11, mapping_seed: Seed = 0) -> Core:
    """Bandit with fixed rewards: each arm always pays the same amount, from 0 to 1.

    The rewards are evenly spaced, in an order that is fixed by `mapping_seed`. The
    episode terminates after one step.
    Observation: float32 `[1, 1]`, always 1. Actions: the arms. Logged: `regret`, 1
    minus the reward. From bsuite (Osband et al., 2019,
    https://arxiv.org/abs/1908.03568).

    Args:
        num_actions: the number of arms.
        mapping_seed: the seed of the order of the rewards, drawn as in bsuite.
    """
    order = np.random.RandomState(mapping_seed).choice(
        num_actions, size=num_actions, replace=False
    )
    rewards = jnp.asarray(np.linspace(0, 1, num_actions)[order], jnp.float32)
    obs = np.ones((1, 1), np.float32)

    def reset(key: Key) -> tuple[tuple[()], Array]:
        del key  # there is one state
        return (), jnp.asarray(obs)

    def step(
        state: tuple[()], action: Array, noise: tuple[()]
    ) -> tuple[tuple[()], TimeStep]:
        reward = jnp.take(rewards, action, mode="clip")
        info = {"regret": 1.0 - reward}
        return state, make_timestep(jnp.asarray(obs), reward, jnp.bool_(True), info)

    return Core(
        reset=reset,
        step=step,
        observation=gymnasium.spaces.Box(1.0, 1.0, (1, 1), np.float32),
        action=gymnasium.spaces.Discrete(num_actions),
        draw=lambda key: (),
    )
