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
from contextlib import AbstractContextManager
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
    """The chunks of a run; records it as failed if it runs out of memory.

    Removes the folder if the run has neither made a step nor saved a checkpoint.
    """
    from rlcli.assembly import out_of_memory

    try:
        with out_of_memory.explain_out_of_memory("this run", experiment.memory):
            yield from chunks
    except out_of_memory.OutOfMemoryError as error:
        if experiment.step == 0 and folder.latest_checkpoint() is None:
            for path in (folder.metrics, folder.log):
                path.unlink(missing_ok=True)
            folder.discard()
        else:
            reason = error.message
            folder.write_info(
                status="failed", reason=reason, ended=run_folder.timestamp()
            )
        raise


def _explain_user_errors(experiment: Experiment) -> AbstractContextManager[None]:
    from rlcli.assembly.user_errors import explain_user_errors  # here: imports JAX

    return explain_user_errors(experiment.recipe)


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
    signals.abandon = functools.partial(_abandon, folder)
    start_step = experiment.step
    deadline = deadline_of(max_time)
    failures = experiment.failures
    folder.write_info(
        status="running",
        reason="",
        hint="",
        frozen=failures.reasons,
        total_steps=experiment.total_steps,
        ended=None,
    )
    resume_at = start_step if folder.latest_checkpoint() is not None else None
    monitor.begin(
        experiment.total_steps,
        experiment.setup.seeds,
        log_path=folder.log,
        start=start_step,
        is_stop_requested=lambda: signals.is_stop_requested,
    )
    experiment.report_phase = monitor.set_phase
    pace = Pace(experiment.updates, experiment.iterations)
    profiler = _profiler(experiment, folder) if profile else None
    advance = profiler.advance if profiler else experiment.advance
    with (
        Metrics(folder.folder, resume_at) as rows,
        _track(folder, experiment, monitor) as tracking,
        Watchdog(monitor.message),
        _record_errors(folder),
        _explain_user_errors(experiment),
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
            monitor.update(report.rows, experiment.step, report.evaluation)
            films = _write_film(folder, experiment, report, tracking)
            tracking.log(
                Results([*report.rows, *report.evaluation], report.histograms, films)
            )
            for report_message in (*report.messages, *tracking.messages()):
                monitor.message(report_message)
            if report.messages:
                folder.write_info(frozen=failures.reasons)
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
        tracking.status = status
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
def _track(folder: Run, experiment: Experiment, monitor: Monitor) -> Iterator[Tracking]:
    """The trackers of the run, which are ended with it, also by an error."""
    recipe, seeds = experiment.recipe, experiment.setup.seeds
    tracking = Tracking(experiment.trackers, folder, recipe, seeds, experiment.step)
    try:
        yield tracking
    finally:
        if experiment.trackers:
            monitor.set_phase("finishing the trackers")
        tracking.finish(experiment.step)
        for message in tracking.messages():
            monitor.message(message)


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
    """Ends the process while it computes; resume continues at the last checkpoint."""
    latest = folder.latest_checkpoint()
    state = f"saved in `{latest.name}`" if latest else "not saved: resume starts over"
    reason = "ended immediately, between two checkpoints"
    with contextlib.suppress(RlcliError):
        folder.write_info(status=status, reason=reason, ended=run_folder.timestamp())
    message = (
        f"stopped immediately; the run is {state}\nnext: {folder.command('resume')}"
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
