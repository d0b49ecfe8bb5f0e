"""UmbrellaChain: the first action determines the last reward."""

from __future__ import annotations

from typing import Annotated, NamedTuple

import gymnasium
import jax.numpy as jnp
import numpy as np
from annotated_types import Ge

from rlcli.environments import drawing
from rlcli.environments.native.bsuite import chains
from rlcli.environments.native.timesteps import make_timestep
from rlcli.registry import register
from rlcli.types import Array, Count, Environment, Key, TimeStep


class UmbrellaChainState(NamedTuple):
    """The time, the weather at the end, and the umbrella."""

    time: Array  # int32: steps of the episode so far
    needed: Array  # bool: whether it will rain
    had: Array  # bool: whether the agent has the umbrella


@register("environment", "bsuite/UmbrellaChain")
def umbrella_chain(
    *, chain_length: Count = 10, n_distractor: Annotated[int, Ge(0)] = 0
) -> Environment:
    """Takes an umbrella or leaves it: last reward 1 if that was right, else −1.

    Action 1 in the first step takes the umbrella, 0 leaves it; later actions have no
    effect. Every reward except the last one is 1 or −1, at random. The episode
    terminates after `chain_length` steps.
    Observation: float32 `[1, 3 + n_distractor]`: whether the umbrella is needed,
    whether the agent has it (random before the first step), the remaining time, from 1
    to 0, and random bits drawn in each step. Actions: 0, 1. Logged: `regret`, 1 minus
    the last reward. From bsuite (Osband et al., 2019,
    https://arxiv.org/abs/1908.03568), whose `umbrella_length` varies `chain_length`
    with 20 distractors, and `umbrella_distract` varies `n_distractor` with a length of
    20.
    """

    def observe(state: UmbrellaChainState, distractors: Array) -> Array:
        left = (chain_length - state.time) / chain_length
        head = jnp.stack([state.needed.astype(jnp.float32), state.had, left])
        return jnp.concatenate([head, distractors.astype(jnp.float32)])[None]

    def reset(key: Key) -> tuple[UmbrellaChainState, Array]:
        coins = chains.flip_coins(key, 2 + n_distractor)
        state = UmbrellaChainState(jnp.int32(0), coins[0], coins[1])
        return state, observe(state, coins[2:])

    def step(
        state: UmbrellaChainState, action: Array, noise: Array
    ) -> tuple[UmbrellaChainState, TimeStep]:
        had = jnp.where(state.time == 0, action == 1, state.had)
        state = UmbrellaChainState(state.time + 1, state.needed, had)
        terminated = state.time == chain_length
        is_positive = jnp.where(terminated, had == state.needed, noise[0])
        reward = jnp.where(is_positive, 1.0, -1.0)
        info = {"regret": jnp.where(terminated, 1.0 - reward, 0.0)}
        return state, make_timestep(observe(state, noise[1:]), reward, terminated, info)

    shape = (1, 3 + n_distractor)
    return Environment(
        reset=reset,
        step=step,
        observation=gymnasium.spaces.Box(0.0, 1.0, shape, np.float32),
        action=gymnasium.spaces.Discrete(2),
        render=lambda state: _draw(chain_length, *(int(value) for value in state)),
        draw=lambda key: chains.flip_coins(key, 1 + n_distractor),
    )


def _draw(length: int, time: int, is_needed: int, had: int) -> np.ndarray:
    """Draws the corridor, the weather at its end, and whether the umbrella is taken."""
    canvas = drawing.Canvas(chains.WIDTH, 240)
    chains.draw_corridor(canvas, 160, length, time)
    _draw_umbrella(canvas, (90, 60), drawing.BLUE if had else drawing.MIST)
    canvas.text((90, 118), "taken" if had else "left", 15)
    x = chains.WIDTH - 90
    if is_needed:
        for side in (-18, 0, 18):
            canvas.line((x + side, 72), (x + side - 7, 92), 3, drawing.BLUE)
    else:
        canvas.circle((x + 16, 40), 20, "#e3b341")
    for side, radius in ((-22, 15), (0, 22), (22, 15)):
        canvas.circle((x + side, 55), radius, drawing.GREY)
    canvas.text((x, 118), "needed" if is_needed else "not needed", 15)
    return canvas.pixels()


def _draw_umbrella(canvas: drawing.Canvas, centre: drawing.Point, fill: str) -> None:
    x, y = centre
    turn = np.linspace(np.pi, 2 * np.pi, 25)
    dome = [(x + 42 * float(np.cos(a)), y + 36 * float(np.sin(a))) for a in turn]
    canvas.polygon(dome, fill)
    canvas.line((x, y - 40), (x, y + 34), 3, drawing.INK)
    canvas.line((x, y + 34), (x + 9, y + 34), 3, drawing.INK)
