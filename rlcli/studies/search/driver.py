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
from rlcli.runs.run_folder import Run, is_run
from rlcli.runs.study_record import Cell, record_study
from rlcli.studies.engines.jobs import ENDED, Engine, Job, JobEnd, JobQueue
from rlcli.studies.search import layout, pbt
from rlcli.studies.search.layout import Settings, SweepFolder
from rlcli.studies.search.objectives import (
    EvaluationReader,
    Objective,
    parse_objective,
    summarize,
)
from rlcli.studies.search.pbt import PBT
from rlcli.studies.search.space import Space
from rlcli.studies.search.trials import Trial, Trials, describe_entry, find_winner, rank
from rlcli.studies.shared_programs import group_cells
from rlcli.training.stopping.signals import SignalReceiver
from rlcli.training.stopping.stops import STATUS_OF_SIGNALS

# Periods of the engine between two reads of evaluations, and between two reports.
_READ = 10
_REPORT = 20
_RESTART = 30.0  # seconds that fewer trials in a program have to save
_MOST = 64  # trials of a program, if the sampler does not learn from others
_MOST_LEARNED = 16  # if it does
_STEPS = 8  # how often each process asks such a sampler, at least
_SIGNALLED = "signalled"  # the status of a run that was stopped with a signal


class SweepProgress(NamedTuple):
    """The progress of a sweep."""

    folder: Path
    objective: Objective
    trials: Sequence[Trial]
    total: int  # trials that the sweep will have
    confirmed: Sequence[int]  # the numbers of the best trials, while they are confirmed
    seconds: float | None  # until the last trial has ended, as far as can be said


Report = Callable[[SweepProgress], None]


def choose_size(settings: Settings, jobs: int) -> int:
    """The number of trials that are begun at once, for so many processes.

    All processes get trials. A sampler that learns from trials chooses few at once,
    because it does not know their results yet. A population is one program.
    """
    if settings.sampler == PBT:
        return settings.trials
    if settings.has_independent_trials:
        return min(math.ceil(settings.trials / jobs), _MOST)
    return min(math.ceil(settings.trials / (_STEPS * jobs)), _MOST_LEARNED)


class Driver:
    """Runs a sweep from where it stands to its end, or until a signal."""

    def __init__(
        self,
        sweep: SweepFolder,
        settings: Settings,
        space: Space,
        study: Trials,
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
        self._running: dict[Path, _Running] = {}  # by the folders of their runs
        self._unstarted: list[Trial] = []  # of an earlier process, without a run
        self._begun = 0  # trials, also those of earlier processes
        self._durations: list[float] = []
        self._confirmed: list[int] = []
        self._status = ""  # why the sweep stops before its end
        self._recorded = {cell.label for cell in sweep.read_study().cells}
        self._reported_at = self._read_at = 0.0

    def run(self) -> str:
        """Returns `finished`, `failed`, `out_of_time`, or the status of a signal."""
        result = self._sweep.read_result()
        self._sweep.write_result(result | {"status": "running"})
        status = "killed"
        try:
            with SignalReceiver(self._handle):
                states = [each.state for each in self._study.trials()]
                self._begun = len(states) - states.count("waiting")
                self._restore(self._study.restore_running())
                self._work(self._start_trials, self._end_job)
                confirmed = self._confirm() if not self._status else []
            status = self._status
            if not status:
                result = find_winner(confirmed, self._objective)
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
            if self._queue.is_empty and (
                self._has_begun_all or self._queue.is_stopping
            ):
                return
            self._queue.wait()

    def _handle(self, number: int) -> None:
        if number in STATUS_OF_SIGNALS:
            self._status = self._status or STATUS_OF_SIGNALS[number]
            self._queue.stop_all(number)
        else:
            self._queue.forward(number)

    @property
    def _has_begun_all(self) -> bool:
        return not self._unstarted and self._begun >= self._settings.trials

    def _restore(self, trials: Sequence[Trial]) -> None:
        """Continues the running trials of an earlier process, in the same groups."""
        groups: dict[tuple[str, ...], list[Trial]] = {}
        for trial in trials:
            folder = self._sweep.trial(trial.number)
            if "pruned_at" in trial.notes:  # it was about to be stopped
                self._study.end(trial.number, "pruned")
            elif is_run(folder):
                members = Run(folder).read_info().get("members", [folder.name])
                groups.setdefault(tuple(members), []).append(trial)
            else:
                self._unstarted.append(trial)
        for members, group in groups.items():
            # Some may have no run: the process was killed while it created them.
            missing = [
                trial
                for trial in self._unstarted
                if self._sweep.trial(trial.number).name in members
            ]
            self._unstarted = [each for each in self._unstarted if each not in missing]
            self._submit(sorted([*group, *missing], key=lambda each: each.number))

    def _start_trials(self) -> None:
        while self._queue.has_room and not self._has_begun_all:
            trials = self._next_block()
            begun = [t for t in trials if is_run(self._sweep.trial(t.number))]
            for trial in begun:  # by a task of a job array
                self._submit([trial])
            trials = [trial for trial in trials if trial not in begun]
            for group in self._group(trials):
                self._submit(group)
            for each in self._queue.advance():
                self._end_job(each)

    def _next_block(self) -> list[Trial]:
        """Begins the next trials, up to a multiple of `together`.

        So the groups are the same if a process is killed while it begins trials.
        """
        size, unstarted = self._settings.together or 1, self._unstarted
        block = (unstarted[0].number if unstarted else self._begun) // size
        trials = [trial for trial in unstarted if trial.number // size == block]
        self._unstarted = [trial for trial in unstarted if trial not in trials]
        end = min((block + 1) * size, self._settings.trials)
        while self._begun < end:
            self._begun += 1
            trials.append(self._study.ask())
        return trials

    def _group(self, trials: Sequence[Trial]) -> list[list[Trial]]:
        """Groups trials that have the same program.

        A trial whose recipe is refused is alone: its own process explains the error.
        """
        cells = [self._cell(trial) for trial in trials]
        by_label = {c.label: trial for c, trial in zip(cells, trials, strict=True)}
        found, refused = group_cells(cells, trust=self._sweep.admits_code)
        labels = [[cell.label for cell in group] for group in found]
        labels += [[label] for label in refused]
        groups = [[by_label[label] for label in group] for group in labels]
        return sorted(groups, key=lambda group: group[0].number)

    def _cell(self, trial: Trial) -> Cell:
        """The run of a trial."""
        sets = self._space.settings(trial.values)
        folder = self._sweep.trial(trial.number)
        seeds = self._settings.seed, self._settings.seeds
        return self._sweep.make_cell(self._settings, folder, sets, *seeds)

    def _submit(self, trials: Sequence[Trial]) -> None:
        """Trains trials to their ends, in one program if there are several."""
        for trial in trials:
            folder = self._sweep.trial(trial.number)
            if folder not in self._running:
                reader = EvaluationReader(
                    folder, self._settings.seeds, self._objective.number
                )
                self._running[folder] = _Running(trial, reader)
        first, last = trials[0].number, trials[-1].number
        key = f"trial {first}" if first == last else f"trials {first} to {last}"
        self._add_job(key, [self._cell(trial) for trial in trials])

    def _add_job(self, key: str, cells: Sequence[Cell]) -> None:
        """Submits a job of cells, which the record has from then on."""
        labels = tuple(cell.label for cell in cells)
        if not self._recorded.issuperset(labels):
            record_study(self._sweep.folder, cells)
            self._recorded.update(labels)
        folder, options = self._sweep.folder, tuple(self._sweep.options)
        self._queue.submit(Job(key, folder, labels, options, is_trial=True))

    def _read_rungs(self) -> None:
        """Compares running trials after each evaluation, and prunes them."""
        if time.monotonic() - self._read_at < _READ * self._engine.period:
            return
        self._read_at = time.monotonic()
        for job in self._queue.running:
            for folder in job.folders:
                running = self._running.get(folder)
                if running is None:
                    continue
                step = None
                with contextlib.suppress(RlcliError):  # `_end_trial` records it
                    step = self._report_rungs(running)
                if step is not None and step < _total_steps(folder):
                    self._prune(job, running, step)

    def _prune(self, job: Job, running: _Running, step: int) -> None:
        """Ends a trial; stops its process if that saves enough of its work.

        The rows of a pruned trial are computed until then, but not read any more.
        """
        number = running.trial.number
        self._study.note(number, pruned_at=step)
        left = [
            folder
            for folder in job.folders
            if folder in self._running and folder != self._sweep.trial(number)
        ]
        count = len(job.folders)
        elapsed = time.monotonic() - running.begin
        remaining = elapsed * (_total_steps(job.folders[0]) / step - 1)
        saved = remaining * (count - len(left)) / count
        if not left or (2 * len(left) <= count and saved > _RESTART):
            self._queue.stop(job.key)
        del self._running[self._sweep.trial(number)]
        self._durations.append(elapsed)
        self._study.end(number, "pruned")

    def _report_rungs(self, running: _Running) -> int | None:
        """Reports new evaluations; the step of one after which to prune, else None."""
        evaluations = running.reader.read()
        for count, each in enumerate(evaluations, 1):
            if each.step <= running.reported:
                continue
            running.reported = each.step
            value = self._objective.rung(evaluations[:count])
            if self._study.report(running.trial.number, each.step, value):
                return each.step
        return None

    def _end_job(self, end: JobEnd) -> None:
        """Records how trials have ended, unless they will be continued."""
        runs = [run for run in _describe_runs(end) if run.folder in self._running]
        trials = [self._running[run.folder].trial for run in runs]
        is_refused = not any(map(is_run, end.job.folders))
        is_divisible = len(runs) > 1 and self._settings.sampler != PBT
        if is_refused and is_divisible and not self._queue.is_stopping:
            # They need more memory than there is, or one of them is wrong.
            middle = len(trials) // 2
            self._submit(trials[:middle])
            self._submit(trials[middle:])
            return
        left = []
        for run, trial in zip(runs, trials, strict=True):
            if run.status == _SIGNALLED:
                left.append(trial)
            else:
                self._end_trial(run)
        if left and not self._queue.is_stopping:  # stopped without those pruned
            self._submit(left)

    def _end_trial(self, end: _RunEnd) -> None:
        """Records how a trial has ended."""
        running = self._running.pop(end.folder)
        number, evaluations = running.trial.number, []
        try:
            while self._report_rungs(running) is not None:
                pass  # it has ended: all its rungs are recorded
            evaluations = running.reader.read()
        except RlcliError as error:
            end = end._replace(status="crashed", message=error.message)
        self._durations.append(time.monotonic() - running.begin)
        has_failed = end.status in ("failed", "crashed")
        if has_failed and _is_frozen(end.folder, self._settings.seeds):
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
                self._describe(trial, self._sweep.trial(trial.number))
                for trial in best[:1]
            ]
        best = best[: settings.confirm]
        self._confirmed = [trial.number for trial in best]
        first = layout.first_confirmed_seed(settings)
        for trial in best:
            folder = self._sweep.confirmation(trial.number)
            sets, seeds = self._final_settings(trial), settings.confirm_seeds
            cell = self._sweep.make_cell(settings, folder, sets, first, seeds)
            self._add_job(f"confirm {trial.number}", [cell])
        failed: set[Path] = set()

        def end(job_end: JobEnd) -> None:
            failed.update(
                run.folder
                for run in _describe_runs(job_end)
                if run.status not in ("finished", "stopped")
            )

        self._work(lambda: None, end)
        entries = []
        for trial in best:
            folder = self._sweep.confirmation(trial.number)
            evaluations = EvaluationReader(
                folder, settings.confirm_seeds, self._objective.number
            ).read()
            if evaluations and folder not in failed:
                values = self._objective.measure(evaluations)
                notes = summarize(values, self._objective)
                entries.append(self._describe(trial, folder) | notes)
        return entries

    def _final_settings(self, trial: Trial) -> tuple[str, ...]:
        """The settings of a recipe that trains a trial again, with any seeds."""
        if self._settings.sampler != PBT:
            return self._space.settings(trial.values)
        return pbt.member_settings(
            self._sweep, self._settings, self._space, trial.number
        )

    def _describe(self, trial: Trial, folder: Path) -> dict[str, Any]:
        """A trial in the result of the sweep."""
        if self._settings.sampler == PBT:
            lineages = pbt.read_lineages(self._sweep, self._settings, self._space)
            trial = trial._replace(values=dict(lineages[trial.number][-1].options))
        return describe_entry(trial, folder)

    def _tell(self, *, force: bool = False) -> None:
        period = _REPORT * self._engine.period
        if not force and time.monotonic() - self._reported_at < period:
            return
        self._reported_at = time.monotonic()
        trials = self._study.trials()
        left = self._settings.trials - len(trials) + len(self._running)
        seconds = None
        if self._durations and left > 0:
            mean = sum(self._durations) / len(self._durations)
            at_once = self._engine.jobs * (self._settings.together or 1)
            seconds = mean * math.ceil(left / at_once)
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


class _RunEnd(NamedTuple):
    """The outcome of a run."""

    folder: Path
    status: str  # of `run.json`, `failed`, `crashed` or `_SIGNALLED`
    message: str


def _describe_runs(end: JobEnd) -> list[_RunEnd]:
    """How the runs of a job have ended."""
    status = "crashed" if end.has_crashed else "failed"
    status = _SIGNALLED if end.is_stopped else status
    message = end.message.removeprefix("error: ")
    ends = []
    for folder in end.job.folders:
        info = Run(folder).read_info() if is_run(folder) else {}
        if info.get("status") in ENDED:
            reason = info.get("reason", "") or message
            ends.append(_RunEnd(folder, info["status"], reason))
        else:
            ends.append(_RunEnd(folder, status, message))
    return ends


class _Running:
    """A trial that has not ended."""

    def __init__(self, trial: Trial, reader: EvaluationReader) -> None:
        self.trial = trial
        self.reader = reader
        self.reported = max(trial.rungs, default=0)  # the step of the last rung
        self.begin = time.monotonic()


def _total_steps(folder: Path) -> float:
    """The steps of a run; infinite if they are unknown."""
    return Run(folder).read_info().get("total_steps") or math.inf


def _is_frozen(folder: Path, seeds: int) -> bool:
    """Whether all seeds of a run are frozen."""
    return len(Run(folder).read_info().get("frozen") or ()) == seeds
