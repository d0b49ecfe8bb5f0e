"""Pgx: the adapter behind `pgx/…`, for its games of one player."""

from __future__ import annotations

import functools
from typing import Any

import gymnasium
import jax
import numpy as np

from rlcli.environments.adapters.jax_core import pure
from rlcli.errors import RlcliError, nearest
from rlcli.libraries import library
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
    env, observation, action = _made(id, action_mask)

    def seen(state: Any) -> ArrayTree:
        if not action_mask:
            return state.observation
        mask = state.legal_action_mask
        return {"observation": state.observation, "action_mask": mask}

    def begin(key: Key) -> tuple[ArrayTree, ArrayTree]:
        state = env.init(key)
        return state, seen(state)

    def go(state: Any, action: Array, key: Key) -> tuple:
        after = env.step(state, action, key)
        reward = after.rewards[0]
        return after, seen(after), reward, after.terminated, after.truncated

    return pure(begin, go, observation, action)


@functools.cache
def _made(id: str, action_mask: bool) -> tuple[Any, gymnasium.Space, gymnasium.Space]:
    """The game and its spaces; made once, for parts are made anew at every trace."""
    pgx = library("pgx", INSTALL)
    name = f"environment `pgx/{id}`"
    if id not in pgx.available_envs():
        hint = nearest(id, pgx.available_envs(), "pgx/")
        raise RlcliError(f"there is no {name}", hint)
    with jax.ensure_compile_time_eval():
        env = pgx.make(id)
        if env.num_players != 1:
            raise RlcliError(
                f"{name} has {env.num_players} players",
                "one agent learns at a time: `pgx/2048` and `pgx/minatar-…` have one",
            )
        board = jax.eval_shape(env.init, jax.random.key(0)).observation
    seen: gymnasium.Space = _board(board)
    if action_mask:
        mask = gymnasium.spaces.Box(0, 1, (env.num_actions,), _FLAG)
        seen = gymnasium.spaces.Dict({"observation": seen, "action_mask": mask})
    return env, seen, gymnasium.spaces.Discrete(env.num_actions)


def _board(board: Any) -> gymnasium.spaces.Box:
    """The space of what a game shows: Pgx says no bounds, and flags have their own."""
    if board.dtype == np.bool_:
        return gymnasium.spaces.Box(0, 1, board.shape, _FLAG)
    whole = np.issubdtype(board.dtype, np.integer)
    low, high = -np.inf, np.inf
    if whole:
        low, high = np.iinfo(board.dtype).min, np.iinfo(board.dtype).max
    return gymnasium.spaces.Box(low, high, board.shape, board.dtype.type)
