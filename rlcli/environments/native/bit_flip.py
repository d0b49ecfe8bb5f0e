"""BitFlip: flip bits, one at a time, until they equal the goal."""

from typing import Annotated, NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from annotated_types import Ge

from rlcli import spaces
from rlcli.environments import drawing
from rlcli.environments.native.core import native_core
from rlcli.registry import register
from rlcli.types import Array, Core, Key

CELL = 40  # pixels


class BitFlipState(NamedTuple):
    """The bits and their goal, bool `[bits]` each."""

    bits: Array
    goal: Array


@register("environment", "BitFlip-v0", time_limit=15)
def bit_flip(*, bits: Annotated[int, Ge(1)] = 15) -> Core:
    """Flips bits until they equal the goal: reward −1 for every step before.

    The bits and the goal are random in each episode. The step that reaches the goal has
    reward 0 and terminates the episode. The reward says nothing on the way, so for more
    than about ten bits an agent needs hindsight: the replay `hindsight`.
    Observation: a dict of `observation`, `achieved_goal` (both the bits) and
    `desired_goal`, bool `[bits]` each. Actions: action i flips bit i. From
    (Andrychowicz et al., 2017, https://arxiv.org/abs/1707.01495), whose episodes have
    as many steps as bits.

    Args:
        bits: the number of bits. The default of `time_limit` is that of 15 bits.
    """

    def observe(state: BitFlipState) -> dict[str, Array]:
        return {
            "observation": state.bits,
            "achieved_goal": state.bits,
            "desired_goal": state.goal,
        }

    def begin(key: Key) -> BitFlipState:
        return BitFlipState(*jax.random.bernoulli(key, shape=(2, bits)))

    def goal_reward(achieved: Array, desired: Array) -> tuple[Array, Array]:
        is_reached = jnp.all(achieved == desired)
        return is_reached - 1.0, 1.0 - is_reached

    def step(state: BitFlipState, action: Array) -> tuple:
        state = state._replace(bits=state.bits ^ (jnp.arange(bits) == action))
        reward, discount = goal_reward(*state)
        return state, reward, discount == 0

    def render(state: BitFlipState) -> np.ndarray:
        return _draw(np.asarray(state.bits), np.asarray(state.goal))

    member = spaces.boolean_box(bits)
    names = ("observation", "achieved_goal", "desired_goal")
    space = gymnasium.spaces.Dict(dict.fromkeys(names, member))
    return native_core(
        begin, step, observe, space, bits, render=render, goal_reward=goal_reward
    )


def _draw(bits: np.ndarray, goal: np.ndarray) -> np.ndarray:
    """Draws the bits above the goal; those that differ have a red mark between."""
    label = 60
    width = label + max(4, len(bits)) * CELL + 12
    canvas = drawing.Canvas(width, 3 * CELL + 24)
    for row, (name, values) in enumerate((("bits", bits), ("goal", goal))):
        top = 12 + 2 * row * CELL
        canvas.text((label / 2, top + CELL / 2), name, 16)
        for i, value in enumerate(values):
            fill = drawing.BLUE if value else drawing.MIST
            corner = (label + i * CELL + 2, top + 2)
            canvas.box(corner, CELL - 4, CELL - 4, fill, radius=5)
            ink = drawing.PAPER if value else drawing.INK
            middle = (label + (i + 0.5) * CELL, top + CELL / 2)
            canvas.text(middle, str(int(value)), 16, ink)
    for i in np.flatnonzero(bits != goal):
        canvas.circle((label + (i + 0.5) * CELL, 12 + 1.5 * CELL), 6, drawing.RED)
    return canvas.pixels()
