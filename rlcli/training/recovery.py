"""Recovery: what a resumed run is, from its folder and its newest checkpoint.

A checkpoint holds recipe, seeds and layout, so a run can be resumed without its other
files, and what the folder says is compared with it: a run never continues as another.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rlcli.errors import RlcliError
from rlcli.recipe import Recipe, documents, dump_recipe, load_recipe, resolve
from rlcli.runs import run_folder
from rlcli.runs.files import replace_file, to_json, write_json
from rlcli.runs.run_folder import Run
from rlcli.runs.snapshots import Saved, read_checkpoint

if TYPE_CHECKING:
    from rlcli.training.experiment import Experiment

# What may be set anew: how long a run is, and what is written while it lasts.
CHANGEABLE = ("steps", "stop", "log", "evaluate", "checkpoint")
_NAMED = 5  # differences in a message


def newest_sound(run: Run) -> tuple[Saved | None, list[str]]:
    """The newest checkpoint that can be read, and messages about newer ones.

    None where the run has not written one yet.
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
    if status == "failed":
        raise RlcliError(
            f"run `{run.folder}` failed before its first checkpoint: "
            f"{info.get('reason', '')}",
            "there is nothing to continue: change the recipe and train anew",
        )
    if run.is_missing_checkpoints() or status in ("finished", "stopped"):
        raise RlcliError(
            f"run `{run.folder}` cannot be resumed: its checkpoints are gone",
            "copy them back into its folder `checkpoints`, or train a new run",
        )
    return None, []


def recorded_recipe(
    run: Run, saved: Saved | None, sets: Sequence[str], trust: bool
) -> tuple[Recipe, Recipe]:
    """The recipe of the run, and the same with what `sets` changes.

    The folder and the checkpoint have to agree, but for what may be changed. Where
    `resolved.yaml` is lost, the recipe comes from the checkpoint.
    """
    data = _resolved_data(run)
    if saved is not None:
        source = str(saved.path)
        saved_data = documents.load_document(saved.recipe, source=source).data
        if data is not None and data != saved_data:
            _refuse_differences(
                load_recipe(data, trusted=trust),
                load_recipe(saved_data, trusted=trust),
                f"`{run.resolved_recipe}` and `{saved.path.name}` are of different "
                f"runs",
                f"remove `{run.resolved_recipe}`: it is written again from the "
                f"checkpoint",
            )
        data = data or saved_data
    if data is None:
        raise RlcliError(
            f"run `{run.folder}` was ended before it began, and has no recipe",
            "there is nothing to continue: train a new run",
        )
    before = load_recipe(data, trusted=trust)
    after = load_recipe(data, list(sets), trusted=trust)
    names = ", ".join(f"`train.{name}`" for name in CHANGEABLE)
    _refuse_differences(
        after,
        before,
        "a run cannot be resumed with another recipe",
        f"only {names} may change; `rlcli train` begins a new run",
    )
    return before, dataclasses.replace(after, name=_recipe_name(run))


def recorded_seeds(run: Run, saved: Saved | None, recipe: Recipe) -> list[int]:
    """The seeds of a run, on which recipe, `run.json` and checkpoint have to agree."""
    train = recipe.train
    seeds = [*range(train.seed, train.seed + train.seeds)]
    recorded = {str(run.info): run.read_info().get("seeds", seeds)}
    if saved is not None:
        recorded[str(saved.path)] = [*saved.seeds]
    for source, found in recorded.items():
        if found != seeds:
            raise RlcliError(
                f"`{source}` and the recipe of the run disagree: it has the seeds "
                f"{_shorten(found)}, and the recipe {_shorten(seeds)}",
                "restore the file: a run cannot be resumed with other seeds",
            )
    return seeds


def refuse_too_short(experiment: Experiment) -> None:
    """Refuses to resume a run with fewer steps than it has made."""
    if experiment.iterations < experiment.iteration:
        raise RlcliError(
            f"the run has made {experiment.step:,} steps already: `train.steps` cannot "
            f"be {experiment.recipe.train.steps:,}",
            f"set it to at least {experiment.step:,}",
        )


def rewrite(run: Run, recipe: Recipe, saved: Saved | None) -> None:
    """Writes the recipe as it is resumed, and files that are lost."""
    text = dump_recipe(resolve(recipe)).encode()
    replace_file(run.resolved_recipe, text)
    if not run.recipe.exists():
        replace_file(run.recipe, text)
    if saved is not None and not run.read_info():
        fields = {
            "recipe": recipe.name,
            "status": "running",
            "seeds": saved.seeds,
            **saved.circumstances,
            "rewritten": run_folder.timestamp(),
        }
        write_json(run.info, fields)


def _resolved_data(run: Run) -> dict[str, Any] | None:
    """What `resolved.yaml` holds; None where it is lost or empty."""
    if not run.resolved_recipe.exists() or run.resolved_recipe.stat().st_size == 0:
        return None
    return documents.load_document(run.resolved_recipe).data


def _recipe_name(run: Run) -> str:
    return run.read_info().get("recipe") or run.folder.absolute().parent.name


def _refuse_differences(own: Recipe, other: Recipe, message: str, hint: str) -> None:
    """Refuses two recipes that differ in anything that may not change."""
    held = {field: getattr(other.train, field) for field in CHANGEABLE}
    own = dataclasses.replace(own, train=dataclasses.replace(own.train, **held))
    if own == other:
        return
    found = [*_differences(resolve(own), resolve(other))]
    more = f", and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
    raise RlcliError(f"{message}: {', '.join(found[:_NAMED])}{more}", hint)


def _differences(own: Any, other: Any, place: str = "") -> Iterator[str]:
    """Each option in which two resolved recipes differ, with both values."""
    if not (isinstance(own, Mapping) and isinstance(other, Mapping)):
        if own != other:
            yield f"`{place}` is {_shorten(own)}, not {_shorten(other)}"
        return
    for key in {**other, **own}:
        below = f"{place}.{key}" if place else key
        yield from _differences(own.get(key), other.get(key), below)


def _shorten(value: Any) -> str:
    text = to_json(value)
    return text if len(text) <= 60 else f"{text[:57]}…"
