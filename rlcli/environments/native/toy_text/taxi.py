"""Taxi: pick up a passenger at one of four stands, and drive to another stand."""

import functools
from typing import NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np

from rlcli.environments import drawing
from rlcli.environments.native.core import native_core
from rlcli.environments.native.toy_text import tabular
from rlcli.registry import register
from rlcli.types import Array, Core, Key, Probability

SIZE = 5
STANDS = (0, 4, 20, 23)  # the cells of red, green, yellow and blue
ABOARD = 4  # the location of a passenger in the taxi
WALLS = (1, 6, 15, 17, 20, 22)  # the cells with a wall on their right
MOVES = ((1, 0), (-1, 0), (0, 1), (0, -1))  # rows and columns: south, north, east, west
ASIDE = ((2, 3), (3, 2), (1, 0), (0, 1))  # the moves to the left and right of each move
PICK_UP, DROP_OFF = 4, 5
REWARDS = (-1.0, -10.0, 20.0)
COST, REFUSED, DELIVERED = range(3)  # indices of `REWARDS`

CELL = 80  # pixels
COLOURS = {"red": "#d9695f", "green": "#6fae7c", "yellow": "#e8cf6a", "blue": "#6d9bd1"}


class TaxiState(NamedTuple):
    """The encoded state, and whether the passenger may change the destination."""

    number: Array  # int32: ((row · 5 + column) · 5 + passenger) · 4 + destination
    fickle: Array  # bool: the first move with the passenger changes the destination


@register("environment", "Taxi-v4", time_limit=200)
@register("environment", "Taxi-v3", time_limit=200)
def taxi(
    *,
    is_rainy: bool = False,
    rainy_probability: Probability = 0.8,
    fickle_passenger: bool = False,
    fickle_probability: Probability = 0.3,
) -> Core:
    """Drives a passenger: reward 20 for delivery, −10 for an illegal action, else −1.

    Observation: int32, ((row · 5 + column) · 5 + passenger) · 4 + destination. The
    stands are 0 red, 1 green, 2 yellow, 3 blue; passenger 4 is in the taxi. Actions: 0
    south, 1 north, 2 east, 3 west, 4 pick up, 5 drop off; walls block. It is illegal to
    pick up where the passenger is not, or to drop off without a passenger or outside
    the stands. An episode begins in a random cell, with the passenger at one stand and
    another stand as destination, and terminates on delivery. From (Dietterich, 2000,
    https://doi.org/10.1613/jair.639), as Gymnasium's Taxi-v4, which adds rain and
    fickle passengers to v3; here both names mean v4.

    Args:
        is_rainy: whether a move may go to the left or right of its direction; a move
            against a wall does not.
        rainy_probability: the probability that a move goes in its direction in the
            rain.
        fickle_passenger: whether the destination may change once, when the taxi first
            moves with the passenger.
        fickle_probability: the probability that an episode has a fickle passenger.
    """
    world = _world() if is_rainy else tabular.intended_outcomes(_world())
    read = tabular.outcome_lookup(world, REWARDS)
    starts = _start_states()

    def begin(key: Key) -> TaxiState:
        start, mood = jax.random.uniform(key, (2,))
        number = tabular.choose_uniformly(start, starts)
        fickle = mood < fickle_probability if fickle_passenger else jnp.asarray(False)
        return TaxiState(number, fickle)

    def draw(key: Key) -> tuple[Array, ...]:
        uniform = jax.random.uniform(key, (2,))
        noise = ()
        if is_rainy:
            noise += (tabular.choose_outcome(uniform[0], rainy_probability),)
        if fickle_passenger:
            other_stands = np.arange(1, 4, dtype=np.int32)
            noise += (tabular.choose_uniformly(uniform[1], other_stands),)
        return noise

    def step(state: TaxiState, action: Array, noise: tuple[Array, ...]) -> tuple:
        number, reward, ends = read(state.number, action, noise[0] if is_rainy else 0)
        fickle = state.fickle
        if fickle_passenger:
            has_moved = number // 20 != state.number // 20
            changes = fickle & (state.number // 4 % 5 == ABOARD) & has_moved
            other_number = number // 4 * 4 + (number + noise[-1]) % 4
            number = jnp.where(changes, other_number, number)
            fickle = fickle & ~changes
        return TaxiState(number, fickle), reward, ends

    def observe(state: TaxiState) -> Array:
        return state.number

    def render(state: TaxiState) -> np.ndarray:
        return _draw(int(state.number))

    observation = gymnasium.spaces.Discrete(SIZE**2 * 20, dtype=np.int32)
    return native_core(begin, step, observe, observation, 6, render=render, draw=draw)


def _decode_states() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The cell, passenger and destination of every state, `[500]` each."""
    number = np.arange(SIZE**2 * 20)
    return number // 20, number // 4 % 5, number % 4


def _start_states() -> np.ndarray:
    _, passenger, destination = _decode_states()
    waiting = (passenger != ABOARD) & (passenger != destination)
    return np.flatnonzero(waiting).astype(np.int32)


def _road_map() -> np.ndarray:
    """The cell that each move leads to, `[25, 4]`, with walls."""
    successors = tabular.grid_moves(SIZE, SIZE, MOVES)
    cells = np.arange(SIZE**2)
    successors[:, 2] = np.where(np.isin(cells, WALLS), cells, successors[:, 2])
    successors[:, 3] = np.where(np.isin(cells - 1, WALLS), cells, successors[:, 3])
    return successors


@functools.cache
def _world() -> tabular.World:
    cell, passenger, destination = _decode_states()
    roads = _road_map()
    is_blocked = roads == np.arange(SIZE**2)[:, None]
    # A move whose intended direction is blocked has no other outcome.
    side_cells = np.where(
        is_blocked[..., None], roads[..., None], roads[:, np.array(ASIDE)]
    )
    moves = np.concatenate([roads[..., None], side_cells], axis=-1)  # [25, 4, 3]
    number = np.arange(len(cell))
    after = np.tile(number[:, None, None], (1, 6, 3))
    after[:, :4] = moves[cell] * 20 + (number % 20)[:, None, None]
    worth = np.full(after.shape, COST)
    ends = np.zeros(after.shape, bool)

    stand = np.array([STANDS.index(place) if place in STANDS else -1 for place in cell])
    boards = (stand == passenger) & (stand >= 0)
    leaves = (passenger == ABOARD) & (stand >= 0)
    arrives = leaves & (stand == destination)
    after[boards, PICK_UP] += ((ABOARD - passenger) * 4)[boards, None]
    after[leaves, DROP_OFF] += ((stand - ABOARD) * 4)[leaves, None]
    worth[~boards, PICK_UP] = worth[~leaves, DROP_OFF] = REFUSED
    worth[arrives, DROP_OFF] = DELIVERED
    ends[arrives, DROP_OFF] = True
    return tabular.World(after, worth, ends)


def _draw(number: int) -> np.ndarray:
    """Draws the town from above, `[460, 420, 3]` uint8, with a legend."""
    cell, passenger, destination = number // 20, number // 4 % 5, number % 4
    edge, side = 10, SIZE * CELL
    canvas = drawing.Canvas(side + 2 * edge, side + 2 * edge + 40)
    canvas.box((edge, edge), side, side, "#e9e8e4", radius=4)

    def corner(place: int) -> drawing.Point:
        return edge + place % SIZE * CELL, edge + place // SIZE * CELL

    for place in range(SIZE**2):
        left, top = corner(place)
        canvas.box((left + 1, top + 1), CELL - 2, CELL - 2, "#f7f6f3", radius=4)
    for stand, colour in zip(STANDS, COLOURS.values(), strict=True):
        left, top = corner(stand)
        canvas.box((left + 1, top + 1), CELL - 2, CELL - 2, colour, radius=4)
    for place in WALLS:
        left, top = corner(place)
        canvas.line((left + CELL, top), (left + CELL, top + CELL), 5, drawing.INK)

    left, top = corner(STANDS[destination])
    canvas.flag((left + 50, top + CELL - 8), CELL - 18)
    if passenger != ABOARD:
        left, top = corner(STANDS[passenger])
        canvas.walker((left + 24, top + CELL / 2), 0.8 * CELL, drawing.INK)
    _draw_taxi(canvas, corner(cell), aboard=passenger == ABOARD)
    aim = {f"to {list(COLOURS)[destination]}": list(COLOURS.values())[destination]}
    canvas.legend((edge + 6, side + 2 * edge + 8), {"taxi": "#f2b632"} | aim)
    return canvas.pixels()


def _draw_taxi(canvas: drawing.Canvas, corner: drawing.Point, aboard: bool) -> None:
    left, top = corner
    for wheel in (20, 54):
        canvas.circle((left + wheel + 3, top + 60), 8, drawing.INK)
    canvas.box((left + 24, top + 22), 32, 24, "#f2b632", radius=7)
    for window in (28, 42):
        fill = drawing.INK if aboard and window == 42 else "#dfeaf2"
        canvas.box((left + window, top + 27), 11, 12, fill, radius=2)
    canvas.box((left + 10, top + 38), 60, 20, "#f2b632", radius=6)
    for square in range(6):
        shade = drawing.INK if square % 2 else drawing.PAPER
        canvas.box((left + 16 + 8 * square, top + 46), 8, 5, shade)
    sign = drawing.GREEN if aboard else drawing.PAPER
    canvas.box((left + 34, top + 16), 12, 7, sign, radius=2)
