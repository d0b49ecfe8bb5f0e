"""Training: a run from its recipe to its end, and on from where it stopped.

JAX is imported by the verbs, not with the module: before that its threads are settled.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import sys
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlcli import layout, provenance, runs, threads
from rlcli.durations import STARTED, seconds
from rlcli.errors import RlcliError
from rlcli.metrics import Metrics
from rlcli.monitor import Monitor
from rlcli.recipe import Recipe, documents, dump, load, resolved
from rlcli.runs import Run
from rlcli.training.signals import Signals
from rlcli.training.watchdog import Watchdog

if TYPE_CHECKING:
    from rlcli.training.experiment import Experiment

_CHUNK_SECONDS = 0.5  # a chunk this long answers Ctrl-C at once and costs nothing
_FIRST_CHUNK = 1_000  # steps of the first one, whose speed nobody knows yet
_REACHED = "every seed has reached the return of `train.stop`"


@dataclasses.dataclass(frozen=True)
class Chunk:
    """What `chunks` yields: where the run stands, and what there is to log."""

    run: Path
    step: int  # environment steps of one seed
    rows: Sequence[Mapping[str, Any]]  # of metrics: one per seed, at log points
    evaluation: Sequence[Mapping[str, Any]]  # one per seed, where it was evaluated
    _experiment: Experiment = dataclasses.field(repr=False)

    @functools.cached_property
    def acting(self) -> Any:
        """What the policies need, `[seeds, ...]`: do as you like with it.

        It is fetched when it is first asked for, which has to be before the next chunk.
        """
        if self._experiment.step != self.step:
            raise ValueError(
                f"expected to be asked at step {self.step:,}, before the next chunk: "
                f"it is step {self._experiment.step:,} now"
            )
        return self._experiment.acting()


def train(recipe: str | Path | Mapping[str, Any], **keywords: Any) -> Path:
    """Trains the agent of a recipe and returns the folder of the run.

    The keywords are those of `chunks`, which this drains.
    """
    chunk = chunks(recipe, **keywords)
    while True:
        try:
            next(chunk)
        except StopIteration as end:  # before the first, where time was up at once
            return end.value


def chunks(
    recipe: str | Path | Mapping[str, Any],
    *,
    set: Sequence[str] = (),
    seed: int | None = None,
    seeds: int | None = None,
    runs: str | Path = "runs",
    run: str | Path | None = None,
    max_time: str | float | None = None,
    smoke: bool = False,
    quiet: bool = False,
) -> Generator[Chunk, None, Path]:
    """Trains the agent of a recipe, and yields after every chunk of the work.

    Args:
        recipe: a file, the name of a recipe that comes with rlcli, or its data.
        set: options that replace the recipe's, such as `train.steps=10_000`.
        seed: the first seed.
        seeds: how many: seed, seed + 1, …
        runs: makes the run's folder `<runs>/<recipe>/<time>`.
        run: makes this very folder the run's; refused if it holds one.
        max_time: seconds, or such as `3h50m`, from the start of the process.
        smoke: runs the whole pipeline with a tiny budget.
        quiet: says nothing.
    """
    sets = [*set]
    sets += [] if seed is None else [f"train.seed={seed}"]
    sets += [] if seeds is None else [f"train.seeds={seeds}"]
    warning = layout.for_recipe(recipe, set=sets, seeds=seeds)
    from rlcli.build import build
    from rlcli.training.experiment import Experiment

    parsed = load(recipe, sets)
    parsed = _smoke(parsed) if smoke else parsed
    experiment = Experiment(parsed, build(parsed))
    experiment.check()
    folder = _create(parsed, runs, run)
    with folder.lock():
        folder.write_info(
            **provenance.circumstances(),
            layout=threads.current(experiment.setup.devices),
            seeds=list(experiment.setup.seeds),
            smoke=smoke,
        )
        try:
            experiment.begin()
        except RlcliError:
            folder.discard()
            raise
        yield from _run(folder, experiment, max_time, quiet, warning)
    return folder.folder


def resume(
    run: str | Path,
    *,
    set: Sequence[str] = (),
    max_time: str | float | None = None,
    quiet: bool = False,
    trust: bool = False,
) -> Path:
    """Goes on with a run exactly where it stopped, and returns its folder.

    Only `train.steps`, `train.stop` and the periods may be set anew.
    """
    folder = runs.locate_run(run)
    with folder.lock():
        for _ in _resumed(folder, set, max_time, quiet, trust):
            pass
    return folder.folder


def _resumed(
    folder: Run,
    sets: Sequence[str],
    max_time: str | float | None,
    quiet: bool,
    trust: bool,
) -> Iterator[Chunk]:
    warning = layout.for_run(folder.folder)
    from rlcli.build import build
    from rlcli.training.experiment import Experiment

    before = load(_data(folder), trusted=trust)
    recipe = load(_data(folder), list(sets), trusted=trust)
    _check_changes(before, recipe)
    recipe = dataclasses.replace(recipe, name=folder.folder.parent.name)
    seeds = folder.read_info().get("seeds")
    experiment = Experiment(recipe, build(recipe, seeds))
    latest = folder.latest()
    sentence = ""
    if latest is None:
        experiment.begin()
    else:
        sentence = experiment.restore(latest, folder.best)
    folder.note_resume(step=experiment.step, inexact=sentence)
    folder.resolved.write_text(dump(resolved(recipe)), encoding="utf-8")
    if _at_its_end(folder, experiment, before):
        if not quiet:
            steps = f"{experiment.step:,} steps"
            print(f"`{folder.folder}` is finished: {steps}", file=sys.stderr)
        return
    yield from _run(folder, experiment, max_time, quiet, warning, sentence)


def _at_its_end(folder: Run, experiment: Experiment, before: Recipe) -> bool:
    """Whether nothing is left to do: the last step was made, or the goal was met."""
    info = folder.read_info()
    if info.get("status") == "finished":
        return experiment.over
    stop = experiment.recipe.train.stop
    return info.get("reason") == _REACHED and stop == before.train.stop


def _run(
    folder: Run,
    experiment: Experiment,
    max_time: str | float | None,
    quiet: bool,
    *messages: str,
) -> Iterator[Chunk]:
    """All chunks that are left, with everything that has to be done between them."""
    started = experiment.step
    deadline = None if max_time is None else STARTED + seconds(max_time)
    folder.write_info(status="running", reason="")
    resume_at = started if folder.latest() is not None else None
    monitor = Monitor(
        experiment.total_steps,
        experiment.setup.seeds,
        title=experiment.recipe.name,
        quiet=quiet,
        log_path=folder.log,
        start=started,
    )
    pace = _Pace(experiment.steps)
    with (
        Signals() as signals,
        Metrics(folder.folder, resume_at) as rows,
        monitor,
        Watchdog(monitor.message),
    ):
        for message in filter(None, messages):
            monitor.message(message)
        while True:
            status, reason = _ending(experiment, signals, deadline)
            if status:
                break
            report = experiment.advance(pace.iterations)
            pace.measured(report.iterations, report.seconds)
            rows.append([*report.rows, *report.evaluation])
            monitor.update(report.rows, experiment.step, report.evaluation)
            for each in report.messages:
                monitor.message(each)
            if report.due:
                experiment.save(folder)
            try:
                yield Chunk(
                    folder.folder,
                    experiment.step,
                    report.rows,
                    report.evaluation,
                    experiment,
                )
            except GeneratorExit:  # whoever loops over the chunks has left
                status = "stopped"
                reason = f"by its caller, at step {experiment.step:,}"
                break
        experiment.save(folder)
        experiment.close()
    folder.write_info(status=status, reason=reason, ended=runs.now())


def _ending(
    experiment: Experiment, signals: Signals, deadline: float | None
) -> tuple[str, str]:
    """The status with which a run ends now, and why; nothing if it goes on."""
    if experiment.failure:
        return "failed", experiment.failure
    if experiment.reached:
        return "stopped", _REACHED
    if experiment.over:
        return "finished", ""
    if signals.caught:
        return signals.caught, f"at step {experiment.step:,}"
    if deadline is not None and time.monotonic() >= deadline:
        return "out_of_time", f"at step {experiment.step:,}"
    return "", ""


class _Pace:
    """How many iterations make a chunk of the right length."""

    def __init__(self, steps: int) -> None:
        self.iterations = max(1, _FIRST_CHUNK // steps)
        self._compiled = False

    def measured(self, iterations: int, seconds: float) -> None:
        """Takes how long a chunk took; the first one tells of the compiler instead."""
        if self._compiled:
            speed = iterations / max(seconds, 1e-9)
            self.iterations = max(1, int(speed * _CHUNK_SECONDS))
        self._compiled = True


def _create(recipe: Recipe, parent: str | Path, this: str | Path | None) -> Run:
    """The folder of a new run, with its recipe as written and as resolved."""
    run = runs.create(recipe.name, runs=parent, run=this)
    text = dump(resolved(recipe))
    run.recipe.write_text(recipe.document.text or text, encoding="utf-8")
    run.resolved.write_text(text, encoding="utf-8")
    return run


def _data(run: Run) -> dict[str, Any]:
    """The resolved recipe of a run."""
    return documents.load(run.resolved).data


def _check_changes(before: Recipe, after: Recipe) -> None:
    """Refuses what a resumed run cannot change without becoming another run."""
    free = ("steps", "stop", "log", "evaluate", "checkpoint")
    held = {field: getattr(before.train, field) for field in free}
    if dataclasses.replace(after, train=dataclasses.replace(after.train, **held)) != (
        before
    ):
        names = ", ".join(f"`train.{name}`" for name in free)
        raise RlcliError(
            "a run cannot be resumed with another recipe",
            f"only {names} may change; `rlcli train` begins a new run",
        )


def _smoke(recipe: Recipe) -> Recipe:
    """The same recipe with a budget of seconds: every part runs, nothing is learnt."""
    train = recipe.train
    visit = train.unroll * recipe.num_envs
    visits = math.ceil(4 / min(1, train.updates))  # some of which learn
    steps = max(visits * visit, 256)
    half = max(1, steps // 2)
    return dataclasses.replace(
        recipe,
        train=dataclasses.replace(
            train,
            steps=steps,
            start=min(train.start, half),
            log=dataclasses.replace(train.log, every=half),
            evaluate=dataclasses.replace(train.evaluate, every=half, episodes=2),
            checkpoint=dataclasses.replace(train.checkpoint, every=half),
            stop=None,
        ),
    )
