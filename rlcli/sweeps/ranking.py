"""Ranking: the best trials of a sweep, and its result."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rlcli.sweeps.objectives import Objective
from rlcli.sweeps.study import Trial


def rank(trials: Sequence[Trial], objective: Objective) -> list[Trial]:
    """The complete trials with a finite value, best first."""
    sign = -1 if objective.is_maximized else 1
    complete = [
        (sign * trial.value, trial.number, trial)
        for trial in trials
        if trial.state == "complete"
        and trial.value is not None
        and math.isfinite(trial.value)
    ]
    return [trial for *_, trial in sorted(complete, key=lambda each: each[:2])]


def describe_entry(trial: Trial, folder: Path) -> dict[str, Any]:
    """A trial in the result of a sweep."""
    return {
        "trial": trial.number,
        "options": trial.values,
        "run": str(Path(folder.parent.name) / folder.name),  # within the sweep's folder
        "trial_value": trial.value,
        "value": trial.value,
        "ci95": trial.notes.get("ci95"),
        "seeds": trial.notes.get("seeds"),
    }


def find_winner(
    confirmed: list[dict[str, Any]], objective: Objective
) -> dict[str, Any]:
    """What `result.json` says: the confirmed trials, best first, and the winner."""
    sign = -1 if objective.is_maximized else 1
    ranked = sorted(confirmed, key=lambda each: (sign * each["value"], each["trial"]))
    winner = next((each for each in ranked if math.isfinite(each["value"])), None)
    return {"winner": winner, "confirmed": ranked}
