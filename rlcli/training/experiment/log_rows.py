"""Log rows: builds the rows of `metrics.jsonl` from the log of the program.

A period of environment steps is due in the first iteration that ends at or past each
of its multiples. A run has whole iterations only: the evaluation of a multiple that is
past its last iteration, but not past `train.steps`, is due at the end (`reach`).
"""

import itertools
import time
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from rlcli import schedules
from rlcli.assembly.numbers import scheduled_values, with_numbers
from rlcli.environments.adapters.restarting import Restarts
from rlcli.loop.episode_statistics import EpisodeStatistics, count_successes
from rlcli.loop.log import MAX_LOG_POINTS, Log
from rlcli.loop.progress import Setup
from rlcli.recipe import Recipe
from rlcli.runs.frozen import FrozenSeeds
from rlcli.runs.statistics import statistics_row
from rlcli.types import Array, Clock


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


class LogRows:
    """Chooses the log points of each chunk, and builds their rows, one per seed."""

    def __init__(self, setup: Setup, period: int | None) -> None:
        """`period` is the number of steps between two log points, if there are any."""
        self.metrics: dict[str, np.ndarray] = {}  # of the last update, `[S]` each
        self.max_points = MAX_LOG_POINTS  # of a chunk
        self.options: Mapping[str, float] = {}  # that a population changes
        self._setup = setup
        self._period = period
        # The iteration of the last log point, which may be before a resume.
        self._last_point = 0
        # Speeds are measured from here: the iteration and the time of the last log
        # point, or of the end of the first chunk in this process. That one compiles, so
        # its rows have no speeds.
        self._speed_start: tuple[int, float] | None = None

    def restore(self, iteration: int, metrics: Mapping[str, np.ndarray]) -> None:
        """Continues from a checkpoint."""
        self.metrics = dict(metrics)
        steps = self._setup.steps_per_iteration
        if self._period:
            multiple = iteration * steps // self._period * self._period
            self._last_point = iteration_at(multiple, steps)

    def points(self, iteration: int, end: int) -> list[int]:
        """The iterations after which a chunk writes a row: log points, and its end.

        The chunk ends before `end` if there are more than `max_points`.
        """
        points = [iteration]
        while points[-1] < end and len(points) <= self.max_points:
            next_point = end
            if self._period:
                next_point = next_due(
                    points[-1], self._period, self._setup.steps_per_iteration
                )
            points.append(min(next_point, end))
        return points[1:] or [end]

    def rows(
        self,
        points: Sequence[int],
        summary: Mapping[str, Any],
        times: tuple[float, float],
        frozen: FrozenSeeds,
        restarts: Restarts | None = None,
    ) -> list[dict[str, Any]]:
        """Returns the rows of a chunk, and stores its last metrics in `self.metrics`.

        `points` begin with the iteration before the chunk. `summary` has the `log` and
        the options of the `policy`, `[S, R]` each. `times` are the start and the end of
        the chunk: its iterations are assumed to take equally long.
        """
        rows, updates = [], self._setup.agent.count_updates
        steps = self._setup.steps_per_iteration

        def rows_at(point: int, index: int, point_time: float) -> list[dict[str, Any]]:
            """The rows of a log point; `index` is its row in the log."""
            has_learned = updates(point) > updates(self._last_point)
            timing = self._timing(point, point_time)
            self._last_point = point
            statistics = summary["log"].statistics._asdict()
            step, since = point * steps, (points[-1] - point) * self._setup.unroll
            counts = [] if restarts is None else restarts.counts_before(since).tolist()
            found = []
            for seed_index, seed in enumerate(self._setup.seeds):
                row: dict[str, Any] = {"T": step, "seed": seed}
                row |= statistics_row(statistics, (seed_index, index))
                row["updates"] = updates(point)
                for name, values in summary["policy"].items():
                    row[name] = float(values[seed_index, index])
                row |= self.options
                if has_learned:
                    row |= {k: float(v[seed_index]) for k, v in self.metrics.items()}
                if seed in frozen and step >= frozen[seed].step:
                    row["frozen"] = frozen[seed].reason
                row |= timing
                if counts and counts[seed_index]:
                    row["restarts"] = counts[seed_index]
                found.append(row)
            return found

        for index, (before, point) in enumerate(itertools.pairwise(points)):
            if updates(point) > updates(before):
                metrics = summary["log"].metrics
                self.metrics = {key: leaf[:, index] for key, leaf in metrics.items()}
            if is_due(before * steps, point * steps, self._period):
                fraction = (point - points[0]) / (points[-1] - points[0])
                point_time = times[0] + fraction * (times[1] - times[0])
                rows += rows_at(point, index, point_time)
        if self._speed_start is None:
            self._speed_start = points[-1], times[1]
        return rows

    def _timing(self, point: int, point_time: float) -> dict[str, float]:
        """The time of a log point, and the durations and speeds since the last one."""
        now = {"time": time.time() - (time.perf_counter() - point_time)}
        if self._speed_start is None:
            return now
        iteration, start_time = self._speed_start
        self._speed_start = point, point_time
        seconds = max(point_time - start_time, 1e-9)
        updates, seeds = self._setup.agent.count_updates, len(self._setup.seeds)
        steps = (point - iteration) * self._setup.steps_per_iteration
        num_updates = updates(point) - updates(iteration)
        return {
            "dt": 1e3 * seconds / max(steps, 1),
            "steps_per_second": steps * seeds / seconds,
            "updates_per_second": num_updates * seeds / seconds,
            **now,
        }


def policy_options_at(
    recipe: Recipe, setup: Setup, log: Log, iterations: Array, numbers: Array
) -> dict[str, Array]:
    """The values of scheduled options of the policy, and of ε, `[S, R]` each.

    They are those of the action that follows a log point; the options of other parts
    are metrics of the updates, which see an earlier time (`Setup.scheduled`). The names
    are places in the recipe, such as `policy.epsilon`. `iterations` are the iterations
    of the R rows of the log, int32 `[R]`; `numbers` those of `Progress`.
    """

    def values_at(
        iteration: Array, statistics: EpisodeStatistics, numbers: Array
    ) -> dict[str, Array]:
        clock = Clock(
            iteration=iteration,
            steps=iteration.astype(jnp.float32) * setup.steps_per_iteration,
            episodes=statistics.episodes.astype(jnp.float32),
            updates=jnp.int32(0),
            compute_metrics=jnp.bool_(True),
            successes=count_successes(statistics),
        )
        policy = with_numbers(recipe, setup.numbers_by_place(numbers)).policy
        values = scheduled_values({"policy": policy}, clock, recipe)
        options = schedules.evaluate_options(policy.options, clock, recipe.train.steps)
        if "epsilon" in options:  # also without a schedule
            values["policy.epsilon"] = options["epsilon"]
        return jax.tree.map(jnp.asarray, values)

    at_points = jax.vmap(values_at, (0, 0, None))
    at_seeds = jax.vmap(at_points, (None, 0, setup.axes.numbers))
    return at_seeds(iterations, log.statistics, numbers)
