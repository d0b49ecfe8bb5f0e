"""New run: trains new runs; the functions behind `rlcli train`.

They import JAX only when they run, after the thread layout is set.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Generator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from rlcli.errors import RlcliError
from rlcli.recipe import (
    AnyRecipe,
    Recipe,
    RecipeDocument,
    check_document,
    init_settings,
    load_recipe,
    load_to_train,
    read_recipe,
    resolve,
    seed_settings,
    shipped_recipes,
)
from rlcli.registry import user_code
from rlcli.registry.paths import keep_in_steps, resolves
from rlcli.runs import creation, provenance, thread_layout
from rlcli.runs.differences import Differences, describe_origin, find_differences
from rlcli.runs.files import explain_file_errors
from rlcli.runs.hook_records import read_hook_records
from rlcli.runs.naming import check_name, check_tags
from rlcli.runs.run_folder import Run
from rlcli.training.budgets import short_recipe, smoke_recipe
from rlcli.training.hook import Chunk
from rlcli.training.process_group import local_place, local_recipe
from rlcli.training.session import close_at_exit, open_session
from rlcli.xla import processes, threads
from rlcli.xla.processes import ALONE, ProcessGroup

if TYPE_CHECKING:
    from rlcli.training.experiment.experiment import ActiveRun


class NewRun(NamedTuple):
    """A run to train: its recipe with the settings for it, and its place."""

    recipe: RecipeDocument
    place: Mapping[str, Any]  # the keywords of `create_run`, and fields of `run.json`


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainRequest:
    """How new runs are trained."""

    # Without a default: who forgets it must not trust. None only with `original`, see
    # `code.admit_code`.
    trust: bool | None
    max_time: str | float | None = None  # see `train`, as for most others
    smoke: bool = False
    quiet: bool = False
    profile: bool = False
    debug: bool = False
    group: ProcessGroup = ALONE
    ends_at_log_points: bool = False  # whether chunks end there
    steps: int | None = None  # of a short run, see `short_recipe`
    is_short: bool = False
    original: Run | None = None  # the run that is reproduced: its threads and its code

    @property
    def is_smoke(self) -> bool:
        """Whether the budget is tiny, also as that of the original."""
        original = self.original.read_info() if self.original else {}
        return self.smoke or self.debug or bool(original.get("smoke"))


@resolves(recipes="recipe", new=("runs", "run"))
def train(
    recipe: AnyRecipe,
    *,
    set: Sequence[str] = (),
    init: str | Path | None = None,
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
    debug: bool = False,
    trust: bool = True,
    coordinator: str | None = None,
    process: str | None = None,
) -> Path:
    """Trains the agent of a recipe and returns the folder of the run.

    Args:
        recipe: a file, the name of a built-in recipe, or the data of a recipe.
        set: options that replace the recipe's, such as `train.steps=10_000`.
        init: a run, checkpoint or policy whose parameters the run starts from.
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
        debug: runs as `smoke` does, one seed without `jit`, so that `print` and
            `breakpoint()` show numbers; raises an error that names the layer, the term
            of the loss and the line where a number is not finite.
        trust: whether the recipe may import code from outside rlcli and its plug-ins,
            and have trackers that contact a host. A recipe that you name may, unless
            you say False.
        coordinator: the address HOST:PORT of the first of several processes that train
            one agent together; `auto`: from the variables of SLURM, Open MPI or
            torchrun. Only the first process writes the run.
        process: this process and their number: `0/4`.
    """
    chunk = _begin(locals(), ends_at_log_points=False)
    while True:
        try:
            next(chunk)
        except StopIteration as end:  # possibly before the first chunk: `max_time`
            return end.value


@resolves(recipes="recipe", new=("runs", "run"))
def chunks(
    recipe: AnyRecipe,
    *,
    set: Sequence[str] = (),
    init: str | Path | None = None,
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
    debug: bool = False,
    trust: bool = True,
    coordinator: str | None = None,
    process: str | None = None,
) -> Generator[Chunk, None, Path]:
    """Trains as `train` does, and yields after every chunk of iterations.

    A chunk ends at the latest at the next log point, evaluation or checkpoint. Closing
    the generator early ends the run with a checkpoint. The arguments are those of
    `train`.
    """
    return keep_in_steps(_begin(locals(), ends_at_log_points=True))


def _begin(
    given: Mapping[str, Any], *, ends_at_log_points: bool
) -> Generator[Chunk, None, Path]:
    """The chunks of a new run, given the arguments of `train` by name."""
    sets = [*given["set"], *init_settings(given["init"])]
    sets += seed_settings(given["seed"], given["seeds"])
    group = processes.parse_group(given["coordinator"], given["process"])
    name = given["name"]
    place = {
        "runs": given["runs"],
        "run": given["run"],
        "name": None if name is None else check_name(name),
        "tags": check_tags(given["tag"]),
        "overrides": sets,
    }
    options = ("max_time", "smoke", "profile", "debug", "trust")
    generator = train_chunks(
        [NewRun(read_recipe(given["recipe"], sets), local_place(group, place))],
        TrainRequest(
            **{key: given[key] for key in options},
            quiet=given["quiet"] or not group.is_first,
            group=group,
            ends_at_log_points=ends_at_log_points,
        ),
    )
    close_at_exit(generator)
    return generator


def train_together(runs: Sequence[NewRun], *, trust: bool, **keywords: Any) -> None:
    """Trains runs in one program; the keywords are those of `TrainRequest`."""
    for _ in train_chunks(runs, TrainRequest(trust=trust, **keywords)):
        pass


def train_chunks(
    new_runs: Sequence[NewRun], request: TrainRequest
) -> Generator[Chunk, None, Path]:
    """Trains new runs; does nothing until the first chunk is requested.

    Several runs are trained together: they must form one group of `group_recipes`.
    Yields the chunks of the first run, and returns its folder.
    """
    _check(new_runs, request)
    title = new_runs[0].recipe.name
    keywords = {"max_time": request.max_time, "quiet": request.quiet}
    with open_session(title, **keywords) as session:
        session.begin_tracing(_set_threads(new_runs, request), request.group)
        from rlcli.training.experiment.experiment import ActiveRun
        from rlcli.training.experiment.together import build_experiments
        from rlcli.training.run_loop import run_chunks

        trust, warning = _admit(new_runs, request)
        loaded = [load_to_train(new.recipe, trust=trust) for new in new_runs]
        changes = [
            find_recipe_changes(recipe, new.recipe, trust=trust)
            for recipe, new in zip(loaded, new_runs, strict=True)
        ]
        recipes = [_limit(recipe, request) for recipe in loaded]
        train = recipes[0].train
        seeds = range(train.seed, train.seed + train.seeds)
        experiments = build_experiments(recipes, seeds, is_new=True)
        experiments[0].program.check()
        experiments[0].program.debugs = request.debug
        recipes = [experiment.recipe for experiment in experiments]
        runs = _create_runs(new_runs, recipes, changes)
        members = [*map(ActiveRun, runs, experiments)]
        session.hold(runs)
        messages = begin_runs(members, request.is_smoke, sign=trust)
        if request.ends_at_log_points:
            experiments[0].log_rows.max_points = 1
        messages += describe_origin(request.original, runs[0], warning)
        yield from run_chunks(
            session,
            members,
            messages,
            profile=request.profile,
            replayed=read_hook_records(request.original) if request.original else (),
        )
    return runs[0].folder


def check_single(recipe: AnyRecipe, sets: Sequence[str] = ()) -> RecipeDocument:
    """Finds errors in the recipe of a single run, without JAX."""
    checked = check_document(recipe, sets)
    checked.refuse_combinations("`rlcli.study` trains them")
    return checked


@explain_file_errors()
def _check(new_runs: Sequence[NewRun], request: TrainRequest) -> None:
    """Refuses what can be seen to be wrong before JAX is imported."""
    for recipe, place in new_runs:
        if request.original is None:
            check_single(recipe)
        if request.group.is_first:
            creation.check_place(place.get("runs", "runs"), place.get("run"))


def _set_threads(new_runs: Sequence[NewRun], request: TrainRequest) -> str:
    """Sets the threads, before JAX is imported; returns a warning."""
    count = request.group.count
    if request.original is not None:
        return thread_layout.apply_for_run(request.original.folder, processes=count)
    recipe, runs = new_runs[0].recipe, len(new_runs)
    return thread_layout.apply_for_recipe(recipe, runs=runs, processes=count)


def _admit(new_runs: Sequence[NewRun], request: TrainRequest) -> tuple[bool, str]:
    """Whether the recipes may import code, and a warning about that of the original."""
    if request.original is None:
        return bool(request.trust), ""
    from rlcli.runs import code  # here: imports JAX

    recipes = [new.recipe.merged_document.data for new in new_runs]
    admission = code.admit_code(request.original.folder, recipes, request.trust)
    return admission.code, admission.warning


def _limit(recipe: Recipe, request: TrainRequest) -> Recipe:
    """The recipe as this process trains it: its budget, its trackers, and its data."""
    from rlcli.assembly import record_data

    recipe = local_recipe(request.group, recipe)
    if request.debug:  # every operation takes as long as a whole compiled step
        single = {"seeds": 1, "devices": 1, "data_parallel": 1}
        train = dataclasses.replace(recipe.train, **single)
        recipe = dataclasses.replace(recipe, train=train)
        recipe = smoke_recipe(recipe, updates=2, least_steps=8)
    elif request.smoke:
        recipe = smoke_recipe(recipe)
    elif request.is_short:
        recipe = short_recipe(recipe, request.steps)
    return record_data(recipe)


def _create_runs(
    new_runs: Sequence[NewRun],
    recipes: Sequence[Recipe],
    changes: Sequence[Differences | None],
) -> list[Run]:
    """Creates the folders of runs: all, or none after an error."""
    runs: list[Run] = []
    with creation.discard_on_error(runs):
        for new, recipe, differences in zip(new_runs, recipes, changes, strict=True):
            text = recipe.resolved_text
            written = recipe.document.text or text
            fields = {"changes": differences, **new.place}
            if len(new_runs) > 1:
                fields["members"] = [Path(n.place["run"]).name for n in new_runs]
            run = creation.create_run(
                recipe.name, written=written, resolved=text, **fields
            )
            runs.append(run)
    return runs


def begin_runs(members: Sequence[ActiveRun], smoke: bool, *, sign: bool) -> list[str]:
    """Records new runs and begins them; removes their folders if that fails.

    `sign`: whether they are trusted later. Returns messages if they cannot be signed.
    """
    from rlcli.assembly import out_of_memory
    from rlcli.runs import code

    program = members[0].experiment.program
    facts = provenance.collect_provenance()
    messages: list[str] = []
    with creation.discard_on_error([member.run for member in members]):
        for run, experiment in members:
            run.sign_lock()
            run.write_info(
                **facts,
                layout=threads.current_layout(program.setup.all_devices),
                seeds=list(experiment.setup.seeds),
                smoke=smoke,
            )
            if program.initial is not None:
                program.initial.write(run.init)
                run.write_info(init=program.initial.record())
            fields = code.copy_code(run, experiment.recipe)
            run.write_info(**fields)
            if not sign:
                continue
            try:
                signature = code.sign_run(run, experiment.recipe, fields["code"])
                run.write_info(**signature)
            except RlcliError as error:  # training does not depend on it
                messages = [f"the run will need `--trust`: {error.message}"]
        with out_of_memory.explain_out_of_memory("this run", program.memory):
            program.begin()
    return messages


def find_recipe_changes(
    recipe: Recipe, source: RecipeDocument, *, trust: bool = True
) -> Differences | None:
    """What differs from the built-in recipe of the same name, else from the source."""
    shipped = shipped_recipes().get(recipe.name, source.path)
    original: AnyRecipe = dataclasses.replace(source, sets=())
    if shipped is not None and shipped != source.path:
        original = shipped
    try:
        with user_code.keep_search():
            before = load_recipe(original, trusted=trust)
            return find_differences(resolve(before), resolve(recipe))
    except RlcliError:  # a recipe that is incomplete without `--set`
        return None
