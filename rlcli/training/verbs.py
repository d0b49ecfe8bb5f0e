"""Train and resume: the functions behind `rlcli train` and `rlcli resume`.

They import JAX only when they run, after the thread layout is set.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlcli.errors import EXIT_CODES, RlcliError
from rlcli.monitor import Monitor
from rlcli.recipe import (
    Recipe,
    check_document,
    dump_recipe,
    load_recipe,
    resolve,
    shipped_recipes,
)
from rlcli.registry import user_code
from rlcli.runs import provenance, run_folder, thread_layout
from rlcli.runs.differences import Differences, find_differences
from rlcli.runs.locate import locate_run
from rlcli.runs.naming import check_name, check_tags
from rlcli.runs.run_folder import Run
from rlcli.training.run_loop import (
    STOP_REACHED,
    Chunk,
    catch_signals,
    close_at_exit,
    deadline_of,
    final_status,
    run_chunks,
    run_in_memory,
)
from rlcli.training.signals import Signals
from rlcli.training.track_marks import Marks
from rlcli.xla import threads

if TYPE_CHECKING:
    from rlcli.training.experiment import Experiment


_CTRL_C = "Ctrl-C stops"  # before the run begins, there is nothing to save


def train(recipe: str | Path | Mapping[str, Any], **keywords: Any) -> Path:
    """Trains the agent of a recipe and returns the folder of the run.

    The keywords are those of `chunks`.
    """
    chunk = _chunks(recipe, ends_at_log_points=False, **keywords)
    while True:
        try:
            next(chunk)
        except StopIteration as end:  # possibly before the first chunk: `max_time`
            return end.value


def chunks(
    recipe: str | Path | Mapping[str, Any],
    *,
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
    profile: bool = False,
) -> Generator[Chunk, None, Path]:
    """Trains the agent of a recipe, and yields after every chunk of iterations.

    A chunk ends at the latest at the next log point, evaluation or checkpoint. Closing
    the generator early ends the run with a checkpoint.

    Args:
        recipe: a file, the name of a built-in recipe, or the data of a recipe.
        set: options that replace the recipe's, such as `train.steps=10_000`.
        seed: the first seed.
        seeds: the number of seeds: seed, seed + 1, …
        runs: creates the run as `<runs>/<recipe>/<time>`, followed by the options in
            `set` in short.
        run: creates the run in exactly this folder; refused if it contains a run.
        name: a name for the run, and for its folder: `<runs>/<recipe>/<name>`.
        tag: tags of the run, by which `rlcli.runs` finds it.
        max_time: seconds, or a duration such as `3h50m`, from the process start.
        smoke: runs the whole pipeline with a tiny budget.
        quiet: prints only warnings and errors.
        profile: traces a few iterations, and writes `<run>/profile/table.txt`: how the
            time of an iteration is divided.
    """
    return _chunks(
        recipe,
        ends_at_log_points=True,
        set=set,
        seed=seed,
        seeds=seeds,
        runs=runs,
        run=run,
        name=name,
        tag=tag,
        max_time=max_time,
        smoke=smoke,
        quiet=quiet,
        profile=profile,
    )


def _chunks(
    recipe: str | Path | Mapping[str, Any],
    *,
    ends_at_log_points: bool,
    set: Sequence[str] = (),
    seed: int | None = None,
    seeds: int | None = None,
    runs: str | Path = "runs",
    run: str | Path | None = None,
    name: str | None = None,
    tag: Sequence[str] = (),
    **keywords: Any,
) -> Generator[Chunk, None, Path]:
    """Implements `chunks`; `ends_at_log_points`: whether chunks end at log points."""
    sets = [*set]
    sets += [] if seed is None else [f"train.seed={seed}"]
    sets += [] if seeds is None else [f"train.seeds={seeds}"]

    def find_errors() -> str:
        """Finds errors that need no JAX, and returns the name of the recipe."""
        name = check_document(recipe, sets)
        run_folder.check_place(runs, run)
        return name

    generator = train_chunks(
        find_errors,
        functools.partial(
            thread_layout.apply_for_recipe, recipe, set=sets, seeds=seeds
        ),
        functools.partial(load_recipe, recipe, sets),
        recipe,
        {
            "runs": runs,
            "run": run,
            "name": None if name is None else check_name(name),
            "tags": check_tags(tag),
            "overrides": sets,
        },
        ends_at_log_points=ends_at_log_points,
        **keywords,
    )
    close_at_exit(generator)
    return generator


def train_chunks(
    find_errors: Callable[[], str],
    set_threads: Callable[[], str],
    load: Callable[[], Recipe],
    source: str | Path | Mapping[str, Any],
    place: Mapping[str, Any],
    *,
    ends_at_log_points: bool,
    describe_begin: Callable[[Run], Sequence[str]] = lambda run: (),
    max_time: str | float | None = None,
    smoke: bool = False,
    quiet: bool = False,
    profile: bool = False,
) -> Generator[Chunk, None, Path]:
    """Trains from the beginning; does nothing until the first chunk is requested.

    Args:
        find_errors: finds errors that need no JAX, and returns the recipe's name.
        set_threads: sets the threads, before JAX is imported; returns a warning.
        load: loads the recipe.
        source: where it comes from.
        place: the keywords of `create_run`, and fields of `run.json`.
        ends_at_log_points: whether chunks end at log points.
        describe_begin: messages about the run before it begins.
        max_time: see `chunks`, as for the others.
    """
    with Monitor(title=find_errors(), quiet=quiet, hint=_CTRL_C) as monitor:
        monitor.set_phase("loading JAX")
        warning = set_threads()
        from rlcli.training.compile_phases import TRACING, report_compilation

        monitor.set_phase(TRACING)
        with report_compilation(monitor.set_phase):
            full_recipe = load()
            recipe = _smoke_recipe(full_recipe) if smoke else full_recipe
            experiment = _build_experiment(recipe, ends_at_log_points)
            text = dump_recipe(resolve(recipe))
            folder = run_folder.create_run(
                recipe.name,
                written=recipe.document.text or text,
                resolved=text,
                changes=_find_changes(full_recipe, source),
                **place,
            )
            with folder.lock(), catch_signals(folder) as signals:
                _begin(folder, experiment, smoke)
                chunks = run_chunks(
                    *(folder, experiment, signals, max_time, monitor, warning),
                    *describe_begin(folder),
                    profile=profile,
                )
                yield from run_in_memory(folder, experiment, chunks)
    return folder.folder


def _build_experiment(recipe: Recipe, ends_at_log_points: bool) -> Experiment:
    """Builds and checks a new experiment."""
    from rlcli.assembly import build, out_of_memory
    from rlcli.loop.log import MAX_LOG_POINTS
    from rlcli.training.experiment import Experiment

    out_of_memory.check_recipe(recipe, recipe.train.seeds)
    experiment = Experiment(recipe, build(recipe))
    experiment.log_rows.max_points = 1 if ends_at_log_points else MAX_LOG_POINTS
    experiment.check()
    return experiment


def _begin(folder: Run, experiment: Experiment, smoke: bool) -> None:
    """Records a new run and begins it; removes its folder if that fails."""
    from rlcli.assembly import out_of_memory
    from rlcli.runs.code import copy_code

    folder.sign_lock()
    folder.write_info(
        **provenance.collect_provenance(),
        layout=threads.current_layout(experiment.setup.devices),
        seeds=list(experiment.setup.seeds),
        smoke=smoke,
    )
    try:
        folder.write_info(**copy_code(folder, experiment.recipe))
        with out_of_memory.explain_out_of_memory("this run", experiment.memory):
            experiment.begin()
    except RlcliError:
        folder.discard()
        raise


def _find_changes(
    recipe: Recipe, source: str | Path | Mapping[str, Any]
) -> Differences | None:
    """What differs from the built-in recipe of the same name, else from the source."""
    original = shipped_recipes().get(recipe.name, source)
    try:
        with user_code.keep_search():
            return find_differences(resolve(load_recipe(original)), resolve(recipe))
    except RlcliError:  # a recipe that is incomplete without `--set`
        return None


def resume(
    run: str | Path,
    *,
    set: Sequence[str] = (),
    max_time: str | float | None = None,
    quiet: bool = False,
    trust: bool = False,
) -> Path:
    """Continues a run exactly where it stopped, and returns its folder.

    Only `train.steps`, `train.stop` and the periods can be changed. If there is nothing
    to continue, the folder stays as it is, to the byte.
    """
    folder = locate_run(run)
    title = folder.read_info().get("recipe", folder.folder.name)
    with (
        folder.lock(),
        Monitor(title=title, quiet=quiet, hint=_CTRL_C) as monitor,
        catch_signals(folder, is_resume=True) as signals,
    ):
        monitor.set_phase("loading JAX")
        for _ in _resume_chunks(folder, signals, set, max_time, monitor, trust):
            pass
    return folder.folder


def _resume_chunks(
    folder: Run,
    signals: Signals,
    sets: Sequence[str],
    max_time: str | float | None,
    monitor: Monitor,
    trust: bool,
) -> Iterator[Chunk]:
    warning = thread_layout.apply_for_run(folder.folder)
    from rlcli.training.compile_phases import TRACING, report_compilation

    monitor.set_phase(TRACING)
    with report_compilation(monitor.set_phase):
        yield from _restored_chunks(
            folder, signals, sets, max_time, monitor, trust, warning
        )


def _restored_chunks(
    folder: Run,
    signals: Signals,
    sets: Sequence[str],
    max_time: str | float | None,
    monitor: Monitor,
    trust: bool,
    warning: str,
) -> Iterator[Chunk]:
    """The chunks from the newest checkpoint on; none if the run is finished."""
    from rlcli.assembly import build, out_of_memory
    from rlcli.runs import code
    from rlcli.training import recovery
    from rlcli.training.experiment import Experiment

    saved, messages = recovery.newest_readable(folder)
    messages += [code.use_code(folder)] if trust else []
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
        monitor.note(f"`{folder.folder}` is finished: {experiment.step:,} steps")
        return
    if _has_failed(folder, experiment):
        return
    _refuse_stopped(folder, experiment, signals, max_time)
    if experiment.trackers:
        Marks(folder.trackers)  # refuses a damaged file before the run is changed
    folder.sign_lock()
    folder.remove_temporaries()
    changes = recovery.record_changes(folder, recipe_before, recipe)
    recovery.rewrite(folder, recipe, saved)
    folder.record_resume(step=experiment.step, inexact=sentence)
    folder.write_info(**changes)
    messages = [warning, *messages, sentence]
    chunks = run_chunks(folder, experiment, signals, max_time, monitor, *messages)
    yield from run_in_memory(folder, experiment, chunks)


def _is_finished(folder: Run, experiment: Experiment, recipe_before: Recipe) -> bool:
    """Whether the run has made its last step or reached `train.stop`."""
    info = folder.read_info()
    if info.get("status") == "finished":
        return experiment.is_finished
    stop = experiment.recipe.train.stop
    # The reason may continue with the frozen seeds.
    has_reached_stop = str(info.get("reason")).startswith(STOP_REACHED)
    return has_reached_stop and stop == recipe_before.train.stop


def _has_failed(folder: Run, experiment: Experiment) -> bool:
    """Whether the run has failed in such a way that it cannot make another step."""
    return bool(experiment.failure) and folder.read_info().get("status") == "failed"


def _refuse_stopped(
    folder: Run, experiment: Experiment, signals: Signals, max_time: str | float | None
) -> None:
    """Refuses to resume a run that would be stopped before its first step."""
    status, _ = final_status(experiment, signals, deadline_of(max_time))
    if status in ("", "finished", "failed"):  # the end of a run that was killed
        return
    reason = "`--max-time` was over" if status == "out_of_time" else "it was stopped"
    raise RlcliError(
        f"`{folder.folder}` did not continue: {reason} before its first step",
        "the run is unchanged",
        code=EXIT_CODES[status],
    )


def _smoke_recipe(recipe: Recipe) -> Recipe:
    """The recipe with a budget of seconds: every part runs, the agent hardly learns."""
    train = recipe.train
    unroll_size = train.unroll * recipe.num_envs
    iterations = math.ceil(4 / min(1, train.updates))  # so that some include updates
    steps = max(iterations * unroll_size, 256)
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
