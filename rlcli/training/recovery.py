"""Recovery: restores the recipe and the seeds of a run that is resumed.

A checkpoint contains recipe, seeds and thread layout, so a run can be resumed without
its other files. The files of the folder have to agree with the checkpoint: a run never
continues as a different one.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

from rlcli.errors import RlcliError, quote, shorten
from rlcli.recipe import Recipe, documents, load_recipe, resolve
from rlcli.runs import code, provenance, run_folder
from rlcli.runs.differences import Differences, continue_differences, find_differences
from rlcli.runs.files import replace_file, to_json, write_json
from rlcli.runs.records import COMPLETE
from rlcli.runs.run_folder import Run
from rlcli.runs.snapshots import CheckpointContent, read_checkpoint
from rlcli.training.experiment.experiment import Experiment

# Options that a resume may change: the length of the run, what it writes, its devices,
# and what a failed environment does.
CHANGEABLE = (
    *("steps", "stop", "log", "evaluate", "checkpoint", "trackers"),
    *("devices", "data_parallel", "on_error"),
)
_MAX_LISTED = 5  # differences in a message


def newest_readable(run: Run) -> tuple[CheckpointContent | None, list[str]]:
    """The newest readable checkpoint, and messages about newer unreadable ones.

    None if the run has not written a checkpoint yet.
    """
    errors: list[RlcliError] = []
    for path in run.newest_first():
        try:
            saved = read_checkpoint(path)
        except RlcliError as error:
            errors.append(error)
            continue
        return saved, [f"{e.message}; continuing from `{path.name}`" for e in errors]
    if errors:
        raise errors[0]
    info = run.read_info()
    status = info.get("status")
    if status == "failed" and info.get("frozen"):  # it would freeze again
        raise RlcliError(
            f"run `{run.folder}` failed before its first checkpoint: "
            f"{info.get('reason', '')}",
            "there is nothing to resume: change the recipe and train a new run",
        )
    if run.is_missing_checkpoints() or status in COMPLETE:
        raise RlcliError(
            f"run `{run.folder}` cannot be resumed: its checkpoints are missing",
            "restore the files in its folder `checkpoints`, or train a new run",
        )
    return None, []


def is_frozen(run: Run) -> bool:
    """Whether a run has ended because its seeds are frozen, not by another error."""
    info = run.read_info()
    frozen = info.get("frozen")
    if info.get("status") != "failed" or not frozen:
        return False
    train = (run.resolved_data() or {}).get("train") or {}
    return len(frozen) == len(info.get("seeds", ())) or train.get("on_nan") == "stop"


def newest_common(
    runs: Sequence[Run],
) -> tuple[list[CheckpointContent | None], list[str]]:
    """The newest checkpoints of the same step of runs that were trained together.

    None for a frozen run, whose checkpoint is older, and None for all if they start
    over. Also returns messages about newer unreadable checkpoints.
    """
    if len(runs) == 1:
        saved, messages = newest_readable(runs[0])
        return [saved], messages
    alive = [run for run in runs if not is_frozen(run)]
    names = [[path.name for path in run.newest_first()] for run in alive]
    common = {*names[0]}.intersection(*names)
    messages: list[str] = []
    for name in filter(common.__contains__, names[0]):
        try:
            found = [
                read_checkpoint(run.checkpoints / name) if run in alive else None
                for run in runs
            ]
        except RlcliError as error:
            messages.append(error.message)
            continue
        return found, [f"{each}; continuing from `{name}`" for each in messages]
    if not all(names):  # some have no checkpoint: refused, or nothing was saved yet
        for run in alive:
            if not run.list_checkpoints():
                newest_readable(run)
        return [None] * len(runs), []
    raise RlcliError(
        f"`{runs[0].folder}` and the runs trained with it have no readable checkpoint "
        f"of the same step{''.join(f'; {each}' for each in messages)}",
        "train them again",
    )


class RecordedRecipe(NamedTuple):
    """The recipe of a run that is resumed, and what it may do."""

    before: Recipe
    after: Recipe  # with the options that the resume changes
    admission: code.Admission


def recorded_recipe(
    run: Run, saved: CheckpointContent | None, sets: Sequence[str], trust: bool | None
) -> RecordedRecipe:
    """The recipe of the run, before and after applying `sets`.

    The folder and the checkpoint have to agree, except for `CHANGEABLE` options. If
    `resolved.yaml` is missing, the recipe comes from the checkpoint. Unless they are
    trusted, only `sets` can name trackers that reach beyond the folder.
    """
    data, saved_data = run.resolved_data(), None
    if saved is not None:
        source = str(saved.path)
        saved_data = documents.load_document(saved.recipe, source=source).data
    loaded = [each for each in (data, saved_data) if each is not None]
    admission = code.admit_code(run.folder, loaded, trust)
    trusted = admission.code
    if saved is not None and saved_data is not None:
        if data is not None and data != saved_data:
            _refuse_differences(
                load_recipe(data, trusted=trusted, is_stored=True),
                load_recipe(saved_data, trusted=trusted, is_stored=True),
                f"`{run.resolved_recipe}` and `{saved.path.name}` belong to different "
                "runs",
                f"remove `{run.resolved_recipe}`: `rlcli resume` restores it from the "
                "checkpoint",
            )
        data = data or saved_data
    if data is None:
        raise RlcliError(
            f"run `{run.folder}` has no recipe: it ended before it wrote one",
            "there is nothing to resume: train a new run",
        )
    before = load_recipe(data, trusted=trusted, is_stored=True)
    after = load_recipe(data, list(sets), trusted=trusted, is_stored=True)
    if not admission.trackers:
        _refuse_remote_trackers(run, after, sets)
    names = ", ".join(f"`train.{name}`" for name in CHANGEABLE)
    _refuse_differences(
        after,
        before,
        "a run cannot be resumed with another recipe",
        f"only {names} can change; `rlcli train` starts a new run",
    )
    after = dataclasses.replace(after, name=_recipe_name(run))
    return RecordedRecipe(before, after, admission)


def have_equal_code(runs: Sequence[Run]) -> bool:
    """Whether runs that are trained together have recorded the same code."""
    records = [run.read_info().get("code", {}) for run in runs]
    return all(each == records[0] for each in records)


def _refuse_remote_trackers(run: Run, recipe: Recipe, sets: Sequence[str]) -> None:
    """Refuses trackers that would contact a host because a file says so."""
    keys = {setting.partition("=")[0].strip() for setting in sets}
    if "train.trackers" in keys or not recipe.remote_trackers:
        return
    name = quote(recipe.remote_trackers[0])
    raise RlcliError(
        f"the recipe of run `{run.folder}` has tracker {name}, which can contact a "
        "host or write outside the run's folder",
        "pass `--trust` if you trust the source of the run, or choose its trackers, as "
        "in `--set train.trackers=[]`",
    )


def recorded_seeds(
    run: Run, saved: CheckpointContent | None, recipe: Recipe
) -> list[int]:
    """The seeds of a run; recipe, `run.json` and checkpoint have to agree on them."""
    train = recipe.train
    seeds = [*range(train.seed, train.seed + train.seeds)]
    recorded = {str(run.info): run.read_info().get("seeds", seeds)}
    if saved is not None:
        recorded[str(saved.path)] = [*saved.seeds]
    for source, other_seeds in recorded.items():
        if other_seeds != seeds:
            raise RlcliError(
                f"`{source}` has the seeds {_shorten(other_seeds)}, but the recipe of "
                f"the run has {_shorten(seeds)}",
                "restore the file: a run cannot be resumed with other seeds",
            )
    return seeds


def changed_versions(saved: CheckpointContent | None) -> Differences:
    """The versions that wrote a checkpoint, where today's differ, with today's."""
    written = {} if saved is None else saved.circumstances["versions"]
    return {
        name: (written[name], version)
        for name, version in provenance.versions().items()
        if name in written and written[name] != version
    }


def refuse_too_short(experiment: Experiment) -> None:
    """Refuses to resume a run with fewer steps than it has made."""
    if experiment.iterations < experiment.iteration:
        raise RlcliError(
            f"the run has already made {experiment.step:,} steps: `train.steps` cannot "
            f"be {experiment.recipe.train.steps:,}",
            f"set `train.steps` to at least {experiment.step:,}",
        )


def record_changes(run: Run, before: Recipe, after: Recipe) -> dict[str, Any]:
    """Fields of `run.json` after a resume; {} if the recipe stays as it is."""
    changes = run.read_info().get("changes")
    later = find_differences(resolve(before), resolve(after))
    if not later:
        return {}
    fields: dict[str, Any] = {"trackers": after.remote_trackers}
    if changes is not None:
        fields["changes"] = continue_differences(changes, later)
    return fields


def rewrite(run: Run, recipe: Recipe, saved: CheckpointContent | None) -> None:
    """Writes the recipe with its changes, and files that are missing."""
    text = recipe.resolved_text.encode()
    replace_file(run.resolved_recipe, text)
    if not run.recipe.exists():
        replace_file(run.recipe, text)
    if saved is not None and not run.read_info():
        fields = {
            "recipe": recipe.name,
            "status": "running",
            "seeds": saved.seeds,
            "imports": recipe.import_paths,
            "trackers": recipe.remote_trackers,
            **saved.circumstances,
            "rewritten": run_folder.timestamp(),
        }
        write_json(run.info, fields)


def _recipe_name(run: Run) -> str:
    return run.read_info().get("recipe") or run.folder.absolute().parent.name


def _refuse_differences(own: Recipe, other: Recipe, message: str, hint: str) -> None:
    """Refuses two recipes that differ in options other than `CHANGEABLE`."""
    changeable = {field: getattr(other.train, field) for field in CHANGEABLE}
    own = dataclasses.replace(own, train=dataclasses.replace(own.train, **changeable))
    if own == other:
        return
    differences = [
        f"`{place}` is {_shorten(after)}, not {_shorten(before)}"
        for place, (before, after) in find_differences(
            resolve(other), resolve(own)
        ).items()
    ]
    surplus = len(differences) - _MAX_LISTED
    more = f", and {surplus} more" if surplus > 0 else ""
    raise RlcliError(f"{message}: {', '.join(differences[:_MAX_LISTED])}{more}", hint)


def _shorten(value: Any) -> str:
    return shorten(to_json(value))
