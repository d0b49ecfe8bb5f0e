"""Run loop: advances a run chunk by chunk until it ends.

Between two chunks it writes metrics and checkpoints, and handles signals.
"""

from __future__ import annotations

import atexit
import contextlib
import dataclasses
import functools
import time
import weakref
from collections.abc import Generator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlcli import errors
from rlcli.errors import RlcliError
from rlcli.monitor import Monitor
from rlcli.runs import run_folder
from rlcli.runs.durations import START_TIME, parse_duration
from rlcli.runs.metrics import Metrics
from rlcli.runs.run_folder import Run
from rlcli.terminal import printable
from rlcli.training.pace import Pace
from rlcli.training.signals import Signals, exit_now
from rlcli.training.track_records import Results
from rlcli.training.tracking import Tracking
from rlcli.training.watchdog import Watchdog

if TYPE_CHECKING:
    from rlcli.training.experiment import ChunkReport, Experiment
    from rlcli.training.profile import Profiler

STOP_REACHED = "every seed has reached the return of `train.stop`"


@dataclasses.dataclass(frozen=True)
class Chunk:
    """What `chunks` yields: the progress of the run, metrics and evaluations."""

    run: Path
    step: int  # environment steps of one seed
    rows: Sequence[Mapping[str, Any]]  # of metrics: one per log point and seed
    evaluation: Sequence[Mapping[str, Any]]  # one per seed, after an evaluation
    _experiment: Experiment = dataclasses.field(repr=False)

    @functools.cached_property
    def acting(self) -> Any:
        """The acting state of the policies, `[seeds, ...]`, owned by the caller.

        Fetched on first access, which has to happen before the next chunk.
        """
        if self._experiment.step != self.step:
            raise ValueError(
                f"expected access at step {self.step:,}, before the next chunk, but "
                f"the run is at step {self._experiment.step:,}"
            )
        return self._experiment.acting()


_unfinished: weakref.WeakSet[Generator[Chunk, None, Path]] = weakref.WeakSet()


def close_at_exit(generator: Generator[Chunk, None, Path]) -> None:
    """Ends the run of a generator, with a checkpoint, when the interpreter exits."""
    _unfinished.add(generator)


def _close_unfinished() -> None:
    """Ends the runs of unfinished generators."""
    for generator in [*_unfinished]:
        generator.close()


def run_in_memory(
    folder: Run, experiment: Experiment, chunks: Iterator[Chunk]
) -> Iterator[Chunk]:
    """The chunks of a run; removes its folder if there was no memory for a first step.

    A folder with a step or a checkpoint remains.
    """
    from rlcli.assembly.out_of_memory import OutOfMemoryError  # here: imports JAX

    try:
        yield from chunks
    except OutOfMemoryError:
        if experiment.step == 0 and folder.latest_checkpoint() is None:
            for path in (folder.metrics, folder.log):
                path.unlink(missing_ok=True)
            folder.discard()
        raise


@contextlib.contextmanager
def _explain_errors(experiment: Experiment) -> Iterator[None]:
    """Explains failed allocations, and exceptions of user code."""
    from rlcli.assembly.out_of_memory import explain_out_of_memory  # here: imports JAX
    from rlcli.assembly.user_errors import explain_user_errors

    with (
        explain_out_of_memory("this run", experiment.memory),
        explain_user_errors(experiment.recipe),
    ):
        yield


def _profiler(experiment: Experiment, folder: Run) -> Profiler:
    from rlcli.training.profile import Profiler  # here: imports JAX

    return Profiler(experiment, folder.folder)


def run_chunks(
    folder: Run,
    experiment: Experiment,
    signals: Signals,
    max_time: str | float | None,
    monitor: Monitor,
    *messages: str,
    profile: bool = False,
) -> Iterator[Chunk]:
    """Advances the run to its end, with logs, evaluations and checkpoints."""
    # Called in reverse order of registration: before the exit functions of JAX.
    atexit.unregister(_close_unfinished)
    atexit.register(_close_unfinished)
    deadline = deadline_of(max_time)
    resume_at = _begin(folder, experiment, signals, monitor)
    pace = Pace(experiment.updates, experiment.iterations)
    profiler = _profiler(experiment, folder) if profile else None
    advance = profiler.advance if profiler else experiment.advance
    with (
        Metrics(folder.folder, resume_at) as rows,
        _track(folder, experiment, signals, monitor) as tracking,
        Watchdog(monitor.message),
        _record_errors(folder),
        _explain_errors(experiment),
    ):
        for message in filter(None, messages):
            monitor.message(message)
        while True:
            status, reason = final_status(experiment, signals, deadline)
            if status:
                break
            before = experiment.iteration
            report = advance(pace.size(before))
            pace.measure(before, report.iterations, report.seconds)
            rows.append([*report.rows, *report.evaluation])
            _report_chunk(folder, experiment, report, monitor)
            _track_chunk(folder, experiment, report, tracking, monitor)
            requested = signals.take_save_request()
            if report.is_checkpoint_due or requested or pace.is_slow:
                experiment.save(folder)
            if requested:
                monitor.message(f"checkpoint saved at step {experiment.step:,}")
            try:
                yield Chunk(
                    folder.folder,
                    experiment.step,
                    report.rows,
                    report.evaluation,
                    experiment,
                )
            except GeneratorExit:  # the caller has closed the generator
                status = "stopped"
                reason = f"by its caller, at step {experiment.step:,}"
                break
        if profiler and not profiler.has_ended:
            monitor.message("no profile: the run ended before it could be taken")
        signals.acknowledge()
        experiment.save(folder)
        experiment.close()
        _record_end(folder, experiment, status, reason)
        tracking.status = status


def _begin(
    folder: Run, experiment: Experiment, signals: Signals, monitor: Monitor
) -> int | None:
    """Records that the run begins, and shows it.

    Returns the step at which its metrics are continued; None for a new run.
    """
    folder.write_info(
        status="running",
        reason="",
        hint="",
        frozen=experiment.failures.reasons,
        total_steps=experiment.total_steps,
        ended=None,
    )
    signals.abandon = functools.partial(_abandon, folder)
    monitor.begin(
        experiment.total_steps,
        experiment.setup.seeds,
        log_path=folder.log,
        start=experiment.step,
        is_stop_requested=lambda: signals.is_stop_requested,
    )
    experiment.report_phase = monitor.set_phase
    return experiment.step if folder.latest_checkpoint() is not None else None


def _record_end(folder: Run, experiment: Experiment, status: str, reason: str) -> None:
    """Records how the run has ended."""
    failures = experiment.failures
    if status != "failed":  # whose reason already names the frozen seeds
        reason = "; ".join(filter(None, [reason, failures.summary]))
    folder.write_info(
        status=status,
        reason=reason,
        hint=failures.remedy,
        frozen=failures.reasons,
        ended=run_folder.timestamp(),
    )


@contextlib.contextmanager
def _track(
    folder: Run, experiment: Experiment, signals: Signals, monitor: Monitor
) -> Iterator[Tracking]:
    """The trackers of the run, which are ended with it, also by an error.

    `run.json` already has the final status when the trackers are waited for: a process
    that is killed meanwhile leaves a run that has ended.
    """
    recipe, seeds = experiment.recipe, experiment.setup.seeds
    tracking = Tracking(experiment.trackers, folder, recipe, seeds, experiment.step)
    try:
        yield tracking
        signals.forget_requests()  # the next one ends the wait for the trackers
    finally:
        signals.acknowledge()
        if experiment.trackers:
            monitor.set_phase("finishing the trackers")
        tracking.finish(experiment.step, lambda: signals.is_stop_requested)
        for message in tracking.messages():
            monitor.warn(message)


def _report_chunk(
    folder: Run, experiment: Experiment, report: ChunkReport, monitor: Monitor
) -> None:
    """Shows the results of a chunk, and records the seeds that it has frozen."""
    monitor.update(report.rows, experiment.step, report.evaluation)
    for message in report.messages:
        monitor.message(message)
    if report.messages:
        folder.write_info(frozen=experiment.failures.reasons)


def _track_chunk(
    folder: Run,
    experiment: Experiment,
    report: ChunkReport,
    tracking: Tracking,
    monitor: Monitor,
) -> None:
    """Hands the results of a chunk to the trackers, and shows their warnings."""
    films = _write_film(folder, experiment, report, tracking)
    rows = [*report.rows, *report.evaluation]
    tracking.log(Results(rows, report.histograms, films))
    for message in tracking.messages():
        monitor.warn(message)


def _write_film(
    folder: Run, experiment: Experiment, report: ChunkReport, tracking: Tracking
) -> dict[str, Path]:
    """The film of an evaluation, by its name in trackers, if the recipe wants one."""
    if not report.evaluation or not experiment.recipe.train.evaluate.render:
        return {}
    film = folder.film(experiment.step)
    try:
        experiment.write_film(film)
    except RlcliError as error:  # training does not depend on it
        tracking.warn(f"no film of the evaluation: {error.message}")
        return {}
    return {"evaluation/film": film}


@contextlib.contextmanager
def _record_errors(folder: Run) -> Iterator[None]:
    """Records an error that ends the run, for example one of its environment."""
    try:
        yield
    except RlcliError as error:
        fields = {
            "reason": error.message,
            "hint": error.hint,
            "ended": run_folder.timestamp(),
        }
        with contextlib.suppress(RlcliError):  # for example if the disk is full
            folder.write_info(status="failed", **fields)
        raise


def catch_signals(folder: Run, *, is_resume: bool = False) -> Signals:
    """Signals for this run, which end the process if it cannot react in time.

    A resume that ends before `run_chunks` leaves the run as it was.
    """
    return Signals(functools.partial(_leave if is_resume else _abandon, folder))


def _leave(folder: Run, status: str) -> None:
    """Ends the process before it has changed the run."""
    exit_now(
        errors.EXIT_CODES[status],
        message="stopped immediately; the run is unchanged",
        data=printable(str(folder.folder)),
    )


def _abandon(folder: Run, status: str) -> None:
    """Ends the process while it computes; resume continues at the last checkpoint.

    A run that has ended, and only waits for its trackers, keeps its status.
    """
    latest = folder.latest_checkpoint()
    state = f"saved in `{latest.name}`" if latest else "not saved: resume starts over"
    message = (
        f"stopped immediately; the run is {state}\nnext: {folder.command('resume')}"
    )
    with contextlib.suppress(RlcliError):
        info = folder.read_info()
        if info.get("ended"):
            status = info["status"]
            message = f"stopped waiting for the trackers; the run has ended: {status}"
        else:
            reason = "ended immediately, between two checkpoints"
            folder.write_info(
                status=status, reason=reason, ended=run_folder.timestamp()
            )
    exit_now(
        errors.EXIT_CODES[status],
        message=printable(message),
        data=printable(str(folder.folder)),
    )


def deadline_of(max_time: str | float | None) -> float | None:
    """The monotonic time at which `max_time` is over; None if there is no limit."""
    return None if max_time is None else START_TIME + parse_duration(max_time)


def final_status(
    experiment: Experiment, signals: Signals, deadline: float | None
) -> tuple[str, str]:
    """The status with which the run ends now, and the reason; "" if it continues."""
    if experiment.failure:
        return "failed", experiment.failure
    if experiment.has_reached_stop:
        return "stopped", STOP_REACHED
    if experiment.is_finished:
        return "finished", ""
    if signals.status:
        return signals.status, f"at step {experiment.step:,}"
    if deadline is not None and time.monotonic() >= deadline:
        return "out_of_time", f"at step {experiment.step:,}"
    return "", ""
