"""Critic functions: the values that an updater has learned, of single observations.

`Updater.estimate` has them for tracers, so every algorithm that learns values has them
here, also where its policy acts without.
"""

from collections.abc import Callable

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float

from rlcli.evaluation.policy_spaces import zeros
from rlcli.types import Agent, Array, ArrayTree, Estimates, Transition

_SAMPLES = 16  # of the actions in a value, where an estimate samples one


def critic_functions(
    agent: Agent, space: gymnasium.Space
) -> dict[str, Callable[..., Float[Array, "B"]]]:
    """`value` and `action_value`: (learner, obs[B], memory, first[B], action) -> `[B]`.

    `learner` is the state of the agent's updater (`AgentInside`), and `space` that of
    canonical actions. The values are those of `Estimates`.
    """
    assert agent.inside is not None  # as in every agent that `loop.agents` makes
    function = agent.inside.estimate

    def estimate(
        learner: ArrayTree,
        obs: ArrayTree,
        memory: ArrayTree,
        first: Bool[Array, "B"],
        action: ArrayTree,
    ) -> Estimates:
        """The mean estimate of each observation, as an unroll of one step."""
        action = zeros(space, first.shape[0]) if action is None else action
        keys = jax.random.split(jax.random.key(np.uint32(0)), _SAMPLES)

        def estimate_row(*row: ArrayTree) -> Estimates:
            """With the same random numbers wherever it is in a batch."""
            obs, carry, action = jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], row)
            number, flag = jnp.zeros(1), jnp.zeros(1, bool)
            extras = {"carry": carry, "log_prob": number, "cut": flag}
            step = Transition(obs, action, number, number + 1, obs, flag, flag, extras)
            steps = jax.tree.map(lambda leaf: leaf[None], step)
            found = jax.lax.map(lambda key: function(learner, steps, key)[:4], keys)
            return Estimates(*(jnp.mean(leaf) for leaf in found))

        return jax.vmap(estimate_row)(obs, memory[0], action)

    return {
        "value": lambda *inputs: estimate(*inputs).v_tm1,
        "action_value": lambda *inputs: estimate(*inputs).q_tm1,
    }
