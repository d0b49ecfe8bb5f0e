"""Experiment: the logging, evaluation and checkpoints of one run in training."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from rlcli.evaluation.render import make_film_writer
from rlcli.loop.evaluator import EvaluationResult
from rlcli.loop.progress import Setup
from rlcli.loop.seeds import resize_seeds, take_seeds
from rlcli.recipe import Recipe
from rlcli.runs import checkpoint, snapshots
from rlcli.runs.run_folder import Run
from rlcli.runs.snapshots import BestPolicies, CheckpointContent
from rlcli.runs.statistics import episode_summary
from rlcli.training.experiment.failures import Failures, describe_restarts
from rlcli.training.experiment.log_rows import LogRows, is_due, next_due, reach
from rlcli.training.experiment.program import ALL_SEEDS, Program
from rlcli.training.writing.track_records import RETURNS
from rlcli.training.writing.tracking import build_trackers
from rlcli.types import ArrayTree, Clock
from rlcli.xla import processes


class ChunkReport(NamedTuple):
    """The results of a chunk."""

    iterations: int
    seconds: float
    rows: Sequence[Mapping[str, Any]] = ()
    evaluation: Sequence[Mapping[str, Any]] = ()
    messages: Sequence[str] = ()
    is_checkpoint_due: bool = False
    histograms: Sequence[Mapping[str, np.ndarray]] = ()  # of each seed, for trackers


class Experiment:
    """A run in training: collects the results that are written to its folder.

    Experiments that are trained together share a `program`. `first` is the index of
    this experiment's first seed in the program.
    """

    def __init__(
        self,
        recipe: Recipe,
        setup: Setup,
        program: Program | None = None,
        first: int = 0,
    ) -> None:
        self.recipe = recipe
        self.setup = setup
        self.program = program or Program(recipe, setup)
        self.steps = setup.steps  # of one seed per iteration
        self.iterations = recipe.train.steps // self.steps  # in the whole run
        self.failures = Failures(recipe, setup)
        self.has_reached_stop = False  # whether every seed has reached `train.stop`
        self.best: BestPolicies | None = None
        self.trackers = build_trackers(recipe)
        self.log_rows = LogRows(setup, recipe.train.log.every)
        self._film_writer: Callable[[ArrayTree, Path, int, Clock], None] | None = None
        self._seeds = slice(first, first + len(setup.seeds)) if program else ALL_SEEDS

    @property
    def iteration(self) -> int:
        """Iterations so far."""
        return self.program.iteration

    @property
    def step(self) -> int:
        """Environment steps of one seed so far; exact."""
        return self.program.step

    @property
    def total_steps(self) -> int:
        """Environment steps of one seed in the whole run."""
        return self.iterations * self.steps

    @property
    def updates(self) -> Callable[[int], int]:
        """A function from a number of iterations to the number of updates in them."""
        return self.setup.agent.count_updates

    @property
    def is_finished(self) -> bool:
        """Whether the run has made all its steps."""
        return self.iteration >= self.iterations

    @property
    def failure(self) -> str:
        """Why the run cannot continue; "" if it can."""
        return self.failures.end_reason

    def restore(self, saved: CheckpointContent, best: Path) -> None:
        """Continues from a checkpoint, after the program was restored from it.

        `best` is the file of the best policies, if the run has one.
        """
        faults = take_seeds(self._seeds, self.program.progress.faults)
        self.failures.restore(saved.frozen, processes.fetch(faults)._asdict())
        self.log_rows.restore(self.iteration, saved.metrics)
        if best.is_file():
            shapes = resize_seeds(
                len(self.setup.seeds),
                jax.eval_shape(
                    self.setup.agent.acting, self.program.loop.shapes().agent
                ),
            )
            self.best = snapshots.load_best(best, shapes, self.setup.seeds)

    def acting_state(self) -> ArrayTree:
        """The acting state of the policies, `[seeds, ...]`, on the host."""
        return self.program.acting_state(self._seeds)

    @property
    def _episodes(self) -> np.ndarray:
        """The number of episodes of each seed, `[S]`."""
        episodes = processes.fetch(self.program.progress.statistics.episodes)
        return episodes[self._seeds][: len(self.setup.seeds)]

    def advance(self, max_iterations: int) -> ChunkReport:
        """Runs at most `max_iterations`, up to the next evaluation or checkpoint."""
        (report,) = advance_together([self], max_iterations)
        return report

    def record_chunk(
        self, points: Sequence[int], summary: dict[str, Any], times: tuple
    ) -> ChunkReport:
        """Records a chunk of the program: its log points, its summary, its times.

        `points` begin with the iteration before the chunk.
        """
        summary = take_seeds(self._seeds, summary)
        messages = self.failures.update(summary, self.iteration, self.acting_state)
        restarts = self.setup.environment.restarts(self.program.progress.environment)
        if restarts is not None:
            messages += describe_restarts(restarts)
        rows = self.log_rows.rows(
            points, summary, times, self.failures.frozen, restarts
        )
        period = self.recipe.train.checkpoint.every
        return ChunkReport(
            iterations=points[-1] - points[0],
            seconds=times[1] - times[0],
            rows=rows,
            messages=messages,
            is_checkpoint_due=is_due(
                points[0] * self.steps, points[-1] * self.steps, period
            ),
        )

    def _frozen_field(self, seed: int) -> dict[str, str]:
        """The field that marks the results of a frozen seed; {} for other seeds."""
        reasons = self.failures.reasons
        return {"frozen": reasons[seed]} if seed in reasons else {}

    def record_evaluation(
        self, report: ChunkReport, result: EvaluationResult
    ) -> ChunkReport:
        """Adds an evaluation of the program, and updates the best policies."""
        returns, lengths = result.returns[self._seeds], result.lengths[self._seeds]
        means = returns.mean(axis=1)
        parameters = checkpoint.flatten_tree(self.acting_state())
        self._update_best(means, parameters)
        histograms: list[dict[str, np.ndarray]] = []
        if any(tracker.takes_histograms for tracker in self.trackers.values()):
            histograms = [
                {RETURNS: returns[i]}
                | {f"parameters/{path}": leaf[i] for path, leaf in parameters.items()}
                for i in range(len(self.setup.seeds))
            ]
        stop = self.recipe.train.stop
        if stop is not None and np.all(means[self._is_active] >= stop.return_):
            self.has_reached_stop = True
        rows = [
            {
                "T": self.step,
                "seed": seed,
                "evaluation": episode_summary(returns[i], lengths[i]),
                **self._frozen_field(seed),
            }
            for i, seed in enumerate(self.setup.seeds)
        ]
        return report._replace(evaluation=rows, histograms=histograms)

    def write_film(self, run: Run) -> Path:
        """Films an episode of the greedy policy of the first seed; returns the file."""
        self.program.report_phase("rendering")
        if self._film_writer is None:
            self._film_writer = make_film_writer(self.recipe, self.setup)
        run.make_films_folder()
        film = run.film(self.step)
        index, clock = self.program.evaluation_index, self.program.clock(self._seeds)
        self._film_writer(self.acting_state(), film, index, clock)
        return film

    @property
    def _is_active(self) -> np.ndarray:
        """Whether each seed still learns, so is not frozen, `[S]` bool."""
        return np.array([seed not in self.failures.frozen for seed in self.setup.seeds])

    def _update_best(self, means: np.ndarray, acting: dict[str, np.ndarray]) -> None:
        """Updates the best policy of each seed that is not frozen.

        A mean return that is not finite is worse than any other.
        """
        means = np.where(self._is_active & np.isfinite(means), means, -np.inf)
        episodes = self._episodes
        steps = np.full(len(means), self.step)
        if self.best is None:
            self.best = BestPolicies(means, steps, episodes, acting)
            return
        is_better = means > self.best.returns

        def choose(new: np.ndarray, old: np.ndarray) -> np.ndarray:
            shape = is_better.shape + (1,) * (new.ndim - 1)
            return np.where(is_better.reshape(shape), new, old)

        self.best = BestPolicies(
            choose(means, self.best.returns),
            choose(steps, self.best.steps),
            choose(episodes, self.best.episodes),
            {
                path: choose(leaf, self.best.acting[path])
                for path, leaf in acting.items()
            },
        )

    def save(self, run: Run) -> None:
        """Writes policies and a checkpoint, unless all seeds are frozen.

        The checkpoint is written last: a run that is killed between two of the files
        resumes from an older checkpoint, and reaches the same policies again.
        """
        frozen = self.failures.frozen
        if len(frozen) == len(self.setup.seeds):
            return
        episodes, acting = self._episodes, self.acting_state()
        saved = self.program.checkpoint_arrays(self._seeds)
        # Every process takes part in fetching the arrays; only the first one writes.
        if not processes.is_first():
            return
        self.program.report_phase("writing a checkpoint")
        run.make_checkpoints_folder()
        path = run.checkpoint(self.step)
        index: dict[str, Any] = {"latest": path.name}
        if self.best is not None:
            self._save_best(run.best, self.best)
            index["best"] = {
                str(seed): {
                    "step": int(step),
                    "return": float(mean),
                    **self._frozen_field(seed),
                }
                for seed, step, mean in zip(
                    self.setup.seeds, self.best.steps, self.best.returns, strict=True
                )
            }
        snapshots.save_policy(
            run.policy,
            snapshots.Snapshot(
                recipe=self.recipe,
                seeds=self.setup.seeds,
                steps=(self.step,) * len(self.setup.seeds),
                episodes=tuple(episodes.tolist()),
                returns=(),
                acting=checkpoint.flatten_tree(acting),
                frozen=frozen,
            ),
        )
        snapshots.save_progress(
            path,
            self.recipe,
            self.setup,
            saved,
            self.log_rows.metrics,
            frozen,
        )
        run.write_index(**index)

    def _save_best(self, path: Path, best: BestPolicies) -> None:
        snapshots.save_policy(
            path,
            snapshots.Snapshot(
                recipe=self.recipe,
                seeds=self.setup.seeds,
                steps=tuple(best.steps.tolist()),
                episodes=tuple(best.episodes.tolist()),
                returns=tuple(best.returns.tolist()),
                acting=best.acting,
                frozen=self.failures.frozen,
            ),
        )


def advance_together(
    experiments: Sequence[Experiment], max_iterations: int
) -> list[ChunkReport]:
    """Advances experiments with the same program by at most `max_iterations`.

    The chunk ends at the next evaluation or checkpoint at the latest. The report of an
    experiment that has failed is empty, and its state does not change.
    """
    active = [experiment for experiment in experiments if not experiment.failure]
    first, program = experiments[0], experiments[0].program
    train, steps, before = first.recipe.train, first.steps, program.iteration
    if before:  # the first chunk begins with tracing and compiling, its own phases
        program.report_phase("running")
    periods = (train.evaluate.every, train.checkpoint.every)
    ends = [before + max_iterations, first.iterations]
    ends += [next_due(before, period, steps) for period in periods if period]
    points = first.log_rows.points(before, min(ends))
    summary, times = program.advance(points)
    reports = {
        id(each): each.record_chunk([before, *points], summary, times)
        for each in active
    }
    to_evaluate = [experiment for experiment in active if not experiment.failure]
    end = reach(points[-1], steps, train.steps)
    if to_evaluate and is_due(before * steps, end, train.evaluate.every):
        result = program.evaluate()
        for each in to_evaluate:
            reports[id(each)] = each.record_evaluation(reports[id(each)], result)
    empty = ChunkReport(points[-1] - before, times[1] - times[0])
    return [reports.get(id(each), empty) for each in experiments]
