"""FrozenLake: walk over the ice from the start to the goal, and avoid the holes."""

import functools
from typing import Literal

import numpy as np

from rlcli.environments import drawing
from rlcli.environments.native.toy_text import tabular
from rlcli.errors import RlcliError
from rlcli.registry import register
from rlcli.types import Core, Probability

SMALL = ("SFFF", "FHFH", "FFFH", "HFFG")  # Gymnasium's 4x4
LARGE = (
    *("SFFFFFFF", "FFFFFFFF", "FFFHFFFF", "FFFFFHFF"),
    *("FFFHFFFF", "FHHFFFHF", "FHFFHFHF", "FFFHFFFG"),
)  # Gymnasium's 8x8
MOVES = ((0, -1), (1, 0), (0, 1), (-1, 0))  # rows and columns: left, down, right, up
Lake = Literal["4x4", "8x8"] | tuple[str, ...]


@register("environment", "FrozenLake-v1", time_limit=100)
def frozen_lake(
    *,
    lake: Lake = "4x4",
    slippery: bool = True,
    success_rate: Probability = 1 / 3,
    goal_reward: float = 1.0,
    hole_reward: float = 0.0,
    ice_reward: float = 0.0,
) -> Core:
    """Walks on a frozen lake: reward 1 for reaching the goal, else 0.

    Observation: int32, the index of the cell in row-major order. Actions: 0 left, 1
    down, 2 right, 3 up; edges block. The episode terminates in a hole or at the goal.
    The dynamics are Gymnasium's (Towers et al., 2024,
    https://arxiv.org/abs/2407.17032).

    Args:
        lake: `4x4`, `8x8`, or the rows of a map, with the letters S (start), F (ice), H
            (hole) and G (goal). With several S, an episode begins in a random one.
        slippery: whether a move may slip to either side of its direction.
        success_rate: the probability that a move on slippery ice goes in its direction.
        goal_reward: the reward of a step onto the goal.
        hole_reward: the reward of a step into a hole.
        ice_reward: the reward of any other step.
    """
    rows = {"4x4": SMALL, "8x8": LARGE}[lake] if isinstance(lake, str) else lake
    starts, world = _parse_lake(rows)
    rewards = 0.0, goal_reward, hole_reward, ice_reward
    draw, success = functools.partial(_draw, rows), success_rate if slippery else None
    return tabular.tabular_environment(world, rewards, starts, draw, success)


@register("environment", "FrozenLake8x8-v1", time_limit=200)
def frozen_lake_8x8(
    *,
    slippery: bool = True,
    success_rate: Probability = 1 / 3,
    goal_reward: float = 1.0,
    hole_reward: float = 0.0,
    ice_reward: float = 0.0,
) -> Core:
    """Walks on the larger lake: FrozenLake-v1 on the map `8x8`, twice the time limit.

    Observation: int32, the index of the cell in row-major order. Actions: 0 left, 1
    down, 2 right, 3 up; edges block. Reward 1 for reaching the goal, else 0. The
    episode terminates in a hole or at the goal. As in Gymnasium.

    Args:
        slippery: whether a move may slip to either side of its direction.
        success_rate: the probability that a move on slippery ice goes in its direction.
        goal_reward: the reward of a step onto the goal.
        hole_reward: the reward of a step into a hole.
        ice_reward: the reward of any other step.
    """
    return frozen_lake(
        lake="8x8",
        slippery=slippery,
        success_rate=success_rate,
        goal_reward=goal_reward,
        hole_reward=hole_reward,
        ice_reward=ice_reward,
    )


@register("environment", "FrozenLakeNonSlippery-v0", time_limit=20)
def frozen_lake_non_slippery(
    *, lake: tuple[str, ...] = SMALL, slippery: bool = False
) -> Core:
    """Walks on a frozen lake without slipping: reward 1 for reaching the goal, else 0.

    FrozenLake-v1 with `slippery: false` and a fifth of the time limit. Observation:
    int32, the index of the cell in row-major order. Actions: 0 left, 1 down, 2 right, 3
    up; edges block. The episode terminates in a hole or at the goal. The dynamics are
    Gymnasium's.

    Args:
        lake: the rows of a map, with the letters S (start), F (ice), H (hole) and G
            (goal).
        slippery: whether a move goes in its direction or to either side, with
            probability 1/3 each.
    """
    return frozen_lake(lake=lake, slippery=slippery)


def _parse_lake(lake: tuple[str, ...]) -> tuple[np.ndarray, tabular.World]:
    """The initial cells and the transitions of a map, or an `RlcliError`."""
    flat = tabular.parse_map(lake, "SFHG", SMALL).ravel()
    if "S" not in flat:
        hint = f"a map is a list of rows, such as {list(SMALL)}"
        raise RlcliError("a lake needs a start S, but this one has none", hint)
    worth = np.select([flat == "G", flat == "H"], [1, 2], 3)
    successors = tabular.grid_moves(len(lake), len(lake[0]), MOVES)
    starts = np.flatnonzero(flat == "S").astype(np.int32)
    return starts, tabular.slippery_world(successors, worth, np.isin(flat, ["G", "H"]))


def _draw(lake: tuple[str, ...], walker: int) -> np.ndarray:
    """Draws the map from above with the agent, uint8 `[100 rows, 100 columns, 3]`.

    Large maps have smaller cells.
    """
    columns = len(lake[0])
    cell = min(100, max(20, 640 // max(columns, len(lake))))
    canvas = drawing.Canvas(columns * cell, len(lake) * cell, "#b9d3e3")
    for number, letter in enumerate("".join(lake)):
        corner = (number % columns * cell, number // columns * cell)
        _draw_cell(canvas, corner, letter, cell)
    x, y = (walker % columns + 0.5) * cell, (walker // columns + 0.5) * cell
    is_in_hole = "".join(lake)[walker] == "H"
    canvas.walker((x, y), cell, drawing.GREY if is_in_hole else drawing.RED)
    return canvas.pixels()


def _draw_cell(
    canvas: drawing.Canvas, corner: drawing.Point, letter: str, cell: int
) -> None:
    left, top = corner
    share = cell / 100
    ice = "#f6e3b0" if letter == "G" else "#eaf4fa"
    canvas.box((left + 1, top + 1), cell - 2, cell - 2, ice, radius=6 * share)
    if letter == "H":
        centre = (left + 0.54 * cell, top + 0.54 * cell)
        canvas.circle(centre, 0.38 * cell, "#9dbdd1")
        canvas.circle(centre, 0.34 * cell, "#234863")
    if letter == "G":
        canvas.flag((left + 0.64 * cell, top + 0.84 * cell), 0.68 * cell)
    colour = "#8fb3c9" if letter in "FH" else drawing.INK
    text_corner = (left + 10 * share, top + 8 * share)
    canvas.text(text_corner, letter, 15 * share, colour, anchor="la")
