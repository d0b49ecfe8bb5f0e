"""Experiment: one run in training: its share of the program, and its checkpoints."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from rlcli.loop.evaluator import EvaluationResult
from rlcli.loop.progress import Setup
from rlcli.loop.seeds import resize_seeds, take_seeds
from rlcli.recipe import Recipe
from rlcli.runs import checkpoint, snapshots
from rlcli.runs.metrics import read_last_rows
from rlcli.runs.run_folder import Run
from rlcli.runs.snapshots import CheckpointContent, Policies
from rlcli.runs.statistics import episode_summary
from rlcli.training.experiment.best_policies import Scores
from rlcli.training.experiment.failures import Failures, describe_restarts
from rlcli.training.experiment.hooks import Hooks
from rlcli.training.experiment.log_rows import LogRows, is_due, next_due, reach
from rlcli.training.experiment.program import ALL_SEEDS, Program
from rlcli.training.tracking.track_records import RETURNS
from rlcli.training.tracking.tracking import build_trackers
from rlcli.types import ArrayTree
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
    """A run in training: its logger, its failures and its scores, chunk by chunk.

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
        # In the whole run.
        self.iterations = recipe.train.steps // setup.steps_per_iteration
        self.failures = Failures(recipe, setup)
        self.scores = Scores(recipe.train.stop or {})
        self.trackers = build_trackers(recipe)
        self.log_rows = LogRows(setup, recipe.train.log.every)
        size = len(setup.seeds)
        is_alone = size == len(self.program.setup.seeds)
        self.seeds = ALL_SEEDS if is_alone else slice(first, first + size)
        self._told = 0  # messages of the environment that were shown
        self.hooks = Hooks(recipe)
        self.numbers: dict[str, float] = {}  # that hooks have set, by their places
        if recipe.train.hooks:  # events are at log points, whatever the speed
            self.log_rows.max_points = 1

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
        return self.iterations * self.setup.steps_per_iteration

    @property
    def is_finished(self) -> bool:
        """Whether the run has made all its steps."""
        return self.iteration >= self.iterations

    @property
    def failure(self) -> str:
        """Why the run cannot continue; "" if it can."""
        return self.failures.end_reason

    def restore(self, saved: CheckpointContent, run: Run) -> None:
        """Continues from a checkpoint, after the program was restored from it.

        A run that was killed at its last step ends there again, see `train.stop`.
        """
        faults = take_seeds(self.seeds, self.program.progress.faults)
        self.failures.restore(saved.frozen, processes.fetch(faults)._asdict())
        self.log_rows.restore(self.iteration, saved.metrics)
        self.hooks.restore(saved.hooks, saved.path)
        self.numbers = dict(saved.numbers)
        if run.best.is_file():
            shapes = resize_seeds(
                len(self.setup.seeds),
                jax.eval_shape(
                    self.setup.agent.acting, self.program.loop.shapes().agent
                ),
            )
            self.scores.best = snapshots.load_best(run.best, shapes, self.setup.seeds)

        if self.recipe.train.stop:
            seeds = len(self.setup.seeds)
            _, rows = read_last_rows(run.folder, seeds, with_evaluation=True)
            if len(rows) == seeds and rows[0]["T"] == self.step:
                numbers = [row["evaluation"] for row in rows]
                self.scores.check_goals(numbers, self._is_active())

    def _is_active(self) -> np.ndarray:
        """Which seeds are not frozen, bool `[S]`."""
        return np.array([seed not in self.failures.frozen for seed in self.setup.seeds])

    def acting_state(self) -> ArrayTree:
        """The acting state of the policies, `[seeds, ...]`, on the host."""
        return self.program.acting_state(self.seeds)

    def policies(self) -> Policies:
        """The current policies, without returns, on the host."""
        size = len(self.setup.seeds)
        episodes = processes.fetch(self.program.progress.statistics.episodes)
        return Policies(
            returns=np.empty(0),
            steps=np.full(size, self.step),
            episodes=episodes[self.seeds][:size],
            acting=checkpoint.flatten_tree(self.acting_state()),
        )

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
        summary = take_seeds(self.seeds, summary)
        messages = self.failures.update(summary, self.iteration, self.acting_state)
        host = self.setup.environment.host
        restarts = host and host.restarts(self.program.progress.environment)
        if restarts is not None:
            messages += describe_restarts(restarts)
        info = host and host.info(self.program.progress.environment)
        if info is not None:
            messages += info.messages[self._told :]
            self._told = len(info.messages)
        rows = self.log_rows.rows(
            points, summary, times, self.failures.frozen, restarts
        )
        period = self.recipe.train.checkpoint.every
        steps = self.setup.steps_per_iteration
        return ChunkReport(
            iterations=points[-1] - points[0],
            seconds=times[1] - times[0],
            rows=rows,
            messages=messages,
            is_checkpoint_due=is_due(points[0] * steps, points[-1] * steps, period),
        )

    def save_checkpoint(self, run: Run) -> None:
        """Writes policies and a checkpoint, unless all seeds are frozen.

        The checkpoint is written last: a run that is killed between two of the files
        resumes from an older checkpoint, and reaches the same policies again.
        """
        recipe, setup, frozen = self.recipe, self.setup, self.failures.frozen
        if len(frozen) == len(setup.seeds):
            return
        latest, best = self.policies(), self.scores.best
        arrays = self.program.checkpoint_arrays(self.seeds)
        # Every process takes part in fetching the arrays; only the first one writes.
        if not processes.is_first():
            return
        self.program.report_phase("writing a checkpoint")
        run.make_checkpoints_folder()
        path = run.checkpoint(self.step)
        index: dict[str, Any] = {"latest": path.name}
        if best is not None:
            index["best"] = {
                str(seed): {
                    "step": int(best.steps[i]),
                    "return": float(best.returns[i]),
                    **self.failures.frozen_field(seed),
                }
                for i, seed in enumerate(setup.seeds)
            }
        for file, policies in ((run.best, best), (run.policy, latest)):
            if policies is not None:
                returns, steps, episodes = (
                    tuple(each.tolist()) for each in policies[:-1]
                )
                content = recipe, setup.seeds, steps, episodes, returns, policies.acting
                snapshots.save_policy(file, snapshots.Snapshot(*content, frozen))
        metrics = self.log_rows.metrics
        hooks = self.hooks.save(), self.numbers
        snapshots.save_progress(path, recipe, setup, arrays, metrics, frozen, *hooks)
        run.write_index(**index)

    def record_evaluation(
        self, report: ChunkReport, result: EvaluationResult
    ) -> ChunkReport:
        """Adds an evaluation of the program, and updates the best policies."""
        returns, lengths = result.returns[self.seeds], result.lengths[self.seeds]
        info = {name: values[self.seeds] for name, values in result.info.items()}
        policies, seeds = self.policies(), self.setup.seeds
        means = returns.mean(axis=1)
        histograms: list[dict[str, np.ndarray]] = []
        if any(tracker.takes_histograms for tracker in self.trackers.values()):
            parameters = policies.acting.items()
            histograms = [
                {RETURNS: returns[i]}
                | {f"parameters/{path}": leaf[i] for path, leaf in parameters}
                for i in range(len(seeds))
            ]
        rows = [
            {
                "T": self.step,
                "seed": seed,
                "evaluation": episode_summary(
                    returns[i], lengths[i], {k: v[i] for k, v in info.items()}
                ),
                **self.failures.frozen_field(seed),
            }
            for i, seed in enumerate(seeds)
        ]
        numbers = [row["evaluation"] for row in rows]
        best = policies._replace(returns=means)
        self.scores.record(best, self._is_active(), numbers)
        messages = [*report.messages, *self.scores.take_messages()]
        return report._replace(
            evaluation=rows, histograms=histograms, messages=messages
        )


class ActiveRun(NamedTuple):
    """A run in training: its folder and its experiment."""

    run: Run
    experiment: Experiment


def advance_together(
    experiments: Sequence[Experiment], max_iterations: int
) -> list[ChunkReport]:
    """Advances experiments with the same program by at most `max_iterations`.

    The chunk ends at the next evaluation or checkpoint at the latest. The report of an
    experiment that has failed is empty, and its state does not change.
    """
    active = [experiment for experiment in experiments if not experiment.failure]
    first, program = experiments[0], experiments[0].program
    train, steps = first.recipe.train, first.setup.steps_per_iteration
    before = program.iteration
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
