"""Driver: starts the trials of a sweep, prunes them, and confirms the best ones."""

from __future__ import annotations

import contextlib
import math
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rlcli.errors import RlcliError
from rlcli.runs.run_folder import Run
from rlcli.sweeps import layout
from rlcli.sweeps.jobs import (
    SIGNALLED,
    STATUS_OF_SIGNALS,
    Engine,
    Job,
    JobEnd,
    JobQueue,
)
from rlcli.sweeps.layout import Settings, SweepFolder
from rlcli.sweeps.objectives import (
    EvaluationReader,
    Objective,
    parse_objective,
    summarize,
)
from rlcli.sweeps.space import Space
from rlcli.sweeps.study import Study, Trial
from rlcli.training.processes import ForwardedSignals

_POLL = 0.05  # seconds between two looks at the processes
_READ = 0.5  # seconds between two looks at the evaluations of a trial
_REPORT = 1.0


class SweepProgress(NamedTuple):
    """How far a sweep is."""

    folder: Path
    objective: Objective
    trials: Sequence[Trial]
    total: int  # trials that the sweep will have
    confirmed: Sequence[int]  # the numbers of the best trials, while they are confirmed
    seconds: float | None  # until the last trial has ended, as far as can be said


Report = Callable[[SweepProgress], None]


class Driver:
    """Runs a sweep from where it stands to its end, or until a signal."""

    def __init__(
        self,
        sweep: SweepFolder,
        settings: Settings,
        space: Space,
        study: Study,
        engine: Engine,
        *,
        deadline: float = math.inf,
        report: Report = lambda progress: None,
    ) -> None:
        self._sweep = sweep
        self._settings = settings
        self._space = space
        self._study = study
        self._objective = parse_objective(settings.objective)
        self._queue = JobQueue(engine)
        self._engine = engine
        self._deadline = deadline
        self._report = report
        self._running: dict[str, _Running] = {}
        self._begun = 0  # trials, also those of earlier processes
        self._durations: list[float] = []
        self._confirmed: list[int] = []
        self._status = ""  # why the sweep stops before its end
        self._reported_at = self._read_at = 0.0

    def run(self) -> str:
        """Returns `finished`, `failed`, `out_of_time`, or the status of a signal."""
        result = self._sweep.read_result()
        self._sweep.write_result(result | {"status": "running"})
        status = "killed"
        try:
            with ForwardedSignals(self._handle):
                states = [each.state for each in self._study.trials()]
                self._begun = len(states) - states.count("waiting")
                for trial in self._study.restore_running():
                    self._begin_trial(trial)
                self._work(self._start_trials, self._end_trial)
                confirmed = self._confirm() if not self._status else []
            status = self._status
            if not status:
                result = _result(confirmed, self._objective)
                status = "finished" if result["winner"] else "failed"
        finally:  # after an error, the runs save a checkpoint
            self._queue.stop_all(signal.SIGTERM)
            self._sweep.write_result(result | {"status": status})
        self._tell(force=True)
        return status

    def _work(self, start: Callable[[], None], end: Callable[[JobEnd], None]) -> None:
        """Starts jobs and waits for them, until none is left."""
        while True:
            start()
            for each in self._queue.advance():
                end(each)
            self._read_rungs()
            self._tell()
            if time.monotonic() > self._deadline and not self._status:
                self._status = "out_of_time"
                self._queue.stop_all(signal.SIGTERM)
            is_done = self._begun >= self._settings.trials
            if self._queue.is_empty and (is_done or self._queue.is_stopping):
                return
            time.sleep(_POLL)

    def _handle(self, number: int) -> None:
        if number in STATUS_OF_SIGNALS:
            self._status = self._status or STATUS_OF_SIGNALS[number]
            self._queue.stop_all(number)
        else:
            self._queue.forward(number)

    def _start_trials(self) -> None:
        while self._queue.has_room and self._begun < self._settings.trials:
            self._begun += 1
            self._begin_trial(self._study.ask())
            for each in self._queue.advance():
                self._end_trial(each)

    def _begin_trial(self, trial: Trial) -> None:
        settings = self._settings
        folder = self._sweep.trial(trial.number)
        sets = self._space.settings(trial.values)
        arguments = layout.trial_arguments(
            settings, folder, sets, settings.seed, settings.seeds
        )
        key = f"trial {trial.number}"
        reader = EvaluationReader(folder, settings.seeds)
        running = _Running(trial.number, reader, max(trial.rungs, default=0))
        running.pruned_at = trial.notes.get("pruned_at")
        self._running[key] = running
        job = Job(key, folder, arguments)
        if running.pruned_at is not None:  # it was about to be stopped
            self._end_trial(JobEnd(job, SIGNALLED, ""))
        else:
            self._queue.submit(job)

    def _read_rungs(self) -> None:
        """Compares running trials after each evaluation, and stops those to prune."""
        if time.monotonic() - self._read_at < _READ:
            return
        self._read_at = time.monotonic()
        for job in self._queue.running:
            running = self._running.get(job.key)
            if running is None or running.pruned_at is not None:
                continue
            step = None
            with contextlib.suppress(RlcliError):  # `_end_trial` records it
                step = self._report_rungs(running)
            if step is not None and step < _total_steps(job):
                running.pruned_at = step
                self._study.note(running.number, pruned_at=step)
                self._queue.stop(job.key)

    def _report_rungs(self, running: _Running) -> int | None:
        """Reports new evaluations; the step of one after which to prune, else None."""
        evaluations = running.reader.read()
        for count, each in enumerate(evaluations, 1):
            if each.step <= running.reported:
                continue
            running.reported = each.step
            value = self._objective.rung(evaluations[:count])
            if self._study.report(running.number, each.step, value):
                return each.step
        return None

    def _end_trial(self, end: JobEnd) -> None:
        """Records how a trial has ended, unless it will be continued."""
        running = self._running[end.job.key]
        is_pruned = end.status == SIGNALLED and running.pruned_at is not None
        if end.status == SIGNALLED and not is_pruned:
            return  # it stays a running trial for `--resume`
        del self._running[end.job.key]
        number, evaluations = running.number, []
        try:
            while self._report_rungs(running) is not None:
                pass  # it has ended: all its rungs are recorded
            evaluations = running.reader.read()
        except RlcliError as error:
            end = end._replace(status="crashed", message=error.message)
        self._durations.append(time.monotonic() - running.begin)
        if is_pruned:
            self._study.end(number, "pruned")
            return
        has_failed = end.status in ("failed", "crashed")
        if has_failed and _is_frozen(end.job, self._settings.seeds):
            values = [self._objective.worst] * self._settings.seeds
            self._study.note(number, reason=end.message, seeds=values)
            self._study.end(number, "complete", self._objective.worst)
        elif has_failed or not evaluations:
            reason = end.message or "the run has no evaluation"
            self._study.note(number, reason=reason)
            self._study.end(number, "failed")
        else:
            summary = summarize(self._objective.measure(evaluations), self._objective)
            self._study.note(number, seeds=summary["seeds"], ci95=summary["ci95"])
            self._study.end(number, "complete", summary["value"])

    def _confirm(self) -> list[dict[str, Any]]:
        """The best trials with their results on other seeds; without, as they are."""
        settings = self._settings
        best = rank(self._study.trials(), self._objective)
        if not settings.confirm:
            return [
                _entry(trial, self._sweep.trial(trial.number)) for trial in best[:1]
            ]
        best = best[: settings.confirm]
        self._confirmed = [trial.number for trial in best]
        first = layout.first_confirmed_seed(settings)
        for trial in best:
            folder = self._sweep.confirmation(trial.number)
            sets = self._space.settings(trial.values)
            arguments = layout.trial_arguments(
                settings, folder, sets, first, settings.confirm_seeds
            )
            self._queue.submit(Job(f"confirm {trial.number}", folder, arguments))
        failed: set[Path] = set()

        def end(job_end: JobEnd) -> None:
            if job_end.status not in ("finished", "stopped"):
                failed.add(job_end.job.folder)

        self._work(lambda: None, end)
        entries = []
        for trial in best:
            folder = self._sweep.confirmation(trial.number)
            evaluations = EvaluationReader(folder, settings.confirm_seeds).read()
            if evaluations and folder not in failed:
                values = self._objective.measure(evaluations)
                notes = summarize(values, self._objective)
                entries.append(_entry(trial, folder) | notes)
        return entries

    def _tell(self, *, force: bool = False) -> None:
        if not force and time.monotonic() - self._reported_at < _REPORT:
            return
        self._reported_at = time.monotonic()
        trials = self._study.trials()
        left = self._settings.trials - len(trials) + len(self._running)
        seconds = None
        if self._durations and left > 0:
            mean = sum(self._durations) / len(self._durations)
            seconds = mean * math.ceil(left / self._engine.jobs)
        self._report(
            SweepProgress(
                self._sweep.folder,
                self._objective,
                trials,
                self._settings.trials,
                self._confirmed,
                seconds,
            )
        )


class _Running:
    """A trial that has not ended."""

    def __init__(self, number: int, reader: EvaluationReader, reported: int) -> None:
        self.number = number
        self.reader = reader
        self.reported = reported  # the step of the last rung
        self.begin = time.monotonic()
        self.pruned_at: int | None = None


def _total_steps(job: Job) -> float:
    """The steps of a run; infinite if they are unknown."""
    return Run(job.folder).read_info().get("total_steps") or math.inf


def _is_frozen(job: Job, seeds: int) -> bool:
    """Whether all seeds of a run are frozen."""
    return len(Run(job.folder).read_info().get("frozen") or ()) == seeds


def rank(trials: Sequence[Trial], objective: Objective) -> list[Trial]:
    """The complete trials with a finite value, best first."""
    sign = -1 if objective.is_maximized else 1
    complete = [
        (sign * trial.value, trial.number, trial)
        for trial in trials
        if trial.state == "complete"
        and trial.value is not None
        and math.isfinite(trial.value)
    ]
    return [trial for *_, trial in sorted(complete, key=lambda each: each[:2])]


def _entry(trial: Trial, folder: Path) -> dict[str, Any]:
    """A trial in the result of a sweep."""
    return {
        "trial": trial.number,
        "options": trial.values,
        "run": str(Path(folder.parent.name) / folder.name),  # within the sweep's folder
        "trial_value": trial.value,
        "value": trial.value,
        "ci95": trial.notes.get("ci95"),
        "seeds": trial.notes.get("seeds"),
    }


def _result(confirmed: list[dict[str, Any]], objective: Objective) -> dict[str, Any]:
    """What `result.json` says: the confirmed trials, best first, and the winner."""
    sign = -1 if objective.is_maximized else 1
    ranked = sorted(confirmed, key=lambda each: (sign * each["value"], each["trial"]))
    winner = next((each for each in ranked if math.isfinite(each["value"])), None)
    return {"winner": winner, "confirmed": ranked}
