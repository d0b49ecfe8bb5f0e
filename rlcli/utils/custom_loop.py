"""Custom loop: helper functions for user-written training loops."""

from collections.abc import Callable
from typing import Any, NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import optax

from rlcli.networks.functions import forward_pass
from rlcli.networks.heads import action_values_head
from rlcli.types import Agent, Array, ArrayTree, Clock, Key, Network, Params, Transition
from rlcli.updaters import Parts, Policies, Spaces
from rlcli.utils.trees import batch_to_single
from rlcli.xla import switches
from rlcli.xla.indexing import select_index


class QFunction(NamedTuple):
    """An action-value function with a user-defined forward pass, without parameters.

    An updater is built from its `parts`, with a function that makes its policy:

        q_learning(q.parts(policies, optimizer))
    """

    network: Network
    spaces: Spaces

    def init(self, key: Key) -> Params:
        """Initializes parameters, `{"q": …}`; checks the shape of the outputs."""
        return self.network.init(key)

    def __call__(self, params: Params, obs: Any, action: Any = None) -> Array:
        """q(s, ·) `[..., actions]`, or with actions, q(s, a) `[...]`."""
        values, _ = self.network.apply(params, None, jnp.asarray(obs), (), None)
        if action is None:
            return values
        start = getattr(self.spaces.action, "start", 0)
        return select_index(values, jnp.asarray(action) - int(start))

    def parts(
        self, policies: Policies, optimizer: optax.GradientTransformation
    ) -> Parts:
        """The argument of the factory of an updater that learns this function."""
        return Parts(self.spaces, self._find_network, policies, optimizer)

    def _find_network(self, name: str, head: Callable[..., Any]) -> Network:
        """Returns the network `q` for an updater, with the outputs of its head."""
        if name != "q":
            raise ValueError(f"expected an updater that learns `q`, not `{name}`")
        from_array = head().from_array

        def apply(*inputs: Any) -> tuple[ArrayTree, ArrayTree]:
            values, carry = self.network.apply(*inputs)
            return from_array(values), carry

        return self.network._replace(apply=apply)


def q_function(forward: Callable[[Array], Array], env: gymnasium.Env) -> QFunction:
    """Makes an action-value function from a Haiku function, for an environment.

    `forward(obs[N, ...]) -> [N, actions]` takes the observations of the environment
    without preprocessing, such as one-hot encoding or flattening.
    """
    switches.require_defaults()
    space = env.action_space
    if not isinstance(space, gymnasium.spaces.Discrete):
        raise TypeError(f"expected an environment with Discrete actions, got {space}")
    head = action_values_head(int(space.n))
    network = forward_pass("q", forward, head, env.observation_space)
    return QFunction(network, Spaces(env.observation_space, space))


def act(
    agent: Agent, state: ArrayTree, obs: Any, key: Key, *, explore: bool = True
) -> ArrayTree:
    """Selects an agent's action for one observation; greedy unless `explore`.

    For feed-forward agents: each observation is treated as the first of an episode.
    """
    policy, first = agent.policy, jnp.ones(1, bool)
    select_action = policy.explore if explore else policy.exploit
    batch = jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], obs)
    noise = policy.draw(key, 1)
    decision, _ = select_action(
        agent.acting(state), batch, policy.initial(1), first, noise
    )
    return batch_to_single(decision.action)


def transition(
    obs: Any, action: Any, step_result: tuple, *, first: bool = False, **extras: Any
) -> Transition:
    """One step of one environment as an unroll `[1, 1, ...]`, for `agent.learn`.

    `step_result` is the result of `env.step(action)`. `discount` is 0 if the episode
    terminated, and 1 if it was truncated. `first` is whether `obs` is the first of the
    episode. `extras` are the arrays that `agent.traits.requires` names. Arrays are
    copied: many environments return the same buffer at every step.
    """
    next_obs, reward, terminated, truncated = step_result[:4]

    def to_unroll(leaf: Any) -> Any:
        # 32-bit dtypes, as in JAX.
        dtype = jax.dtypes.canonicalize_dtype(np.asarray(leaf).dtype)
        return np.array(leaf, dtype)[None, None]

    return Transition(
        obs=jax.tree.map(to_unroll, obs),
        action=jax.tree.map(to_unroll, action),
        reward=to_unroll(np.float32(np.asarray(reward).item())),
        discount=to_unroll(np.float32(not terminated)),
        next_obs=jax.tree.map(to_unroll, next_obs),
        first=to_unroll(bool(first)),
        last=to_unroll(bool(terminated or truncated)),
        extras=jax.tree.map(to_unroll, extras),
    )


def clock(steps: Any) -> Clock:
    """The clock after `steps` steps, for online agents that learn from every step.

    An update sees the clock before its step: 0 is that of the first one.
    Every step is one iteration and one update. The metrics are always computed.
    """
    iteration = jnp.asarray(steps, jnp.int32)
    return Clock(
        iteration=iteration,
        steps=iteration.astype(jnp.float32),
        episodes=jnp.float32(0),
        updates=iteration,
        compute_metrics=jnp.bool_(True),
    )
