"""Pgx: the adapter behind `pgx/…`, for single-player games."""

import functools
from typing import Any

import gymnasium
import jax

from rlcli.environments.adapters import jax_libraries
from rlcli.environments.adapters.jax_core import pure_core
from rlcli.errors import RlcliError
from rlcli.registry import register
from rlcli.types import Array, ArrayTree, Core, Key

EXTRA = "pgx"


@register("environment", "pgx/")
def pgx_adapter(id: str, *, action_mask: bool = True) -> Core:
    """Single-player games of Pgx (Koyama et al., 2023), compiled with the agent.

    The observation is a Dict: `observation`, that of Pgx, and `action_mask`, the legal
    actions; with `action_mask: false` it is only the former. An illegal action ends the
    game with Pgx's penalty. https://github.com/sotetsuk/pgx
    """
    env, observation, action = _make_env(id, action_mask)

    def observe(state: Any) -> ArrayTree:
        if not action_mask:
            return state.observation
        mask = state.legal_action_mask
        return {"observation": state.observation, "action_mask": mask}

    def reset(key: Key) -> tuple[ArrayTree, ArrayTree]:
        state = env.init(key)
        return state, observe(state)

    def step(state: Any, action: Array, key: Key) -> tuple:
        state = env.step(state, action, key)
        reward = state.rewards[0]
        return state, observe(state), reward, state.terminated, state.truncated

    return pure_core(reset, step, observation, action)


@functools.cache
def _make_env(
    id: str, action_mask: bool
) -> tuple[Any, gymnasium.Space, gymnasium.Space]:
    """Returns the game and its spaces; cached, since each trace rebuilds parts."""
    pgx = jax_libraries.import_jax_library("pgx", EXTRA)
    jax_libraries.check_id("pgx/", id, pgx.available_envs())
    with jax.ensure_compile_time_eval():
        env = pgx.make(id)
        if env.num_players != 1:
            raise RlcliError(
                f"environment `pgx/{id}` has {env.num_players} players, but rlcli "
                "trains one agent",
                "choose a single-player game, such as `pgx/2048` or `pgx/minatar-…`",
            )
        board = jax.eval_shape(env.init, jax.random.key(0)).observation
    space: gymnasium.Space = jax_libraries.space_like(board)
    if action_mask:
        mask = jax_libraries.bounded_box(0, 1, (env.num_actions,), bool)
        space = gymnasium.spaces.Dict({"observation": space, "action_mask": mask})
    return env, space, gymnasium.spaces.Discrete(env.num_actions)
