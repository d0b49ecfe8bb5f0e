"""Batch: trains several runs: several recipes, and combinations of varied options.

Runs that differ in numbers only are one program (`rlcli.training.together`). If there
are other differences, there is a process for each program, as many at once as cores.
"""

from __future__ import annotations

import contextlib
import math
import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rlcli import errors
from rlcli.recipe import AnyRecipe
from rlcli.registry.paths import resolves
from rlcli.runs.durations import deadline_of, max_time_arguments
from rlcli.runs.files import read_json
from rlcli.runs.naming import check_tags
from rlcli.runs.run_folder import is_run
from rlcli.runs.variants import discard_variants, record_variants
from rlcli.training.new_run import NewRun, train_together
from rlcli.training.plans import (
    Plan,
    arguments_of,
    divide_group,
    group_plans,
    plan_runs,
    refuse_varied,
)
from rlcli.training.processes import ProcessPool
from rlcli.training.signals import SignalReceiver
from rlcli.training.stops import STATUS_OF_SIGNALS, Stop, stopping_with
from rlcli.xla.threads import usable_cores

_POLL = 0.05  # seconds between two polls of the processes


class PlanEnd(NamedTuple):
    """The outcome of a planned run."""

    plan: Plan
    code: int  # the exit code of `rlcli train`
    message: str  # why the run has failed, or what the process has printed to stderr


# Receives all plans, and those that have ended.
BatchReport = Callable[[Sequence[Plan], Sequence[PlanEnd]], None]


@resolves(recipes="recipes", new=("runs", "run"))
def train_all(
    recipes: Sequence[AnyRecipe],
    *,
    vary: Sequence[str] = (),
    vary_zip: Sequence[str] = (),
    jobs: int | None = None,
    set: Sequence[str] = (),
    seed: int | None = None,
    seeds: int | None = None,
    runs: str | Path = "runs",
    run: str | Path | None = None,
    name: str | None = None,
    tag: Sequence[str] = (),
    max_time: str | float | None = None,
    smoke: bool = False,
    quiet: bool = False,
    trust: bool = True,
    report: BatchReport = lambda *_: None,
) -> list[PlanEnd]:
    """Trains every combination of recipes and options, and returns how each ended.

    Combinations that differ only in numbers, such as the learning rate, are trained
    together in one program; others in processes of their own. A run that fails does not
    stop the others. A signal stops all of them, each with a checkpoint. Every run has a
    folder of its own, `<runs>/<recipe>/<time>/<options>`; `rlcli eval`, `resume`,
    `plot` and so on take it, or the folder of all of them.

    Args:
        recipes: files, or names of built-in recipes.
        vary: options and their values, `KEY=VALUE,VALUE`; several are a grid.
        vary_zip: the same, but the first values of all belong together, and so on.
        jobs: processes at once; by default the number of cores. Where the system allows
            it, each of as many processes as cores has a core of its own.
        quiet: prints only warnings and errors of runs that are trained in this process.
        run: the folder of the runs, instead of `<runs>/<recipe>/<time>`.
        name: the name of that folder, instead of the time, and of the runs.
        max_time: seconds, or a duration such as `3h50m`, from the call, for
            all runs: those that have not begun by then are not trained.
        report: is called with the plans and those that have ended, about once a second.

    The other arguments are those of `train`.
    """
    max_time = deadline_of(max_time)
    shared = [] if trust else ["--no-trust"]
    shared += ["--smoke"] if smoke else []
    for option, value in (("seed", seed), ("seeds", seeds)):
        shared += [] if value is None else [f"--{option}", str(value)]
    tags = check_tags(tag)
    for each in tags:
        shared += ["--tag", each]
    shared += [] if name is None else ["--name", name]
    environment = {**os.environ}  # before the threads of this process are set
    plans = plan_runs(
        recipes, vary=vary, vary_zip=vary_zip, set=set, runs=runs, run=run, name=name
    )
    refuse_varied(plans, {"seed": seed, "seeds": seeds})
    overrides = [] if seed is None else [f"train.seed={seed}"]
    overrides += [] if seeds is None else [f"train.seeds={seeds}"]
    groups = group_plans(plans, overrides, trust=trust)
    with _recorded_variants(plans, with_parent=run is None):
        if len(groups) == 1 and len(plans) > 1:
            keywords = {"max_time": max_time, "smoke": smoke}
            keywords |= {"quiet": quiet, "trust": trust}
            new = [
                NewRun(
                    plan.document.with_settings(*overrides),
                    {"run": plan.folder, "name": name, "tags": tags},
                )
                for plan in plans
            ]
            with stopping_with(
                common_folder(plans), lambda _: [*map(describe_end, plans)]
            ):
                is_trained = _train_here(new, keywords)
            if is_trained:
                return [describe_end(plan) for plan in plans]
            groups = [[plan] for plan in plans]
        groups = [part for group in groups for part in divide_group(group)]

        def command(plans: Sequence[Plan]) -> list[str]:
            options = [*arguments_of(plans), "--quiet", *shared]
            return ["train", *options, "--", str(plans[0].path)]

        return train_groups(
            groups,
            command,
            jobs=jobs,
            max_time=max_time,
            report=report,
            variables=environment,
        )


@contextlib.contextmanager
def _recorded_variants(plans: Sequence[Plan], *, with_parent: bool) -> Iterator[None]:
    """Lists the runs with varied options in their folders, before they are trained.

    At the end those that do not exist are removed from the list, and folders that are
    empty; `with_parent`: also the folder of the recipe.
    """
    groups: dict[Path, dict[str, tuple[str, ...]]] = {}
    for plan in plans:
        if plan.values:
            groups.setdefault(plan.group, {})[plan.folder.name] = plan.values
    for group, values in groups.items():
        record_variants(group, values)
    try:
        yield
    finally:
        for group, values in groups.items():
            discard_variants(group, [*values], with_parent=with_parent)


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


def _train_here(runs: Sequence[NewRun], keywords: Mapping[str, Any]) -> bool:
    """Trains runs together in this process; False if there is not enough memory."""
    from rlcli.assembly.out_of_memory import OutOfMemoryError  # here: imports JAX

    try:
        train_together(runs, **keywords)
    except OutOfMemoryError:
        if any(is_run(new.place["run"]) for new in runs):
            raise
        return False
    return True


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
