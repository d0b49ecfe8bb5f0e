"""Pgx: the adapter behind `pgx/…`, for its games of one player."""

from __future__ import annotations

import functools
from typing import Any

import gymnasium
import jax
import numpy as np

from rlcli.environments.adapters.jax_core import pure_core
from rlcli.errors import RlcliError, suggest
from rlcli.libraries import import_library
from rlcli.registry import register
from rlcli.types import Array, ArrayTree, Environment, Key

INSTALL = "rlcli[pgx]"
_FLAG: Any = bool  # as a dtype, of which the stubs of Box do not know


@register("environment", "pgx/")
def pgx_adapter(id: str, *, action_mask: bool = True) -> Environment:
    """A game of Pgx's for one player (Koyama et al., 2023), compiled with the agent.

    The observation is a Dict: `observation`, as Pgx has it, and `action_mask`, which
    actions the rules allow; without `action_mask` it is the former alone. Another
    action ends the game, at Pgx's penalty. https://github.com/sotetsuk/pgx
    """
    env, observation, action = _make_env(id, action_mask)

    def observe(state: Any) -> ArrayTree:
        if not action_mask:
            return state.observation
        mask = state.legal_action_mask
        return {"observation": state.observation, "action_mask": mask}

    def begin(key: Key) -> tuple[ArrayTree, ArrayTree]:
        state = env.init(key)
        return state, observe(state)

    def go(state: Any, action: Array, key: Key) -> tuple:
        after = env.step(state, action, key)
        reward = after.rewards[0]
        return after, observe(after), reward, after.terminated, after.truncated

    return pure_core(begin, go, observation, action)


@functools.cache
def _make_env(
    id: str, action_mask: bool
) -> tuple[Any, gymnasium.Space, gymnasium.Space]:
    """The game and its spaces; made once, for parts are made anew at every trace."""
    pgx = import_library("pgx", INSTALL)
    name = f"environment `pgx/{id}`"
    if id not in pgx.available_envs():
        hint = suggest(id, pgx.available_envs(), "pgx/")
        raise RlcliError(f"there is no {name}", hint)
    with jax.ensure_compile_time_eval():
        env = pgx.make(id)
        if env.num_players != 1:
            raise RlcliError(
                f"{name} has {env.num_players} players",
                "one agent learns at a time: `pgx/2048` and `pgx/minatar-…` have one",
            )
        board = jax.eval_shape(env.init, jax.random.key(0)).observation
    space: gymnasium.Space = _board_space(board)
    if action_mask:
        mask = gymnasium.spaces.Box(0, 1, (env.num_actions,), _FLAG)
        space = gymnasium.spaces.Dict({"observation": space, "action_mask": mask})
    return env, space, gymnasium.spaces.Discrete(env.num_actions)


def _board_space(board: Any) -> gymnasium.spaces.Box:
    """The space of what a game shows: Pgx says no bounds, and flags have their own."""
    if board.dtype == np.bool_:
        return gymnasium.spaces.Box(0, 1, board.shape, _FLAG)
    is_integer = np.issubdtype(board.dtype, np.integer)
    low, high = -np.inf, np.inf
    if is_integer:
        low, high = np.iinfo(board.dtype).min, np.iinfo(board.dtype).max
    return gymnasium.spaces.Box(low, high, board.shape, board.dtype.type)
