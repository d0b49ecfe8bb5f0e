"""GridWorld: a map of one's own, with walls, goals and traps, and slippery floors."""

from __future__ import annotations

import numpy as np

from rlcli.environments import drawing
from rlcli.environments.native.grid import maps
from rlcli.environments.native.toy_text import tables
from rlcli.errors import RlcliError
from rlcli.registry import register
from rlcli.types import Environment, Probability

TEXTBOOK = ("...G", ".#.T", "S...")  # Russell and Norvig's world of 4 x 3
STEP, GOAL, TRAP = 1, 2, 3  # the numbers of rewards; 0 is none


@register("environment", "GridWorld-v0", time_limit=100)
def grid_world(
    *,
    layout: tuple[str, ...] = TEXTBOOK,
    success_rate: Probability = 0.8,
    step_reward: float = -0.04,
    goal_reward: float = 1.0,
    trap_reward: float = -1.0,
) -> Environment:
    """Walks over a map to its goal, and into no trap; both terminate the episode.

    Observation: int32, the number of the cell, row by row, walls counted. Actions: 0
    up, 1 right, 2 down, 3 left; walls and edges hold. A move that does not succeed goes
    to the right or left of where it was meant to, both equally likely. The map is, if
    none is given, that of (Russell & Norvig, Artificial Intelligence: A Modern
    Approach, https://aima.cs.berkeley.edu/), where with γ = 1 the start is worth 0.705.

    Args:
        layout: its rows, of `.` (floor), `#` (wall), S (start), G (goal) and T (trap).
            With several starts any of them may be it; with none, any floor.
        success_rate: how likely a move goes as it was meant to.
        step_reward: the reward of every step, …
        goal_reward: … and what one onto the goal has beside it, …
        trap_reward: … or one into a trap.
    """
    letters = maps.parse_map(layout, ".#SGT", TEXTBOOK)
    starts, world = _parse_layout(letters)
    rewards = (0.0, step_reward, step_reward + goal_reward, step_reward + trap_reward)
    return tables.tabular_environment(
        tables.outcome_lookup(world, rewards),
        letters.size,
        starts,
        lambda cell: _draw(letters, cell),
        success_probability=success_rate,
    )


def _parse_layout(letters: np.ndarray) -> tuple[np.ndarray, tables.World]:
    """The cells to start in, and where everything leads."""
    flat = letters.ravel()
    starts = np.flatnonzero(flat == ("S" if "S" in flat else ".")).astype(np.int32)
    if not len(starts):
        raise RlcliError(
            "there is nowhere to start on this map",
            "mark a cell with S; without one, episodes begin on any `.`",
        )
    worth = np.select([flat == "G", flat == "T"], [GOAL, TRAP], STEP)
    successors = maps.successor_cells(letters != "#")
    return starts, tables.slippery_world(successors, worth, np.isin(flat, ["G", "T"]))


def _draw(letters: np.ndarray, cell: int) -> np.ndarray:
    """The map from above, uint8 with a legend; the cells of large maps are smaller."""
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
