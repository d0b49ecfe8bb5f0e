"""Periods: in which iterations a period of environment steps is due.

A period is due in the first iteration that ends at or past each of its multiples. A run
has whole iterations only: the evaluation of a multiple that is past its last iteration,
but not past `train.steps`, is due at the end (`reach`).
"""

from __future__ import annotations


def iteration_at(step: int, steps: int) -> int:
    """The first iteration that ends at or past a step; `steps` are those of one."""
    return -(-step // steps)


def next_due(iteration: int, period: int, steps: int) -> int:
    """The next iteration at whose end a period is due, after `iteration`."""
    return iteration_at((iteration * steps // period + 1) * period, steps)


def is_due(before: int, after: int, period: int | None) -> bool:
    """Whether a period is due between two steps; never if it is None."""
    return bool(period) and before // period < after // period


def reach(iteration: int, steps: int, total: int) -> int:
    """The step that counts as reached after an iteration: at the end of the run all."""
    return total if iteration == total // steps else iteration * steps
