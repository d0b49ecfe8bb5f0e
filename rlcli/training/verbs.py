"""Training: a run from its recipe to its end, and on from where it stopped.

JAX is imported by the verbs, not with the module: before that its threads are settled.
"""

from __future__ import annotations

import atexit
import contextlib
import dataclasses
import functools
import math
import shlex
import sys
import time
import weakref
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlcli import errors
from rlcli.errors import RlcliError
from rlcli.monitor import Monitor
from rlcli.recipe import Recipe, dump_recipe, load_recipe, resolve
from rlcli.runs import provenance, run_folder, thread_layout
from rlcli.runs.durations import START_TIME, parse_duration
from rlcli.runs.metrics import Metrics
from rlcli.runs.run_folder import Run
from rlcli.training.pace import Pace
from rlcli.training.signals import Signals, exit_now
from rlcli.training.watchdog import Watchdog
from rlcli.xla import threads

if TYPE_CHECKING:
    from rlcli.training.experiment import Experiment

_STOP_REACHED = "every seed has reached the return of `train.stop`"


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

    A caller that leaves the chunks unfinished ends the run with a checkpoint.

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
    settle = functools.partial(
        thread_layout.apply_for_recipe, recipe, set=sets, seeds=seeds
    )
    read = functools.partial(load_recipe, recipe, sets)
    place = {"runs": runs, "run": run}
    generator = _trained(settle, read, place, max_time, smoke=smoke, quiet=quiet)
    _unfinished.add(generator)
    return generator


def _trained(
    settle: Callable[[], str],
    read: Callable[[], Recipe],
    place: Mapping[str, Any],
    max_time: str | float | None,
    *,
    smoke: bool,
    quiet: bool,
) -> Generator[Chunk, None, Path]:
    """Trains from the beginning; does nothing until the first chunk is asked for."""
    warning = settle()
    from rlcli.assembly import build, out_of_memory
    from rlcli.training.experiment import Experiment

    recipe = _smoke_recipe(read()) if smoke else read()
    out_of_memory.check_recipe(recipe, recipe.train.seeds)
    experiment = Experiment(recipe, build(recipe))
    experiment.check()
    text = dump_recipe(resolve(recipe))
    folder = run_folder.create_run(
        recipe.name, **place, written=recipe.document.text or text, resolved=text
    )
    with folder.lock(), _signals(folder) as signals:
        folder.write_info(
            **provenance.collect_provenance(),
            layout=threads.current_layout(experiment.setup.devices),
            seeds=list(experiment.setup.seeds),
            smoke=smoke,
        )
        try:
            with out_of_memory.explain_out_of_memory("this run", experiment.memory):
                experiment.begin()
        except RlcliError:
            folder.discard()
            raise
        chunks = _run_chunks(folder, experiment, signals, max_time, quiet, warning)
        yield from _run_in_memory(folder, experiment, chunks)
    return folder.folder


_unfinished: weakref.WeakSet[Generator[Chunk, None, Path]] = weakref.WeakSet()


def _close_unfinished() -> None:
    """Ends the runs whose chunks were left unfinished when the interpreter exits."""
    for generator in [*_unfinished]:
        generator.close()


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
    folder = run_folder.locate_run(run)
    with folder.lock(), _signals(folder) as signals:
        for _ in _resume_chunks(folder, signals, set, max_time, quiet, trust):
            pass
    return folder.folder


def _resume_chunks(
    folder: Run,
    signals: Signals,
    sets: Sequence[str],
    max_time: str | float | None,
    quiet: bool,
    trust: bool,
) -> Iterator[Chunk]:
    folder.remove_temporaries()
    warning = thread_layout.apply_for_run(folder.folder)
    from rlcli.assembly import build, out_of_memory
    from rlcli.training import recovery
    from rlcli.training.experiment import Experiment

    saved, messages = recovery.newest_sound(folder)
    recipe_before, recipe = recovery.recorded_recipe(folder, saved, sets, trust)
    seeds = recovery.recorded_seeds(folder, saved, recipe_before)
    out_of_memory.check_recipe(recipe, len(seeds))
    experiment = Experiment(recipe, build(recipe, seeds))
    experiment.check()
    sentence = ""
    with out_of_memory.explain_out_of_memory("this run", experiment.memory):
        if saved is None:
            experiment.begin()
        else:
            sentence = experiment.restore(saved, folder.best)
    recovery.refuse_too_short(experiment)
    if _is_finished(folder, experiment, recipe_before):
        if not quiet and sys.stderr is not None:
            steps = f"{experiment.step:,} steps"
            print(f"`{folder.folder}` is finished: {steps}", file=sys.stderr)
        return
    recovery.rewrite(folder, recipe, saved)
    folder.record_resume(step=experiment.step, inexact=sentence)
    messages = [warning, *messages, sentence]
    chunks = _run_chunks(folder, experiment, signals, max_time, quiet, *messages)
    yield from _run_in_memory(folder, experiment, chunks)


def _is_finished(folder: Run, experiment: Experiment, recipe_before: Recipe) -> bool:
    """Whether nothing is left to do: the last step was made, or the goal was met."""
    info = folder.read_info()
    if info.get("status") == "finished":
        return experiment.is_finished
    stop = experiment.recipe.train.stop
    # Frozen seeds, if any, are named behind it.
    reached = str(info.get("reason")).startswith(_STOP_REACHED)
    return reached and stop == recipe_before.train.stop


def _run_in_memory(
    folder: Run, experiment: Experiment, chunks: Iterator[Chunk]
) -> Iterator[Chunk]:
    """The chunks of a run; one that runs out of memory is recorded as failed.

    The folder of one that has neither made a step nor a checkpoint is removed.
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


def _run_chunks(
    folder: Run,
    experiment: Experiment,
    signals: Signals,
    max_time: str | float | None,
    quiet: bool,
    *messages: str,
) -> Iterator[Chunk]:
    """All chunks that are left, with everything that has to be done between them."""
    # Functions are called in reverse order: this one before those of JAX.
    atexit.unregister(_close_unfinished)
    atexit.register(_close_unfinished)
    start_step = experiment.step
    deadline = None if max_time is None else START_TIME + parse_duration(max_time)
    failures = experiment.failures
    folder.write_info(status="running", reason="", hint="", frozen=failures.reasons)
    resume_at = start_step if folder.latest_checkpoint() is not None else None
    monitor = Monitor(
        experiment.total_steps,
        experiment.setup.seeds,
        title=experiment.recipe.name,
        quiet=quiet,
        log_path=folder.log,
        start=start_step,
    )
    pace = Pace(experiment.updates, experiment.iterations)
    with (
        Metrics(folder.folder, resume_at) as rows,
        monitor,
        Watchdog(monitor.message),
        _errors_recorded(folder),
    ):
        for message in filter(None, messages):
            monitor.message(message)
        while True:
            status, reason = _final_status(experiment, signals, deadline)
            if status:
                break
            before = experiment.iteration
            report = experiment.advance(pace.size(before))
            pace.measure(before, report.iterations, report.seconds)
            rows.append([*report.rows, *report.evaluation])
            monitor.update(report.rows, experiment.step, report.evaluation)
            for report_message in report.messages:
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
            except GeneratorExit:  # the caller's loop over the chunks has ended
                status = "stopped"
                reason = f"by its caller, at step {experiment.step:,}"
                break
        signals.answer()
        experiment.save(folder)
        experiment.close()
    if status != "failed":  # of which the reason names them already
        reason = "; ".join(filter(None, [reason, failures.summary]))
    folder.write_info(
        status=status,
        reason=reason,
        hint=failures.remedy,
        frozen=failures.reasons,
        ended=run_folder.timestamp(),
    )


@contextlib.contextmanager
def _errors_recorded(folder: Run) -> Iterator[None]:
    """Writes down an error that ends the run, such as one of its environment."""
    try:
        yield
    except RlcliError as error:
        fields = {
            "reason": error.message,
            "hint": error.hint,
            "ended": run_folder.timestamp(),
        }
        with contextlib.suppress(RlcliError):  # the same disk may be full
            folder.write_info(status="failed", **fields)
        raise


def _signals(folder: Run) -> Signals:
    return Signals(functools.partial(_abandon, folder))


def _abandon(folder: Run, status: str) -> None:
    """Ends the process while it computes: resume takes the newest checkpoint."""
    latest = folder.latest_checkpoint()
    where = f"in {latest.name}" if latest else "not saved yet: it begins anew"
    reason = "ended at once, between two checkpoints"
    with contextlib.suppress(RlcliError):
        folder.write_info(status=status, reason=reason, ended=run_folder.timestamp())
    name = shlex.quote(str(folder.folder))
    told = f"stopped at once; the run is {where}\nnext: rlcli resume {name}"
    exit_now(errors.EXIT_CODES[status], told=told, data=str(folder.folder))


def _final_status(
    experiment: Experiment, signals: Signals, deadline: float | None
) -> tuple[str, str]:
    """The status with which a run ends now, and why; nothing if it goes on."""
    if experiment.failure:
        return "failed", experiment.failure
    if experiment.has_reached_stop:
        return "stopped", _STOP_REACHED
    if experiment.is_finished:
        return "finished", ""
    if signals.status:
        return signals.status, f"at step {experiment.step:,}"
    if deadline is not None and time.monotonic() >= deadline:
        return "out_of_time", f"at step {experiment.step:,}"
    return "", ""


def _smoke_recipe(recipe: Recipe) -> Recipe:
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
