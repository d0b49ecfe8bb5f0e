"""Reproduce: trains a run again from what it recorded, and compares the two."""

import dataclasses
from pathlib import Path
from typing import Any

from rlcli.errors import RlcliError
from rlcli.recipe import RecipeDocument, read_recipe
from rlcli.registry.paths import resolves
from rlcli.runs.differences import diff, differing_arrays, first_difference, last_step
from rlcli.runs.locate import locate_run
from rlcli.runs.run_folder import Run
from rlcli.training.new_run import NewRun, TrainRequest, train_chunks

TAG = "reproduction"
NO_TRACKERS = "train.trackers=[]"


@resolves("run", new=("runs", "to"))
def reproduce(
    run: str | Path,
    *,
    runs: str | Path = "runs",
    to: str | Path | None = None,
    max_time: str | float | None = None,
    quiet: bool = False,
    trust: bool | None = None,
) -> dict[str, Any]:
    """Trains a run again from what it recorded, and compares the two.

    Uses its recipe without trackers, its seeds, thread layout and copies of your
    modules. Before it begins, it says what differs from then: versions, platform,
    devices, your code.

    Returns `{"run", "reproduction", "provenance", "step", "metrics", "state",
    "identical"}`: both folders, what differs in versions and machine (as `rlcli.diff`
    returns it), the last step that both have reached, the first difference of
    `metrics.jsonl` up to there, the differing arrays of the checkpoints of that step
    (None if not both have one), and whether all bits are equal.

    Args:
        run: the folder of a run.
        runs: creates the new run as `<runs>/<recipe>/<time>`, with the tag
            `reproduction`.
        to: creates the new run in exactly this folder.
        max_time: as for `rlcli.train`; then less is compared.
        quiet: prints only warnings and errors.
        trust: whether the recipe may import code from outside rlcli. By default that of
            your own runs may, see `rlcli.trust`.
    """
    original = locate_run(run)
    if original.read_info().get("population"):
        raise RlcliError(
            f"run `{original.folder}` cannot be reproduced alone: it is a member of a "
            "population, whose numbers have changed",
            "`rlcli sweep export SWEEP FILE --trial N` writes a recipe that makes its "
            "history again",
        )
    end = last_step(original)
    if not end:
        raise RlcliError(
            f"run `{original.folder}` has made no steps to reproduce",
            f"`{original.command('resume')}` continues it",
        )
    place = {"runs": runs, "run": to, "tags": [TAG], "reproduces": str(original.folder)}
    chunks = train_chunks(
        [NewRun(_recorded_recipe(original), place)],
        TrainRequest(max_time=max_time, quiet=quiet, trust=trust, original=original),
    )
    folder = None
    for chunk in chunks:
        folder = chunk.run
        if chunk.step >= end:  # where the original was stopped
            chunks.close()
    if folder is None:
        raise RlcliError(
            "the reproduction ended before its first step", "raise `--max-time`"
        )
    return _compare(original, Run(folder))


def _recorded_recipe(run: Run) -> RecipeDocument:
    """The recipe of a run, without its trackers."""
    data = run.resolved_data()
    if data is None:
        raise RlcliError(
            f"run `{run.folder}` has no recipe: `{run.resolved_recipe}` is missing",
            f"`{run.command('resume')}` restores it from a checkpoint",
        )
    if data.get("init"):  # its source may be gone, or different
        data = {**data, "init": {**data["init"], "from": str(run.init)}}
    name = run.read_info().get("recipe", run.folder.name)
    # What its hooks did is recorded, and happens again.
    recipe = read_recipe(data, [NO_TRACKERS, "train.hooks=[]"], is_stored=True)
    return dataclasses.replace(recipe, name=name)


def _compare(original: Run, new: Run) -> dict[str, Any]:
    """Compares two runs up to the last step that both have reached."""
    step = min(last_step(original), last_step(new))
    metrics = first_difference(original, new, step)
    state = differing_arrays(original, new, step)
    return {
        "run": str(original.folder),
        "reproduction": str(new.folder),
        "provenance": diff(original.folder, new.folder)["provenance"],
        "step": step,
        "metrics": metrics,
        "state": state,
        "identical": metrics is None and not state,
    }
