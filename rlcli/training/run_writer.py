"""Run writer: writes the results of a run to its folder and its trackers."""

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from rlcli.errors import RlcliError
from rlcli.evaluation.render import make_film_writer
from rlcli.monitor import Monitor
from rlcli.runs import run_folder
from rlcli.runs.metrics import Metrics
from rlcli.training.experiment.experiment import ActiveRun, ChunkReport
from rlcli.training.stopping.signals import Signals
from rlcli.training.tracking.track_records import Results
from rlcli.training.tracking.tracking import Tracking

_MAX_THREADS = 8  # that write checkpoints


class RunWriter:
    """Writes chunks, checkpoints and the end of a run."""

    def __init__(self, member: ActiveRun, rows: Metrics, tracking: Tracking) -> None:
        self._run, self._experiment = member
        self._rows = rows
        self._tracking = tracking
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
        if not report.evaluation or not self._experiment.recipe.train.evaluate.render:
            return {}
        try:
            film = self.film_evaluation()
        except RlcliError as error:  # training does not depend on it
            self._tracking.warn(f"no film of the evaluation: {error.message}")
            return {}
        return {"evaluation/film": film}

    def film_evaluation(self) -> Path:
        """Films the first seed's episode of an evaluation at this step: a file."""
        experiment, program = self._experiment, self._experiment.program
        program.report_phase("rendering")
        write = self._film_writer
        self._run.make_films_folder()
        film = self._run.film(experiment.step)
        index, inputs = program.evaluation_index, program.inputs(experiment.seeds)
        write(experiment.acting_state(), film, index, inputs)
        return film

    @functools.cached_property
    def _film_writer(self) -> Callable[..., None]:
        return make_film_writer(self._experiment.recipe, self._experiment.setup)

    @property
    def has_failed(self) -> bool:
        """Whether the run cannot continue."""
        return bool(self._experiment.failure)

    def save(self) -> None:
        """Writes a checkpoint, unless the run has ended."""
        if not self._has_ended:
            self._rows.sync()
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
