"""Experiment: a training loop with its logging, evaluation and checkpoints."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from rlcli.assembly import check_environment, memory_usage
from rlcli.assembly.out_of_memory import OutOfMemoryError, limit_building, require
from rlcli.assembly.user_errors import explain_user_errors
from rlcli.errors import RlcliError
from rlcli.evaluation.evaluator import make_evaluator
from rlcli.evaluation.render import make_film_writer
from rlcli.loop import make_loop, vmap_seeds
from rlcli.loop.episodes import Evaluator
from rlcli.loop.log import Log, log_points
from rlcli.loop.progress import Progress, Setup, numbers_by_place
from rlcli.loop.seeds import drop_padding
from rlcli.recipe import Recipe
from rlcli.runs import checkpoint, snapshots
from rlcli.runs.run_folder import Run
from rlcli.runs.snapshots import BestPolicies, Saved
from rlcli.runs.statistics import episode_summary
from rlcli.training.failures import Failures
from rlcli.training.log_rows import LogRows
from rlcli.training.periods import is_due, next_due
from rlcli.training.track_records import RETURNS
from rlcli.training.tracking import build_trackers
from rlcli.types import Array, ArrayTree
from rlcli.xla.packing import PackedTree, Packing


class ChunkReport(NamedTuple):
    """The results of a chunk."""

    iterations: int
    seconds: float
    rows: Sequence[Mapping[str, Any]]
    evaluation: Sequence[Mapping[str, Any]]
    messages: Sequence[str]
    is_checkpoint_due: bool
    histograms: Sequence[Mapping[str, np.ndarray]]  # of each seed, for trackers


class Experiment:
    """A run in progress: advances it, and returns what to write to its folder."""

    def __init__(self, recipe: Recipe, setup: Setup) -> None:
        self.recipe = recipe
        self.setup = setup
        self.loop = make_loop(setup)
        self.steps = setup.steps  # of one seed per iteration
        self.iterations = recipe.train.steps // self.steps  # in the whole run
        self.iteration = 0
        self.failures = Failures(recipe, setup)
        self.has_reached_stop = False  # whether every seed has reached `train.stop`
        self.best: BestPolicies | None = None
        self.trackers = build_trackers(recipe)
        self._histograms: Sequence[Mapping[str, np.ndarray]] = ()
        self._film_writer: Callable[[ArrayTree, Path, int], None] | None = None
        self._progress: Progress | None = None
        self.log_rows = LogRows(recipe, setup)
        self._packed_summary = jax.jit(self._pack_summary)
        self._packing: Packing | None = None  # of the summary
        self._evaluator: Evaluator | None = None
        self.memory: Sequence[memory_usage.Item] = ()  # set by `check`
        self.report_phase: Callable[[str], None] = lambda phase: None

    @property
    def step(self) -> int:
        """Environment steps of one seed so far; exact."""
        return self.iteration * self.steps

    @property
    def total_steps(self) -> int:
        """Environment steps of one seed in the whole run."""
        return self.iterations * self.steps

    @property
    def updates(self) -> Callable[[int], int]:
        """A function from a number of iterations to the number of updates in them."""
        return self.setup.agent.updates

    @property
    def is_finished(self) -> bool:
        """Whether the run has made all its steps."""
        return self.iteration >= self.iterations

    @property
    def failure(self) -> str:
        """Why the run cannot continue; "" if it can."""
        return self.failures.ending

    @property
    def progress(self) -> Progress:
        """The current progress of the run."""
        if self._progress is None:
            raise ValueError("expected an experiment that has begun")
        return self._progress

    def check(self) -> Progress:
        """Traces the whole program with shapes only, which detects incompatible parts.

        Refuses a run that needs more memory than available.
        """
        with explain_user_errors(self.recipe):
            check_environment(self.recipe)
        try:
            with limit_building(self.recipe), explain_user_errors(self.recipe):
                shapes = self.loop.shapes()
                self.loop.temporaries()
        except OutOfMemoryError:
            raise
        except RlcliError as error:
            raise self.recipe.locate_error(("updater",), error) from error
        self.memory = memory_usage.run_memory(self.recipe, self.setup, self.loop)
        require("this run", self.memory, self.setup.devices)
        return shapes

    def begin(self) -> None:
        """Starts at step 0."""
        # Waits, so that a failed allocation raises here.
        self._progress = jax.block_until_ready(self.loop.begin())

    def restore(self, snapshot: Saved, best: Path) -> str:
        """Continues from a checkpoint; returns what could not be restored, else ""."""
        self._progress, message = snapshots.restore_progress(snapshot, self.loop)
        self.failures.restore(snapshot.frozen, self.progress.faults._asdict())
        self.iteration = int(self.progress.iteration)
        self.log_rows.restore(self.iteration, snapshot.metrics)
        if best.is_file():
            shapes = jax.eval_shape(self.setup.agent.acting, self.loop.shapes().agent)
            self.best = snapshots.load_best(best, shapes, self.setup.seeds)
        return message

    def acting(self) -> ArrayTree:
        """The acting state of the policies, `[seeds, ...]`, on the host."""
        acting = jax.device_get(self.setup.agent.acting(self.progress.agent))
        return drop_padding(len(self.setup.seeds), acting)

    @property
    def _episodes(self) -> np.ndarray:
        """The number of episodes of each seed, `[S]`."""
        return np.asarray(self.progress.statistics.episodes)[: len(self.setup.seeds)]

    def advance(self, max_iterations: int) -> ChunkReport:
        """Runs at most `max_iterations`, up to the next evaluation or checkpoint."""
        train, before = self.recipe.train, self.iteration
        if before:  # the first iteration traces and compiles first
            self.report_phase("running")
        periods = (train.evaluate.every, train.checkpoint.every)
        ends = [before + max_iterations, self.iterations]
        ends += [next_due(before, period, self.steps) for period in periods if period]
        points = self.log_rows.points(before, min(ends))
        start = time.perf_counter()
        self._progress, log = self.loop.advance(
            self.progress, [point - before for point in points]
        )
        self.iteration = points[-1]
        summary = self._fetch(log, points)
        end = time.perf_counter()
        messages = self.failures.update(summary, self.iteration, self.acting)
        rows = self.log_rows.rows(
            [before, *points], summary, (start, end), self.failures.frozen
        )
        is_evaluation_due, is_checkpoint_due = (
            is_due(before, self.iteration, period, self.steps) for period in periods
        )
        self._histograms = ()
        evaluation = self._evaluate() if is_evaluation_due and not self.failure else []
        return ChunkReport(
            iterations=self.iteration - before,
            seconds=end - start,
            rows=rows,
            evaluation=evaluation,
            messages=messages,
            is_checkpoint_due=is_checkpoint_due,
            histograms=self._histograms,
        )

    def _fetch(self, log: Log, points: Sequence[int]) -> dict[str, Any]:
        """Fetches the summary of a chunk, `_summarize`, as NumPy arrays."""
        # Without the environment, whose state may not be a tree of arrays.
        progress = self.progress._replace(environment=())
        inputs = progress, log, log_points(points)
        if self._packing is None:
            self._packing = Packing(jax.eval_shape(self._summarize, *inputs))
        packed = jax.device_get(self._packed_summary(*inputs))
        return drop_padding(len(self.setup.seeds), self._packing.unpack(packed))

    def _pack_summary(self, *inputs: Any) -> PackedTree:
        """The summary packed into few arrays, because each fetched array has a cost."""
        assert self._packing is not None  # set by `_fetch`
        return self._packing.pack(self._summarize(*inputs))

    def _summarize(
        self, progress: Progress, log: Log, iterations: Array
    ) -> dict[str, Any]:
        """The summary of a chunk: `[P]` each, `[P, R]` for the R rows of its log.

        P is the number of padded seeds.
        """
        agent = self.setup.agent
        seeds = len(self.setup.padded_seeds)
        finite = map(_is_finite, jax.tree.leaves(agent.acting(progress.agent)))
        return {
            "failed": vmap_seeds(agent.failed_at, seeds, (0,), 0)(progress.agent),
            "finite": functools.reduce(jnp.logical_and, finite, jnp.ones(seeds, bool)),
            "faults": progress.faults._asdict(),
            "log": log,
            "settings": self.log_rows.settings(
                log, iterations, numbers_by_place(self.setup, progress.numbers)
            ),
        }

    def _frozen_field(self, seed: int) -> dict[str, str]:
        """The field that marks the results of a frozen seed; {} for other seeds."""
        reasons = self.failures.reasons
        return {"frozen": reasons[seed]} if seed in reasons else {}

    def _evaluate(self) -> list[dict[str, Any]]:
        """Evaluates the greedy policies, and stores the best policy of each seed."""
        self.report_phase("evaluating")
        episodes = self.recipe.train.evaluate.episodes
        if self._evaluator is None:
            self._evaluator = make_evaluator(self.recipe, self.setup, episodes)
        acting = self.acting()
        result = self._evaluator.evaluate(acting, evaluation_index=self.step)
        means = result.returns.mean(axis=1)
        parameters = checkpoint.flatten_tree(acting)
        self._update_best(means, parameters)
        if any(tracker.takes_histograms for tracker in self.trackers.values()):
            self._histograms = [
                {RETURNS: result.returns[i]}
                | {f"parameters/{path}": leaf[i] for path, leaf in parameters.items()}
                for i in range(len(self.setup.seeds))
            ]
        stop = self.recipe.train.stop
        if stop is not None and np.all(means[self._is_active] >= stop.return_):
            self.has_reached_stop = True
        return [
            {
                "T": self.step,
                "seed": seed,
                "evaluation": episode_summary(result.returns[i], result.lengths[i]),
                **self._frozen_field(seed),
            }
            for i, seed in enumerate(self.setup.seeds)
        ]

    def write_film(self, target: Path) -> None:
        """Films an episode of the greedy policy of the first seed."""
        self.report_phase("rendering")
        if self._film_writer is None:
            self._film_writer = make_film_writer(self.recipe, self.setup)
        target.parent.mkdir(exist_ok=True)
        self._film_writer(self.acting(), target, self.step)

    @property
    def _is_active(self) -> np.ndarray:
        """Whether each seed still learns, so is not frozen, `[S]` bool."""
        return np.array([seed not in self.failures.frozen for seed in self.setup.seeds])

    def _update_best(self, means: np.ndarray, acting: dict[str, np.ndarray]) -> None:
        """Updates the best policy of each seed that is not frozen."""
        means = np.where(self._is_active, means, -np.inf)
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
        self.report_phase("writing a checkpoint")
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
                episodes=tuple(self._episodes.tolist()),
                returns=(),
                acting=checkpoint.flatten_tree(self.acting()),
                frozen=frozen,
            ),
        )
        snapshots.save_progress(
            path,
            self.recipe,
            self.setup,
            self.loop,
            self.progress,
            self.log_rows.metrics,
            frozen,
        )
        run.write_index(**index)
        run.prune_checkpoints(self.recipe.train.checkpoint.keep, self.step)

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

    def close(self) -> None:
        """Releases the resources of a host environment."""
        self.loop.close(self.progress)


def _is_finite(leaf: Array) -> Array:
    """Whether all numbers of each seed are finite: `[S, ...]` to `[S]`."""
    return jnp.all(jnp.isfinite(leaf), axis=tuple(range(1, leaf.ndim)))
