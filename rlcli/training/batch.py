"""Batch: trains several runs, each in a process of its own, as many at once as cores.

The runs are several recipes, and the combinations of the options in `vary`. Imports no
JAX: the processes of the runs do.
"""

from __future__ import annotations

import itertools
import math
import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from rlcli import errors
from rlcli.errors import RlcliError, quote
from rlcli.recipe import check_document
from rlcli.runs.durations import parse_duration
from rlcli.runs.naming import check_name, check_tags, describe_overrides
from rlcli.runs.run_folder import check_place
from rlcli.training.processes import ForwardedSignals, ProcessPool
from rlcli.xla.threads import usable_cores

_POLL = 0.05  # seconds between two looks at the processes


class Plan(NamedTuple):
    """A run that will be trained."""

    recipe: str  # a file, or the name of a built-in recipe
    sets: tuple[str, ...]  # the values of its combination
    folder: Path


class Ended(NamedTuple):
    """A run whose process has ended."""

    plan: Plan
    code: int  # the exit code of `rlcli train`
    message: str  # what it has printed to stderr


def train_all(
    recipes: Sequence[str | Path],
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
    report: Callable[[Sequence[Plan], Sequence[Ended]], None] = lambda *_: None,
) -> list[Ended]:
    """Trains every combination of recipes and options, and returns how each ended.

    A run that fails does not stop the others. A signal stops all of them, each with a
    checkpoint. Every run has a folder of its own, for `rlcli resume`, `eval` and so on:
    `<runs>/<recipe>/<time>/<options>`.

    Args:
        recipes: files, or names of built-in recipes.
        vary: options and their values, `KEY=VALUE,VALUE`; several are a grid.
        vary_zip: the same, but the first values of all belong together, and so on.
        jobs: processes at once; by default the number of cores. Where the system allows
            it, each of as many processes as cores has a core of its own.
        run: the folder of the runs, instead of `<runs>/<recipe>/<time>`.
        name: the name of that folder, instead of the time.
        report: is called with the plans and those that have ended, about once a second.

    The other arguments are those of `train`.
    """
    shared = ["--quiet", *(["--smoke"] if smoke else [])]
    seconds = None if max_time is None else math.ceil(parse_duration(max_time))
    limit = None if seconds is None else f"{seconds}s"
    for option, value in (("seed", seed), ("seeds", seeds), ("max-time", limit)):
        shared += [] if value is None else [f"--{option}", str(value)]
    for each in check_tags(tag):
        shared += ["--tag", each]
    plans = plan_runs(
        recipes, vary=vary, vary_zip=vary_zip, set=set, runs=runs, run=run, name=name
    )
    return _Batch(plans, shared, jobs or usable_cores(), report).run()


def plan_runs(
    recipes: Sequence[str | Path],
    *,
    vary: Sequence[str] = (),
    vary_zip: Sequence[str] = (),
    set: Sequence[str] = (),
    runs: str | Path = "runs",
    run: str | Path | None = None,
    name: str | None = None,
) -> list[Plan]:
    """The runs that `train_all` trains; refuses recipes and options that are wrong."""
    start = time.strftime("%Y-%m-%dT%H-%M-%S", time.gmtime())
    start = start if name is None else check_name(name)
    combinations = [*combine(vary, vary_zip)]
    plans: list[Plan] = []
    for recipe in map(str, recipes):
        (title,) = {check_document(recipe, [*set, *values]) for values in combinations}
        if run is None:
            group = _number(Path(runs) / title / start, os.path.lexists)
        else:
            group = Path(run) / title if len(recipes) > 1 else Path(run)
        for values in combinations:
            folder = group / describe_overrides(values)
            folder = _number(folder, [plan.folder for plan in plans].__contains__)
            check_place(run=folder)
            plans.append(Plan(recipe, (*set, *values), folder))
    return plans


def combine(
    vary: Sequence[str], vary_zip: Sequence[str] = ()
) -> Iterator[tuple[str, ...]]:
    """The settings `KEY=VALUE` of each combination.

    >>> [*combine(["a=1,2"], ["b=[3,4],5", "c=6,7"])]
    [('a=1', 'b=[3,4]', 'c=6'), ('a=1', 'b=5', 'c=7'),
     ('a=2', 'b=[3,4]', 'c=6'), ('a=2', 'b=5', 'c=7')]
    """
    axes = [[(setting,) for setting in _parse_values(text)] for text in vary]
    if vary_zip:
        zipped = [_parse_values(text) for text in vary_zip]
        if len({*map(len, zipped)}) > 1:
            counts = ", ".join(
                f"`{text.partition('=')[0]}` {len(values)}"
                for text, values in zip(vary_zip, zipped, strict=True)
            )
            raise RlcliError(
                f"`--vary-zip` needs equally many values of each option: {counts}"
            )
        axes.append([*zip(*zipped, strict=True)])
    keys = [text.partition("=")[0].strip() for text in (*vary, *vary_zip)]
    for key in keys:
        if keys.count(key) > 1:
            raise RlcliError(
                f"{quote(key)} is varied twice", "name all its values in one option"
            )
    for combination in itertools.product(*axes):
        yield tuple(itertools.chain(*combination))


def _parse_values(text: str) -> list[str]:
    """`a=1,[2,3]` as `a=1` and `a=[2,3]`."""
    key, equals, values = text.partition("=")
    parts, depth, quoted = [""], 0, ""
    for character in values:
        if quoted:
            quoted = "" if character == quoted else quoted
        elif character in "\"'":
            quoted = character
        else:
            depth += (character in "[{") - (character in "]}")
        if character == "," and depth == 0 and not quoted:
            parts.append("")
        else:
            parts[-1] += character
    settings = [f"{key.strip()}={part.strip()}" for part in parts]
    if not key.strip() or not equals or not all(part.strip() for part in parts):
        raise RlcliError(
            f"expected options to vary as KEY=VALUE,VALUE, got {quote(text)}",
            "for example `--vary optimizer.learning_rate=1e-4,3e-4`",
        )
    for setting in settings:
        if settings.count(setting) > 1:
            raise RlcliError(f"{quote(setting)} stands twice among the values")
    return settings


def _number(folder: Path, is_taken: Callable[[Path], bool]) -> Path:
    """The folder, with a number if it is taken."""
    numbered = (folder.with_name(f"{folder.name}-{n}") for n in itertools.count(2))
    return next(
        each for each in itertools.chain([folder], numbered) if not is_taken(each)
    )


class _Batch:
    """The processes of the runs."""

    def __init__(
        self,
        plans: Sequence[Plan],
        options: Sequence[str],
        jobs: int,
        report: Callable[[Sequence[Plan], Sequence[Ended]], None],
    ) -> None:
        self._plans = {str(plan.folder): plan for plan in plans}
        self._waiting = [*plans]
        self._options = options
        self._pool = ProcessPool(jobs)
        self._report = lambda: report(plans, self._ended)
        self._ended: list[Ended] = []
        self._is_stopped = False  # by a signal

    def run(self) -> list[Ended]:
        """Trains all runs, and returns them in the order of their ends."""
        reported = 0.0
        try:
            with ForwardedSignals(self._forward):
                while self._pool.running or (self._waiting and not self._is_stopped):
                    self._start()
                    if time.monotonic() - reported >= 1:
                        self._report()
                        reported = time.monotonic()
                    time.sleep(_POLL)
                    for end in self._pool.collect():
                        plan = self._plans[end.key]
                        self._ended.append(Ended(plan, end.code, end.message))
        finally:  # after an error, they save a checkpoint
            self._forward(signal.SIGTERM)
        self._report()
        return self._ended

    def _start(self) -> None:
        while self._waiting and self._pool.has_room and not self._is_stopped:
            plan = self._waiting.pop(0)
            arguments = ["train", "--run", str(plan.folder)]
            for setting in plan.sets:
                arguments += ["--set", setting]
            arguments += [*self._options, "--", plan.recipe]
            self._pool.start(str(plan.folder), arguments)

    def _forward(self, number: int) -> None:
        self._is_stopped |= number != signal.SIGUSR1
        self._pool.send_signal(number)


def exit_code(ended: Sequence[Ended]) -> int:
    """The exit code of a batch: of a signal, else of an error, else the highest."""
    codes = {each.code for each in ended}
    for code in sorted(codes, reverse=True):
        if code > errors.OUT_OF_TIME:
            return code
    return errors.USER_ERROR if codes & {1, 2} else max(codes, default=errors.OK)
