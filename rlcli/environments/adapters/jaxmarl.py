"""JaxMARL: the adapter behind `jaxmarl/…`, compiled with the agent.

Every agent of a game is an environment of the batch, so one policy with shared weights
acts for all of them, and learns from the steps of all: independent PPO is `ppo`.
"""

import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces

from rlcli.distributions.action_masks import MASK
from rlcli.environments.adapters import jax_libraries
from rlcli.errors import RlcliError
from rlcli.registry import register
from rlcli.types import Array, ArrayTree, Core, Key


@register("environment", "jaxmarl/")
@jax_libraries.cached_core
def jaxmarl_adapter(
    id: str,
    *,
    action_mask: bool = True,
    agent_ids: bool = False,
    options: dict[str, Any] | None = None,
) -> Core:
    """Games of several agents of JaxMARL (Rutherford et al., 2024), compiled.

    Each agent of each game is one environment of the batch, so `num_envs` is a multiple
    of the number of agents. Vectors of different lengths are padded with zeros, and
    Discrete actions to the largest number of them. Where agents have different numbers,
    or the library knows the legal ones, observations are Dicts with an `action_mask`.
    `agent_ids` appends the agent's number, one-hot, to vectors. `options` are arguments
    of the class. An agent that has ended before the others gets the library's rewards,
    with discount 0. `max_steps` truncates. https://arxiv.org/abs/2311.10090
    """
    library = jax_libraries.import_jax_library("jaxmarl", "jaxmarl")
    name = jax_libraries.full_name("jaxmarl/", id, library.registered_envs)
    make = functools.partial(library.make, id, **(options or {}))
    hint = "`options` are arguments of its class in `jaxmarl.environments`"
    env = jax_libraries.make_concrete(name, make, hint)
    untimed, agents = _without_limit(env), env.agents
    action, counts = _common_action(name, env)
    find_legal = _legal_actions(env) if counts else None
    use_mask = action_mask and (find_legal is not None or len(set(counts)) > 1)

    def observe(obs: dict[str, Array], state: Any) -> ArrayTree:
        stacked = _stack(name, [jnp.asarray(obs[agent]) for agent in agents])
        if agent_ids and stacked.ndim == 2:
            ids = jnp.eye(len(stacked), dtype=stacked.dtype)
            stacked = jnp.concatenate([stacked, ids], axis=1)
        if not use_mask:
            return stacked
        flags = find_legal(state) if find_legal else {}
        rows = [
            jnp.asarray(flags.get(agent, jnp.ones(count)), bool)
            for agent, count in zip(agents, counts, strict=True)
        ]
        return {"observation": stacked, MASK: _stack(name, rows)}

    def reset(key: Key) -> tuple[ArrayTree, ArrayTree]:
        obs, state = env.reset(jax.random.key_data(key))  # the state may keep a key
        return state, observe(obs, state)

    def step(state: Any, choice: Array, key: Key) -> tuple:
        choices = {agent: choice[row] for row, agent in enumerate(agents)}
        arguments = (jax.random.key_data(key), state, choices)
        obs, state, rewards, dones, info = env.step_env(*arguments)
        # Its own `dones` do not tell the limit of steps from an end of the game.
        *_, ends, _ = untimed.step_env(*arguments)
        reward = jnp.stack([jnp.reshape(rewards[agent], ()) for agent in agents])
        terminated = jnp.stack([jnp.reshape(ends[agent], ()) for agent in agents])
        terminated = terminated | ends["__all__"]
        ends = terminated, dones["__all__"]
        return state, observe(obs, state), reward, *ends, info

    shapes = jax_libraries.observation_shapes(name, lambda key: reset(key)[1])
    own = jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), shapes
    )
    observation = jax_libraries.space_like(own)
    return jax_libraries.library_core(
        name, reset, step, observation, action, len(agents)
    )


def _common_action(name: str, env: Any) -> tuple[spaces.Space, list[int]]:
    """The space of all agents' actions, and each one's number of Discrete actions.

    The numbers are empty if actions are not Discrete.
    """
    own = [
        jax_libraries.convert_gymnax_space(env.action_space(agent))
        for agent in env.agents
    ]
    counts = [int(space.n) for space in own if isinstance(space, spaces.Discrete)]
    if len(counts) == len(own):
        return spaces.Discrete(max(counts)), counts
    if any(space != own[0] for space in own):
        raise RlcliError(
            f"environment `{name}`: its agents have different action spaces, but share "
            "the weights of one policy",
            "choose an environment whose actions are equal, or all Discrete",
        )
    return own[0], []


def _legal_actions(env: Any) -> Any:
    """The method that returns flags of the legal actions by agent, if it has one."""
    if hasattr(env, "get_legal_moves"):
        return env.get_legal_moves
    base = next(each for each in type(env).__mro__ if each.__name__ == "MultiAgentEnv")
    method: Any = type(env).get_avail_actions
    return None if method is base.get_avail_actions else env.get_avail_actions  # pyright: ignore[reportAttributeAccessIssue] # of the library


def _without_limit(env: Any) -> Any:
    """A copy of an environment, and of that within it, that never runs out of steps."""
    untimed = object.__new__(type(env))  # `copy.copy` fails on its `__getattr__`
    vars(untimed).update(vars(env))
    if "_env" in vars(env):
        untimed._env = _without_limit(env._env)
    if "max_steps" in vars(env):
        untimed.max_steps = np.iinfo(np.int32).max
    return untimed


def _stack(name: str, arrays: Sequence[Any]) -> Array:
    """The arrays of the agents, `[A, ...]`; vectors are padded with zeros."""
    shapes = {array.shape for array in arrays}
    if len(shapes) > 1:
        if any(len(shape) != 1 for shape in shapes):
            raise RlcliError(
                f"environment `{name}`: its agents have observations of different "
                "shapes, but share the weights of one policy",
                "choose an environment whose observations are vectors, or equal",
            )
        width = max(shapes)[0]
        arrays = [jnp.pad(array, (0, width - len(array))) for array in arrays]
    return jnp.stack(arrays)
