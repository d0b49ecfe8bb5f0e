"""Process runs: trains groups of planned runs, each group in a process of its own."""

import math
import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rlcli import errors
from rlcli.runs.durations import deadline_of, max_time_arguments
from rlcli.runs.files import read_json
from rlcli.training.several.plans import Plan
from rlcli.training.several.process_pool import ProcessPool
from rlcli.training.stopping.signals import SignalReceiver
from rlcli.training.stopping.stops import STATUS_OF_SIGNALS, Stop
from rlcli.xla.threads import usable_cores

_POLL = 0.05  # seconds between two polls of the processes


class PlanEnd(NamedTuple):
    """The outcome of a planned run."""

    plan: Plan
    code: int  # the exit code of `rlcli train`
    message: str  # why the run has failed, or what the process has printed to stderr


# Receives all plans, and those that have ended.
BatchReport = Callable[[Sequence[Plan], Sequence[PlanEnd]], None]


def train_groups(
    groups: Sequence[Sequence[Plan]],
    command: Callable[[Sequence[Plan]], Sequence[str]],
    *,
    ended: Sequence[PlanEnd] = (),
    jobs: int | None = None,
    max_time: str | float | None = None,
    report: BatchReport = lambda *_: None,
    variables: Mapping[str, str] | None = None,
) -> list[PlanEnd]:
    """Trains each group of plans in a process, and returns how the runs ended.

    `command` returns the arguments of `rlcli` for a group, which get the `--max-time`
    that is left; `ended` are runs that have ended before, which are returned first;
    `variables` is the environment of the processes, by default that of this one. The
    others are those of `train_all`.
    """
    pool = ProcessPool(jobs or usable_cores(), variables)
    batch = _Batch(groups, command, pool, deadline_of(max_time), report)
    ended = [*ended, *batch.run()]
    if batch.stopped_by:
        folder = common_folder([plan for plans in groups for plan in plans])
        text = f"the runs in `{folder}` were stopped; `rlcli resume` continues them"
        Stop(folder, lambda: ended, lambda: text).deliver(batch.stopped_by)
    return ended


def common_folder(plans: Sequence[Plan]) -> Path:
    """The folder that has all the runs."""
    return Path(os.path.commonpath([plan.group for plan in plans]))


def describe_end(
    plan: Plan, code: int = errors.USER_ERROR, message: str = ""
) -> PlanEnd:
    """How a run has ended, by its folder; `code` if it has none."""
    info = _read_info(plan)
    if not info:
        return PlanEnd(plan, code, message)
    code = errors.EXIT_CODES.get(str(info.get("status")), code)
    if info.get("frozen") and code == errors.OK:
        code = errors.SOME_SEEDS_FROZEN
    has_failed = errors.OK < code < errors.OUT_OF_TIME
    reason = str(info.get("reason", "")) if has_failed else ""
    return PlanEnd(plan, code, reason or message)


def _read_info(plan: Plan) -> Mapping[str, Any]:
    return read_json(plan.folder / "run.json")


class _Batch:
    """The processes of the runs, each of which trains a group."""

    def __init__(
        self,
        groups: Sequence[Sequence[Plan]],
        command: Callable[[Sequence[Plan]], Sequence[str]],
        pool: ProcessPool,
        deadline: float | None,
        report: BatchReport,
    ) -> None:
        self._groups = {str(plans[0].folder): plans for plans in groups}
        self._waiting = [*self._groups]
        self._command = command
        self._pool = pool
        self._deadline = deadline
        all_plans = [plan for plans in groups for plan in plans]
        self._report = lambda: report(all_plans, self._ended)
        self._ended: list[PlanEnd] = []
        self._before: dict[Path, Mapping[str, Any]] = {}  # what `run.json` contained
        self._is_stopped = False
        self.stopped_by = ""  # the status of the signal that has stopped the runs

    def run(self) -> list[PlanEnd]:
        """Trains all runs, and returns them in the order of their ends."""
        reported = 0.0
        try:
            with SignalReceiver(self._receive):
                while self._pool.running or (self._waiting and not self._is_stopped):
                    self._start()
                    if time.monotonic() - reported >= 1:
                        self._report()
                        reported = time.monotonic()
                    time.sleep(_POLL)
                    self._collect()
        finally:  # after an error, they save a checkpoint
            self._forward(signal.SIGTERM)
        self._report()
        return self._ended

    def _start(self) -> None:
        while self._waiting and self._pool.has_room and not self._is_stopped:
            key = self._waiting.pop(0)
            plans = self._groups[key]
            left = self._seconds_left()
            if left <= 0:
                self._ended += [
                    PlanEnd(plan, errors.OUT_OF_TIME, "no time was left to start it")
                    for plan in plans
                ]
                continue
            self._before |= {plan.folder: _read_info(plan) for plan in plans}
            verb, *options = self._command(plans)
            limit = max_time_arguments(left) if left < math.inf else []
            self._pool.start(key, [verb, *limit, *options])
            if self._is_stopped:  # by a signal that came before it was running
                self._pool.send_signal(signal.SIGTERM, key)

    def _seconds_left(self) -> float:
        return math.inf if self._deadline is None else self._deadline - time.monotonic()

    def _collect(self) -> None:
        for end in self._pool.collect():
            plans = self._groups[end.key]
            ends = [describe_end(plan, end.code, end.message) for plan in plans]
            is_refused = end.code == errors.USER_ERROR and all(
                _read_info(plan) == self._before[plan.folder] for plan in plans
            )
            if len(plans) == 1 or is_refused:  # the runs are as they were
                ends = [PlanEnd(plan, end.code, end.message) for plan in plans]
            self._ended += ends

    def _receive(self, number: int) -> None:
        self.stopped_by = self.stopped_by or STATUS_OF_SIGNALS.get(number, "")
        self._forward(number)

    def _forward(self, number: int) -> None:
        self._is_stopped |= number != signal.SIGUSR1
        self._pool.send_signal(number)


def exit_code(ended: Sequence[PlanEnd]) -> int:
    """The exit code of a batch: of a signal, else of an error, else the highest."""
    codes = {each.code for each in ended}
    for code in sorted(codes, reverse=True):
        if code > errors.OUT_OF_TIME:
            return code
    return errors.USER_ERROR if codes & {1, 2} else max(codes, default=errors.OK)
