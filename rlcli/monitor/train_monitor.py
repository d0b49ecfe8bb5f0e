"""Train monitor: a Gymnasium wrapper that logs episodes, for custom training loops."""

import math
import sys
import time
from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium.utils import RecordConstructorArgs

from rlcli.monitor.lines import LEADING_FIELDS, format_row


class TrainMonitor(gymnasium.Wrapper, RecordConstructorArgs):
    """A Gymnasium wrapper that logs episodes, for custom training loops.

    At the end of each episode it prints a line to stderr, like coax's wrapper of the
    same name:

        [TrainMonitor|INFO] ep: 102, T: 9,953, G: 200, avg_r: 1, avg_G: 195, t: 200, …

    `ep` is the number of the episode, `T` the total number of steps, `t` the steps of
    the episode, `G` and `avg_r` the sum and the mean of its rewards, `avg_G` the
    running mean

        avg_G ← avg_G + (G − avg_G) / min(episodes finished, 10)

    and `dt_ms` the milliseconds per step of the episode, including learning.
    """

    def __init__(self, env: gymnasium.Env, *, quiet: bool = False) -> None:
        RecordConstructorArgs.__init__(self, quiet=quiet)
        gymnasium.Wrapper.__init__(self, env)
        self.quiet = quiet
        self.ep = 0
        self.T = 0
        self.avg_G = 0.0
        self._finished = 0
        self._metrics: dict[str, list[float]] = {}
        self._begin()

    @property
    def avg_r(self) -> float:
        """The mean reward of the episode; nan before its first step."""
        return self.G / self.t if self.t else math.nan

    @property
    def dt_ms(self) -> float:
        """Milliseconds per step of the episode; nan before its first step."""
        return 1000.0 * self._elapsed / self.t if self.t else math.nan

    def record_metrics(self, metrics: Mapping[str, Any]) -> None:
        """Adds the means of numbers, such as losses, to the next line."""
        if not isinstance(metrics, Mapping):
            raise TypeError(f"expected a mapping of metrics, got {type(metrics)}")
        for name, value in metrics.items():
            self._metrics.setdefault(name, []).append(float(value))

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Starts an episode; episodes without a step are not counted."""
        if self.t and not self._is_over:
            self._print()  # an incomplete episode does not enter the average
        if self.t or not self.ep:
            self.ep += 1
        result = self.env.reset(seed=seed, options=options)
        self._begin()
        return result

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Steps the environment, and updates the statistics."""
        result = self.env.step(action)
        self.T += 1
        self.t += 1
        self.G += np.asarray(result[1]).item()  # it may be an array of one number
        self._elapsed = time.perf_counter() - self._start
        self._is_over = bool(result[2] or result[3])
        if self._is_over:
            self._finished += 1
            self.avg_G += (self.G - self.avg_G) / min(self._finished, 10)
            self._print()
        return result

    def _begin(self) -> None:
        self.t = 0
        self.G = 0.0
        self._is_over = False
        self._elapsed = 0.0
        self._start = time.perf_counter()

    def _print(self) -> None:
        if not self.quiet:
            means = {name: float(np.mean(x)) for name, x in self._metrics.items()}
            row = {name: getattr(self, name) for name in LEADING_FIELDS if name != "dt"}
            print(
                format_row(row | {"dt": self.dt_ms} | means),
                file=sys.stderr,
                flush=True,
            )
        self._metrics = {}
