"""New run: trains a new run; the functions behind `rlcli train`.

They import JAX only when they run, after the thread layout is set.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Generator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlcli.errors import RlcliError
from rlcli.monitor import Monitor
from rlcli.recipe import (
    Recipe,
    check_document,
    load_recipe,
    load_to_train,
    resolve,
    shipped_recipes,
)
from rlcli.recipe.loading import refuse_combinations
from rlcli.registry import user_code
from rlcli.registry.paths import keep_directory, keep_in_steps, resolves
from rlcli.runs import creation, provenance, thread_layout
from rlcli.runs.differences import Differences, find_differences
from rlcli.runs.durations import deadline_of
from rlcli.runs.files import explain_file_errors
from rlcli.runs.naming import check_name, check_tags
from rlcli.runs.run_folder import Run
from rlcli.training.process_group import local_place, local_recipe
from rlcli.training.run_end import catch_signals
from rlcli.training.run_loop import Chunk, close_at_exit, run_chunks, run_in_memory
from rlcli.training.run_writer import ActiveRun
from rlcli.xla import processes, threads

if TYPE_CHECKING:
    from rlcli.training.experiment import Experiment


CTRL_C = "Ctrl-C stops"  # before the run begins, there is nothing to save


def train(recipe: str | Path | Mapping[str, Any], **keywords: Any) -> Path:
    """Trains the agent of a recipe and returns the folder of the run.

    The keywords are those of `chunks`.
    """
    with keep_directory():
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
    trust: bool = True,
    coordinator: str | None = None,
    process: str | None = None,
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
        max_time: seconds, or a duration such as `3h50m`, from the call.
        smoke: runs the whole pipeline with a tiny budget.
        quiet: prints only warnings and errors.
        profile: traces a few iterations, and writes `<run>/profile/table.txt`: how the
            time of an iteration is divided.
        trust: whether the recipe may import code from outside rlcli and its plug-ins,
            and have trackers that contact a host. A recipe that you name may, unless
            you say False.
        coordinator: the address HOST:PORT of the first of several processes that train
            one agent together; `auto`: from the variables of SLURM, Open MPI or
            torchrun. Only the first process writes the run.
        process: this process and their number: `0/4`.
    """
    chunks = _chunks(
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
        trust=trust,
        coordinator=coordinator,
        process=process,
    )
    return keep_in_steps(chunks)


@resolves(recipes="recipe", new=("runs", "run"))
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
    coordinator: str | None = None,
    process: str | None = None,
    quiet: bool = False,
    trust: bool = True,
    **keywords: Any,
) -> Generator[Chunk, None, Path]:
    """Implements `chunks`; `ends_at_log_points`: whether chunks end at log points."""
    sets = [*set]
    sets += [] if seed is None else [f"train.seed={seed}"]
    sets += [] if seeds is None else [f"train.seeds={seeds}"]
    group = processes.parse_group(coordinator, process)

    def find_errors() -> str:
        """Finds errors that need no JAX, and returns the name of the recipe."""
        name = check_single(recipe, sets)
        if group.is_first:
            creation.check_place(runs, run)
        return name

    def set_threads() -> str:
        warning = thread_layout.apply_for_recipe(
            recipe, set=sets, seeds=seeds, processes=group.count
        )
        processes.join(group)
        return warning

    generator = train_chunks(
        find_errors,
        set_threads,
        lambda: local_recipe(group, load_to_train(recipe, sets, trust=trust)),
        recipe,
        local_place(
            group,
            {
                "runs": runs,
                "run": run,
                "name": None if name is None else check_name(name),
                "tags": check_tags(tag),
                "overrides": sets,
            },
        ),
        ends_at_log_points=ends_at_log_points,
        quiet=quiet or not group.is_first,
        trust=trust,
        **keywords,
    )
    close_at_exit(generator)
    return generator


def check_single(recipe: str | Path | Mapping[str, Any], sets: Sequence[str]) -> str:
    """Finds errors in the recipe of a single run without JAX, and returns its name."""
    name = check_document(recipe, sets)
    refuse_combinations(recipe, sets, name, "`rlcli.train_all` trains them")
    return name


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
    trust: bool = True,
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
    deadline = deadline_of(max_time)
    with (
        explain_file_errors(),
        Monitor(title=find_errors(), quiet=quiet, hint=CTRL_C) as monitor,
    ):
        monitor.set_phase("loading JAX")
        warning = set_threads()
        from rlcli.assembly import record_data
        from rlcli.training.compile_phases import TRACING, report_compilation

        monitor.set_phase(TRACING)
        with report_compilation(monitor.set_phase):
            full_recipe = load()
            recipe = smoke_recipe(full_recipe) if smoke else full_recipe
            recipe = record_data(recipe)
            experiment = _build_experiment(recipe, ends_at_log_points)
            text = recipe.resolved_text
            run = creation.create_run(
                recipe.name,
                written=recipe.document.text or text,
                resolved=text,
                changes=find_recipe_changes(full_recipe, source, trust=trust),
                **place,
            )
            members = [ActiveRun(run, experiment)]
            with run.lock(), catch_signals([run]) as signals:
                begin_runs(members, smoke)
                chunks = run_chunks(
                    members,
                    signals,
                    deadline,
                    monitor,
                    warning,
                    *describe_begin(run),
                    profile=profile,
                )
                yield from run_in_memory(members, chunks)
    return run.folder


def _build_experiment(recipe: Recipe, ends_at_log_points: bool) -> Experiment:
    """Builds and checks a new experiment."""
    from rlcli.assembly import build, out_of_memory
    from rlcli.loop.log import MAX_LOG_POINTS
    from rlcli.training.experiment import Experiment

    out_of_memory.check_recipe(recipe, recipe.train.seeds)
    experiment = Experiment(recipe, build(recipe))
    experiment.log_rows.max_points = 1 if ends_at_log_points else MAX_LOG_POINTS
    experiment.program.check()
    return experiment


def begin_runs(members: Sequence[ActiveRun], smoke: bool) -> None:
    """Records new runs and begins them; removes their folders if that fails."""
    from rlcli.assembly import out_of_memory
    from rlcli.runs.code import copy_code

    program = members[0].experiment.program
    facts = provenance.collect_provenance()
    try:
        for run, experiment in members:
            run.sign_lock()
            run.write_info(
                **facts,
                layout=threads.current_layout(program.setup.all_devices),
                seeds=list(experiment.setup.seeds),
                smoke=smoke,
            )
            run.write_info(**copy_code(run, experiment.recipe))
        with out_of_memory.explain_out_of_memory("this run", program.memory):
            program.begin()
    except RlcliError:
        for run, _ in members:
            run.discard()
        raise


def find_recipe_changes(
    recipe: Recipe, source: str | Path | Mapping[str, Any], *, trust: bool = True
) -> Differences | None:
    """What differs from the built-in recipe of the same name, else from the source."""
    original = shipped_recipes().get(recipe.name, source)
    try:
        with user_code.keep_search():
            before = load_recipe(original, trusted=trust)
            return find_differences(resolve(before), resolve(recipe))
    except RlcliError:  # a recipe that is incomplete without `--set`
        return None


def smoke_recipe(recipe: Recipe) -> Recipe:
    """The recipe with a budget of seconds: every part runs, the agent hardly learns."""
    from rlcli.assembly import build  # here: imports JAX

    train = recipe.train
    unroll_size = train.unroll * recipe.num_envs
    iterations = math.ceil(4 / min(1, train.updates))  # so that some include updates
    if recipe.replay is not None:  # it may have to wait for long sequences
        early = dataclasses.replace(train, start=0)
        agent = build(dataclasses.replace(recipe, train=early)).agent
        numbers = itertools.count(iterations)
        iterations = next(
            number for number in numbers if agent.count_updates(number) >= 4
        )
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
