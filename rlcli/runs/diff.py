"""Diff: what differs between two runs or recipes; behind `rlcli diff`."""

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rlcli.runs.description import is_run_path
from rlcli.runs.differences import find_differences
from rlcli.runs.locate import locate_run
from rlcli.runs.records import read_record
from rlcli.runs.run_folder import Run

PROVENANCE = (  # fields of `run.json`
    *("python", "versions", "git", "platform", "processor", "cores", "layout", "smoke"),
)
RESULTS = ("status", "steps", "steps_per_second", "return")


def diff(first: str | Path, second: str | Path) -> dict[str, Any]:
    """Compares two runs, two recipes, or a run and a recipe.

    Returns `{"first", "second", "recipe", "provenance", "seeds", "results"}`. `recipe`
    and `provenance` are the differing values by dotted key, `{"train.steps": (1, 2)}`,
    with None where a key is missing; `seeds` are both lists of seeds, or None if they
    are equal; `results` are both values of `status`, `steps`, `steps_per_second` and
    `return` (see `rlcli.runs.records`). Unless both are runs, the last three are None.

    Two runs are compared without importing JAX.
    """
    paths = (first, second)
    runs = [locate_run(path) if is_run_path(path) else None for path in paths]
    names = [
        str(run.folder if run else path) for run, path in zip(runs, paths, strict=True)
    ]
    result: dict[str, Any] = {
        "first": names[0],
        "second": names[1],
        "recipe": find_differences(*map(_resolved_recipe, paths, runs)),
    }
    return result | _compare_runs([run for run in runs if run])


def _resolved_recipe(path: str | Path, run: Run | None) -> dict[str, Any]:
    if run is not None:
        from rlcli.recipe import documents  # here: takes a fifth of a second

        text, source = run.read_resolved(), str(run.resolved_recipe)
        return documents.load_document(text, source=source).data
    from rlcli.recipe import load_recipe, resolve

    return resolve(load_recipe(path))


def _compare_runs(runs: Sequence[Run]) -> dict[str, Any]:
    """Provenance, seeds and results of two runs; None for less than two."""
    if len(runs) < 2:
        return dict.fromkeys(("provenance", "seeds", "results"))
    records = [read_record(run.folder) for run in runs]
    seeds = tuple(record["seeds"] for record in records)
    return {
        "provenance": find_differences(*map(_provenance, runs)),
        "seeds": None if seeds[0] == seeds[1] else seeds,
        "results": {
            name: tuple(record[name] for record in records) for name in RESULTS
        },
    }


def _provenance(run: Run) -> dict[str, Any]:
    """The provenance of a run, with a fingerprint of the diff in place of its text."""
    info = run.read_info()
    fields = {name: info[name] for name in PROVENANCE if name in info}
    git = fields.get("git")
    if isinstance(git, Mapping) and git.get("diff"):
        text = str(git["diff"])
        digest = hashlib.sha256(text.encode()).hexdigest()[:7]
        fields["git"] = {**git, "diff": f"{digest} ({text.count(chr(10))} lines)"}
    return fields
