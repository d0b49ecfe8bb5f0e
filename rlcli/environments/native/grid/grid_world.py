"""GridWorld: a custom map with walls, goals, traps and slippery floors."""

import numpy as np

from rlcli.environments import drawing
from rlcli.environments.native.grid import maps
from rlcli.environments.native.toy_text import tabular
from rlcli.errors import RlcliError
from rlcli.registry import register
from rlcli.types import Core, Probability

TEXTBOOK = ("...G", ".#.T", "S...")  # Russell and Norvig's world of 4 x 3
STEP, GOAL, TRAP = 1, 2, 3  # indices of rewards; index 0 is a reward of 0


@register("environment", "GridWorld-v0", time_limit=100)
def grid_world(
    *,
    layout: tuple[str, ...] = TEXTBOOK,
    success_rate: Probability = 0.8,
    step_reward: float = -0.04,
    goal_reward: float = 1.0,
    trap_reward: float = -1.0,
) -> Core:
    """Walks over a map to a goal and avoids traps; goals and traps terminate.

    Observation: int32, the index of the cell in row-major order, walls included.
    Actions: 0 up, 1 right, 2 down, 3 left; walls and edges block. A move that fails
    goes to the right or left of its direction, with equal probability. The default map
    is that of (Russell & Norvig, Artificial Intelligence: A Modern Approach,
    https://aima.cs.berkeley.edu/), where the value of the start is 0.705 for γ = 1.

    Args:
        layout: the rows of the map, with the letters `.` (floor), `#` (wall), S
            (start), G (goal) and T (trap). An episode begins in a random S, or without
            any S on a random floor cell.
        success_rate: the probability that a move goes in its direction.
        step_reward: the reward of every step.
        goal_reward: the additional reward of a step into a goal.
        trap_reward: the additional reward of a step into a trap.
    """
    letters = maps.parse_map(layout, ".#SGT", TEXTBOOK)
    starts, world = _parse_layout(letters)
    rewards = (0.0, step_reward, step_reward + goal_reward, step_reward + trap_reward)
    return tabular.tabular_environment(
        tabular.outcome_lookup(world, rewards),
        letters.size,
        starts,
        lambda cell: _draw(letters, cell),
        success_probability=success_rate,
    )


def _parse_layout(letters: np.ndarray) -> tuple[np.ndarray, tabular.World]:
    """The initial cells and the transitions of a map."""
    flat = letters.ravel()
    starts = np.flatnonzero(flat == ("S" if "S" in flat else ".")).astype(np.int32)
    if not len(starts):
        raise RlcliError(
            "this map has no cell to start in",
            "mark a cell with S; without S, episodes begin on a random `.`",
        )
    worth = np.select([flat == "G", flat == "T"], [GOAL, TRAP], STEP)
    successors = maps.successor_cells(letters != "#")
    return starts, tabular.slippery_world(successors, worth, np.isin(flat, ["G", "T"]))


def _draw(letters: np.ndarray, cell: int) -> np.ndarray:
    """Draws the map from above, uint8, with a legend; large maps have smaller cells."""
    flat = letters.ravel()
    kinds = {
        "start": ("S", "#e3e9f3"),
        "goal": ("G", "#dcecdf"),
        "trap": ("T", "#e9b4ae"),
    }
    legend_kinds = {name: kind for name, kind in kinds.items() if kind[0] in flat}
    tints = {
        int(number): colour
        for letter, colour in legend_kinds.values()
        for number in np.flatnonzero(flat == letter)
    }
    side = min(100, max(20, 640 // max(letters.shape)))
    goals = np.flatnonzero(flat == "G").tolist()
    world = maps.draw_map(letters != "#", cell, flags=goals, tints=tints, cell=side)
    legend = drawing.Canvas(world.shape[1], 40)
    legend.legend(
        (12, 12), {name: colour for name, (_, colour) in legend_kinds.items()}
    )
    return np.concatenate([world, legend.pixels()])
