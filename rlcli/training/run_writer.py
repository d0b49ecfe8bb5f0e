"""Run writer: writes the results of a run to its folder and its trackers."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from rlcli.errors import RlcliError
from rlcli.monitor import Monitor
from rlcli.runs import run_folder
from rlcli.runs.metrics import Metrics
from rlcli.runs.run_folder import Run
from rlcli.training.stopping.signals import Signals
from rlcli.training.tracking.track_records import Results
from rlcli.training.tracking.tracking import Tracking

if TYPE_CHECKING:
    from rlcli.training.experiment.experiment import ChunkReport, Experiment

_MAX_THREADS = 8  # that write checkpoints


class ActiveRun(NamedTuple):
    """A run in training: its folder and its experiment."""

    run: Run
    experiment: Experiment


class FilmMaker:
    """Films the greedy policy of the first seed of a run."""

    def __init__(self, experiment: Experiment, run: Run) -> None:
        self._experiment = experiment
        self._run = run
        self._write: Callable[..., None] | None = None

    def write(self) -> Path:
        """Films an episode of the evaluation at this step; returns the file."""
        from rlcli.evaluation.render import make_film_writer  # here: imports JAX

        experiment, program = self._experiment, self._experiment.program
        program.report_phase("rendering")
        if self._write is None:
            self._write = make_film_writer(experiment.recipe, experiment.setup)
        self._run.make_films_folder()
        film = self._run.film(experiment.step)
        index, inputs = program.evaluation_index, program.inputs(experiment.seeds)
        self._write(experiment.acting_state(), film, index, inputs)
        return film


class RunWriter:
    """Writes chunks, checkpoints and the end of a run."""

    def __init__(self, member: ActiveRun, rows: Metrics, tracking: Tracking) -> None:
        self._run, self._experiment = member
        self._rows = rows
        self._tracking = tracking
        self._film_maker = FilmMaker(self._experiment, self._run)
        self._has_ended = bool(self._experiment.failure)

    def record(self, report: ChunkReport, monitor: Monitor) -> None:
        """Writes the results of a chunk."""
        if self._has_ended:
            return
        rows = [*report.rows, *report.evaluation]
        self._rows.append(rows)
        if report.messages:
            self._run.write_info(frozen=self._experiment.failures.reasons)
        films = self._write_film(report)
        self._tracking.log(Results(rows, report.histograms, films))
        for message in self._tracking.messages():
            monitor.warn(message)

    def _write_film(self, report: ChunkReport) -> dict[str, Path]:
        """Films an evaluation if the recipe requests it; the file by tracker key."""
        experiment = self._experiment
        if not report.evaluation or not experiment.recipe.train.evaluate.render:
            return {}
        try:
            film = self._film_maker.write()
        except RlcliError as error:  # training does not depend on it
            self._tracking.warn(f"no film of the evaluation: {error.message}")
            return {}
        return {"evaluation/film": film}

    @property
    def has_failed(self) -> bool:
        """Whether the run cannot continue."""
        return bool(self._experiment.failure)

    def save(self) -> None:
        """Writes a checkpoint, unless the run has ended."""
        if not self._has_ended:
            self._experiment.save_checkpoint(self._run)

    def prune(self) -> None:
        """Removes old checkpoints, once all runs trained together have a newer one."""
        experiment = self._experiment
        keep = experiment.recipe.train.checkpoint.keep
        self._run.prune_checkpoints(keep, experiment.step)

    def end(self, status: str, reason: str) -> None:
        """Records how the run has ended, the first time; a failure takes precedence."""
        if self._has_ended:
            return
        self._has_ended = True
        failures = self._experiment.failures
        if failures.end_reason:  # already names the frozen seeds
            status, reason = "failed", failures.end_reason
        else:
            reason = "; ".join(filter(None, [reason, failures.summary]))
        self._run.write_info(
            status=status,
            reason=reason,
            hint=failures.remedy,
            frozen=failures.reasons,
            ended=run_folder.timestamp(),
        )
        self._tracking.status = status


def save_all(writers: Sequence[RunWriter]) -> None:
    """Writes the checkpoints of runs, in parallel because each waits for the disk."""
    if len(writers) <= 1:
        for writer in writers:
            writer.save()
        return
    with ThreadPoolExecutor(min(len(writers), _MAX_THREADS)) as threads:
        for _ in threads.map(RunWriter.save, writers):
            pass


@contextlib.contextmanager
def write_run(
    member: ActiveRun, resume_at: int | None, signals: Signals, monitor: Monitor
) -> Iterator[RunWriter]:
    """Opens the writer of a run; on exit, also after an error, finishes its trackers.

    The final status is in `run.json` before the wait for the trackers begins, so a
    process that is killed during the wait leaves a run that has ended. `resume_at` is
    passed to `Metrics`.
    """
    run, experiment = member
    recipe, seeds = experiment.recipe, experiment.setup.seeds
    with Metrics(run.folder, resume_at) as rows:
        tracking = Tracking(experiment.trackers, run, recipe, seeds, experiment.step)
        try:
            yield RunWriter(member, rows, tracking)
            # The next request ends the wait for the trackers.
            signals.forget_requests()
        finally:
            signals.acknowledge()
            if experiment.trackers:
                monitor.set_phase("finishing the trackers")
            tracking.finish(experiment.step, lambda: signals.is_stop_requested)
            for message in tracking.messages():
                monitor.warn(message)
