"""Objectives: the score of a trial, an interquartile mean (IQM) over its seeds.

Of each seed:

| objective | value |
|---|---|
| `return` | the mean return of the last evaluation |
| `evaluation.success` | another number of it, such as a success rate |
| `auc` | the mean over training of that mean return (area under the curve) |
| `steps_to:475` | the steps until an evaluation first reaches 475; inf if none does |

A frozen seed has the worst value, -inf (inf steps). The IQM ignores the worst quarter
of the seeds, so it tolerates one such seed of four to seven; with more, it is infinite
itself.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from rlcli.errors import RlcliError, quote, suggest
from rlcli.runs import statistics
from rlcli.runs.metrics import FILE_NAME, MetricsReader
from rlcli.runs.statistics import bounded_iqm

RETURN, AUC, STEPS_TO = "return", "auc", "steps_to"
_NUMBER = "evaluation."  # the prefix of a number of an evaluation


class Objective(NamedTuple):
    """The objective of a sweep, to maximize or minimize."""

    kind: str
    threshold: float = 0.0  # of `steps_to`
    number: str = "mean"  # of an evaluation: the mean return

    @property
    def is_maximized(self) -> bool:
        """Whether more is better: returns, not steps."""
        return self.kind != STEPS_TO

    @property
    def worst(self) -> float:
        """The value of a seed that has failed."""
        return -math.inf if self.is_maximized else math.inf

    def __str__(self) -> str:
        if self.number != "mean":
            return f"{_NUMBER}{self.number}"
        return f"{self.kind}:{self.threshold:g}" if self.kind == STEPS_TO else self.kind

    def measure(self, evaluations: Sequence[Evaluation]) -> list[float]:
        """The value of each seed after these evaluations."""
        steps = np.array([each.step for each in evaluations], np.float64)
        returns = np.array([each.returns for each in evaluations])  # [evaluations, S]
        if self.kind == RETURN:
            values = returns[-1]
        elif self.kind == AUC:
            values = _area(steps, returns)
        else:
            reached = returns >= self.threshold
            first = steps[reached.argmax(axis=0)]
            values = np.where(reached.any(axis=0), first, math.inf)
        return [float(value) for value in values]

    def rung(self, evaluations: Sequence[Evaluation]) -> float:
        """The value by which trials are compared and pruned after an evaluation.

        The objective so far; for `steps_to`, how far the return is below its threshold.
        """
        if self.kind == STEPS_TO:
            returns = np.array(evaluations[-1].returns)
            return bounded_iqm(self.threshold - returns, worst=math.inf)
        return bounded_iqm(self.measure(evaluations), worst=self.worst)


class Evaluation(NamedTuple):
    """The number of each seed in an evaluation; -inf of frozen seeds."""

    step: int
    returns: list[float]


def parse_objective(text: str) -> Objective:
    """Reads `return`, `auc`, `steps_to:475` or `evaluation.success`."""
    if text.startswith(_NUMBER) and text != _NUMBER:
        return Objective(RETURN, number=text.removeprefix(_NUMBER))
    kind, colon, number = text.partition(":")
    if kind == STEPS_TO:
        try:
            threshold = float(number)
        except ValueError:
            threshold = math.nan
        if not math.isfinite(threshold):
            raise RlcliError(
                f"the objective {quote(text)} has no return to reach",
                "for example `--objective steps_to:475`",
            )
        return Objective(STEPS_TO, threshold)
    if colon or kind not in (RETURN, AUC):
        hint = suggest(kind, (RETURN, AUC, f"{STEPS_TO}:475", f"{_NUMBER}success"))
        raise RlcliError(f"there is no objective {quote(text)}", hint)
    return Objective(kind)


def summarize(values: Sequence[float], objective: Objective) -> dict[str, Any]:
    """The IQM over seeds with its 95 % bootstrap interval, and the values.

    There is no interval for a single seed, or if a seed has failed.
    """
    has_interval = len(values) > 1 and all(map(math.isfinite, values))
    return {
        "value": bounded_iqm(values, worst=objective.worst),
        "ci95": list(statistics.bootstrap_ci95(values)) if has_interval else None,
        "seeds": [*values],
    }


class EvaluationReader:
    """Reads the evaluations of a run while another process appends to them."""

    def __init__(self, folder: Path, seeds: int, number: str = "mean") -> None:
        """`number` is that of the objective."""
        self._folder, self._number = folder, number
        self._seeds = seeds
        self._restart()

    def _restart(self) -> None:
        self._reader = MetricsReader(self._folder)
        self._rows: dict[int, dict[int, float]] = {}

    def read(self) -> list[Evaluation]:
        """All evaluations of which every seed is there."""
        rows = self._reader.read()
        if rows is None:  # a resume has removed rows
            self._restart()
            rows = self._reader.read() or []
        for row in rows:
            if isinstance(row.get("evaluation"), Mapping):
                if type(row.get("seed")) is not int:
                    path = self._folder / FILE_NAME
                    raise RlcliError(
                        f"`{path}` is damaged: a row has no `seed`, at step {row['T']}"
                    )
                self._rows.setdefault(row["T"], {})[row["seed"]] = self._value(row)
        return [
            Evaluation(step, [value for _, value in sorted(by_seed.items())])
            for step, by_seed in sorted(self._rows.items())
            if len(by_seed) == self._seeds
        ]

    def _value(self, row: Mapping[str, Any]) -> float:
        numbers = row["evaluation"]
        if self._number not in numbers and self._number != "mean":
            raise RlcliError(
                f"the evaluations of `{self._folder}` have no {quote(self._number)}",
                f"{suggest(self._number, numbers)}; `environment.info` names what "
                "only some episodes report",
            )
        value = numbers.get(self._number)
        is_sound = "frozen" not in row and isinstance(value, int | float)
        return float(value) if is_sound else -math.inf


def _area(steps: np.ndarray, returns: np.ndarray) -> np.ndarray:
    """The mean return of each seed over all steps, `[S]`."""
    if len(steps) == 1:
        return returns[0]
    with np.errstate(invalid="ignore"):
        area = np.trapezoid(returns, steps, axis=0) / (steps[-1] - steps[0])
    return np.where(np.isfinite(returns).all(axis=0), area, -math.inf)
