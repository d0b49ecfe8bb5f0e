"""Trial source: chooses and prunes the trials of a sweep, and confirms the best."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rlcli.errors import RlcliError
from rlcli.runs.files import write_json
from rlcli.runs.records import COMPLETE
from rlcli.runs.run_folder import Run
from rlcli.runs.study_record import Cell
from rlcli.studies.engines.jobs import ENDED, Job
from rlcli.studies.search import pbt
from rlcli.studies.search.layout import CONFIRMATIONS, INDEPENDENT, PBT, Settings, Sweep
from rlcli.studies.search.objectives import (
    EvaluationReader,
    Objective,
    parse_objective,
    summarize,
)
from rlcli.studies.search.trials import Trial, Trials, rank
from rlcli.studies.study_loop import CellEnd, CellSource

_RESTART = 30.0  # seconds that fewer trials in a program have to save
_MOST = 64  # trials of a program, if the sampler does not learn from others
_MOST_LEARNED = 16  # if it does
_STEPS = 8  # how often each process asks such a sampler, at least


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
    if settings.sampler in INDEPENDENT:
        return min(math.ceil(settings.trials / jobs), _MOST)
    return min(math.ceil(settings.trials / (_STEPS * jobs)), _MOST_LEARNED)


class TrialSource:
    """The trials of a sweep, and then the best ones with other seeds, as cells.

    Optuna's storage is the only record of what was chosen.
    """

    def __init__(self, sweep: Sweep, study: Trials) -> None:
        self._sweep, self._study = sweep, study
        self._settings, self._space = sweep.settings, sweep.space
        self.objective = parse_objective(self._settings.objective)
        self._jobs = 1
        self._running: dict[Path, _Running] = {}  # by the folders of their runs
        self._unstarted: list[Trial] = []  # that were stopped, or have no run yet
        self._begun = 0  # trials, also those of earlier processes
        self._best: list[Trial] | None = None  # once they are confirmed
        self._unconfirmed: list[Trial] = []

    def as_cells(self) -> CellSource:
        """What the loop of the study asks for cells."""
        return CellSource(
            self._choose,
            self._receive,
            self._find_stopped,
            self._begin_search,
            self._end_search,
            are_trials=True,
        )

    def list_begun(self) -> list[Cell]:
        """The cells that an earlier process may have left in training."""
        states = {t.number: t.state for t in self._study.trials()}
        running = {
            self._sweep.trial(number)
            for number, state in states.items()
            if state == "running"
        }
        return [
            cell
            for cell in self._sweep.read_study().cells
            if cell.folder in running or cell.folder.parent.name == CONFIRMATIONS
        ]

    def _begin_search(self, jobs: int) -> None:
        """Chooses the running trials of an earlier process again."""
        self._write_status("running")
        self._jobs = jobs
        if self._settings.together is None:
            size = choose_size(self._settings, jobs)
            self._settings = dataclasses.replace(self._settings, together=size)
            dataclasses.replace(self._sweep, settings=self._settings).write_settings()
        states = [each.state for each in self._study.trials()]
        self._begun = len(states) - states.count("waiting")
        for trial in self._study.restore_running():
            if "pruned_at" in trial.notes:  # it was about to be stopped
                self._study.end(trial.number, "pruned")
            else:
                self._unstarted.append(trial)

    def _end_search(self, status: str) -> None:
        """Writes the result, with the winner if the search was not stopped."""
        found: dict[str, Any] = {}
        if not status:
            sign = -1 if self.objective.is_maximized else 1
            entries = self._list_confirmed()
            entries.sort(key=lambda each: (sign * each["value"], each["trial"]))
            finite = (each for each in entries if math.isfinite(each["value"]))
            found = {"winner": next(finite, None), "confirmed": entries}
            status = "finished" if found["winner"] else "failed"
        self._write_status(status, **found)

    def _write_status(self, status: str, **found: Any) -> None:
        result = self._sweep.read_result() | found
        write_json(self._sweep.result, result | {"status": status})

    def _choose(self, ended: Sequence[CellEnd]) -> list[Cell]:
        del ended  # `_receive` was told
        if self._unstarted or self._begun < self._settings.trials:
            return [self._begin(trial) for trial in self._next_block()]
        if self._running:
            return []
        if self._best is None:
            best = rank(self._study.trials(), self.objective)
            self._best = best[: self._settings.confirm or 1]
            self._unconfirmed = self._best if self._settings.confirm else []
        # One by one: none of them is trained together with others.
        first, self._unconfirmed = self._unconfirmed[:1], self._unconfirmed[1:]
        return [*map(self._confirm, first)]

    def _next_block(self) -> list[Trial]:
        """The next trials, up to a multiple of `together`.

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

    def _begin(self, trial: Trial) -> Cell:
        """The cell of a trial, whose evaluations are read from now on."""
        folder, settings = self._sweep.trial(trial.number), self._settings
        if folder not in self._running:
            reader = EvaluationReader(folder, settings.seeds, self.objective.number)
            self._running[folder] = _Running(trial, reader)
        return self._sweep.make_cell(folder, self._space.settings(trial.values))

    def _confirm(self, trial: Trial) -> Cell:
        """The cell of a trial with seeds that no trial has used."""
        folder, settings = self._sweep.confirmation(trial.number), self._settings
        seeds = settings.seed + settings.seeds, settings.confirm_seeds
        sets = self._space.settings(trial.values)
        if settings.sampler == PBT:
            sets = pbt.member_settings(self._sweep, trial.number)
        return self._sweep.make_cell(folder, sets, *seeds)

    def _find_stopped(self, jobs: Sequence[Job]) -> list[str]:
        """Prunes trials after their evaluations; the jobs to stop for that."""
        stopped = []
        for job in jobs:
            for folder in job.folders:
                running, step = self._running.get(folder), None
                if running is None:
                    continue
                with contextlib.suppress(RlcliError):  # `_end_trial` records it
                    step = self._report_rungs(running)
                if (
                    step is not None
                    and step < _total_steps(folder)
                    and self._prune(job, running, step)
                ):
                    stopped.append(job.key)
        return stopped

    def _prune(self, job: Job, running: _Running, step: int) -> bool:
        """Ends a trial; whether to stop its process, which saves enough of its work.

        The rows of a pruned trial are computed until then, but not read any more.
        """
        number = running.trial.number
        del self._running[self._sweep.trial(number)]
        left = [folder for folder in job.folders if folder in self._running]
        count = len(job.folders)
        elapsed = time.monotonic() - running.begin
        remaining = elapsed * (_total_steps(job.folders[0]) / step - 1)
        saved = remaining * (count - len(left)) / count
        self._study.end(number, "pruned", pruned_at=step)
        return not left or (2 * len(left) <= count and saved > _RESTART)

    def _report_rungs(self, running: _Running) -> int | None:
        """Reports new evaluations; the step of one after which to prune, else None."""
        evaluations = running.reader.read()
        for count, each in enumerate(evaluations, 1):
            if each.step <= running.reported:
                continue
            running.reported = each.step
            value = self.objective.rung(evaluations[:count])
            if self._study.report(running.trial.number, each.step, value):
                return each.step
        return None

    def _receive(self, end: CellEnd) -> None:
        """Records how a trial has ended, unless it has to continue."""
        running = self._running.get(end.cell.folder)
        if running is None:  # pruned, or confirmed
            return
        info = Run(end.cell.folder).read_info() if end.cell.exists else {}
        if info.get("status") in ENDED:
            reason = str(info.get("reason") or end.message)
            self._end_trial(running, reason, has_failed=info["status"] == "failed")
        elif end.is_stopped:  # with pruned trials, which it goes on without
            self._unstarted.append(running.trial)
        else:
            self._end_trial(running, end.message, has_failed=True)

    def _end_trial(self, running: _Running, reason: str, *, has_failed: bool) -> None:
        """Records how a trial has ended."""
        number, reason = running.trial.number, reason.removeprefix("error: ")
        folder, evaluations = self._sweep.trial(number), []
        del self._running[folder]
        try:
            while self._report_rungs(running) is not None:
                pass  # it has ended: all its rungs are recorded
            evaluations = running.reader.read()
        except RlcliError as error:
            has_failed, reason = True, error.message
        frozen = Run(folder).read_info().get("frozen") or ()
        if has_failed and len(frozen) == self._settings.seeds:
            values = [self.objective.worst] * self._settings.seeds
            notes = {"reason": reason, "seeds": values}
            self._study.end(number, "complete", self.objective.worst, **notes)
        elif has_failed or not evaluations:
            reason = reason or "the run has no evaluation"
            self._study.end(number, "failed", reason=reason)
        else:
            summary = summarize(self.objective.measure(evaluations), self.objective)
            self._study.end(number, "complete", **summary)

    def _list_confirmed(self) -> list[dict[str, Any]]:
        """The best trials with their results on other seeds; without, as they are."""
        best, settings = self._best or [], self._settings
        if not settings.confirm:
            return [
                self._describe(trial, self._sweep.trial(trial.number)) for trial in best
            ]
        entries = []
        for trial in best:
            folder = self._sweep.confirmation(trial.number)
            status = Run(folder).read_info().get("status")
            evaluations = EvaluationReader(
                folder, settings.confirm_seeds, self.objective.number
            ).read()
            if evaluations and status in COMPLETE:
                values = self.objective.measure(evaluations)
                notes = summarize(values, self.objective)
                entries.append(self._describe(trial, folder) | notes)
        return entries

    def _describe(self, trial: Trial, folder: Path) -> dict[str, Any]:
        """A trial in the result of the sweep."""
        values = trial.values
        if self._settings.sampler == PBT:
            values = dict(pbt.read_lineages(self._sweep)[trial.number][-1].options)
        return {
            "trial": trial.number,
            "options": values,
            "run": str(Path(folder.parent.name) / folder.name),  # within the sweep's
            "trial_value": trial.value,
            "value": trial.value,
            "ci95": trial.notes.get("ci95"),
            "seeds": trial.notes.get("seeds"),
        }

    def describe_progress(self) -> SweepProgress:
        """How far the sweep is."""
        trials = self._study.trials()
        ended = [each.seconds for each in trials if each.seconds is not None]
        left, seconds = self._settings.trials - len(ended), None
        if ended and left > 0:
            at_once = self._jobs * (self._settings.together or 1)
            # The median: a trial that was interrupted has the pause in its time.
            seconds = statistics.median(ended) * math.ceil(left / at_once)
        confirmed = self._best if self._best and self._settings.confirm else ()
        return SweepProgress(
            self._sweep.folder,
            self.objective,
            trials,
            self._settings.trials,
            [trial.number for trial in confirmed],
            seconds,
        )


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
