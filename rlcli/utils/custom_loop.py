"""By hand: what a training loop of one's own needs beside the parts themselves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np

from rlcli.networks.functions import forward_pass
from rlcli.networks.heads import action_values_head
from rlcli.types import (
    Agent,
    Array,
    ArrayTree,
    Clock,
    Key,
    Network,
    Params,
    Transition,
)
from rlcli.updaters import Spaces
from rlcli.xla.indexing import select_index


class QFunction(NamedTuple):
    """Action values by one's own forward pass. Holds no parameters.

    `spaces` and `networks` are what the factory of an updater takes first:

        q_learning(q.spaces, q.networks, policies, optimizer)
    """

    network: Network
    spaces: Spaces

    def init(self, key: Key) -> Params:
        """New parameters, `{"q": …}`; checks what the forward pass gives."""
        return self.network.init(key)

    def __call__(self, params: Params, obs: Any, action: Any = None) -> Array:
        """q(s, ·) `[..., actions]`; or of one action each, q(s, a) `[...]`."""
        values, _ = self.network.apply(params, None, jnp.asarray(obs), (), None)
        if action is None:
            return values
        start = getattr(self.spaces.action, "start", 0)
        return select_index(values, jnp.asarray(action) - int(start))

    def networks(self, name: str, head: Callable[..., Any]) -> Network:
        """The function that an updater asks for by name; the head is one's own, too."""
        if name != "q":
            raise ValueError(f"expected an updater that learns `q`, not `{name}`")
        from_array = head().from_array

        def apply(*inputs: Any) -> tuple[ArrayTree, ArrayTree]:
            values, carry = self.network.apply(*inputs)
            return from_array(values), carry

        return self.network._replace(apply=apply)


def q_function(forward: Callable[[Array], Array], env: gymnasium.Env) -> QFunction:
    """The action values that a Haiku function gives, in an environment's spaces.

    `forward(obs[N, ...]) -> [N, actions]` gets observations as the environment has
    them: whether to encode them one-hot, or to flatten them, is its own business.
    """
    space = env.action_space
    if not isinstance(space, gymnasium.spaces.Discrete):
        raise TypeError(f"expected an environment with Discrete actions, got {space}")
    head = action_values_head(int(space.n))
    network = forward_pass("q", forward, head, env.observation_space)
    return QFunction(network, Spaces(env.observation_space, space))


def act(
    agent: Agent, state: ArrayTree, obs: Any, key: Key, *, explore: bool = True
) -> Array:
    """An agent's action for one observation; its best one unless it is to `explore`.

    For agents without a memory: each observation is seen as an episode's first.
    """
    policy, first = agent.policy, jnp.ones(1, bool)
    choose = policy.explore if explore else policy.exploit
    batch = jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], obs)
    noise = policy.draw(key, 1)
    decision, _ = choose(agent.acting(state), batch, policy.initial(1), first, noise)
    return decision.action[0]


def transition(
    obs: Any, action: Any, step_result: tuple, *, first: bool = False, **extras: Any
) -> Transition:
    """One step of one environment, as an unroll `[1, 1, ...]`: what agents learn from.

    `step_result` is what `env.step(action)` returned. Nothing is to be had after an
    episode that terminated (`discount` 0); one that was truncated would have gone on.
    `first` says whether `obs` began the episode; `extras` are what `agent.needs` names.
    """
    next_obs, reward, terminated, truncated = step_result[:4]

    def to_unroll(leaf: Any) -> Any:
        # In 32 bits, as everything in JAX.
        dtype = jax.dtypes.canonicalize_dtype(np.asarray(leaf).dtype)
        return np.asarray(leaf, dtype)[None, None]

    return Transition(
        obs=jax.tree.map(to_unroll, obs),
        action=jax.tree.map(to_unroll, action),
        reward=to_unroll(np.float32(reward)),
        discount=to_unroll(np.float32(not terminated)),
        next_obs=jax.tree.map(to_unroll, next_obs),
        first=to_unroll(bool(first)),
        last=to_unroll(bool(terminated or truncated)),
        extras=jax.tree.map(to_unroll, extras),
    )


def clock(steps: Any) -> Clock:
    """The time after `steps` steps, for who learns from each of them once.

    For agents that learn online. Steps are iterations here, and updates; the update's
    metrics are computed every time.
    """
    iteration = jnp.asarray(steps, jnp.int32)
    return Clock(
        iteration=iteration,
        steps=iteration.astype(jnp.float32),
        episodes=jnp.float32(0),
        updates=iteration,
        compute_metrics=jnp.bool_(True),
    )
