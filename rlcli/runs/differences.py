"""Differences: in what two runs, or two recipes, differ; behind `rlcli diff`."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rlcli.runs.description import is_run_path
from rlcli.runs.formatting import format_differences, format_number_of
from rlcli.runs.locate import locate_run
from rlcli.runs.metrics import drop_clock_fields, read_metrics
from rlcli.runs.records import read_record
from rlcli.runs.run_folder import Run, checkpoint_step

Differences = dict[str, tuple[Any, Any]]  # by dotted key; None where a key is missing


def find_differences(first: Any, second: Any) -> Differences:
    """The differing values of two nested mappings, by dotted key.

    >>> find_differences({"a": {"b": 1, "c": 2}}, {"a": {"b": 1, "c": 3}, "d": 4})
    {'a.c': (2, 3), 'd': (None, 4)}
    """
    return dict(_walk(first, second, ""))


def _walk(first: Any, second: Any, place: str) -> Iterator[tuple[str, tuple[Any, Any]]]:
    if not (isinstance(first, Mapping) and isinstance(second, Mapping)):
        if first != second:
            yield place, (first, second)
        return
    for key in {**first, **second}:
        below = f"{place}.{key}" if place else str(key)
        yield from _walk(first.get(key), second.get(key), below)


def continue_differences(
    before: Mapping[str, Sequence[Any]], later: Differences
) -> Differences:
    """The differences after further changes: `later` are relative to the new values.

    `before` may be that of a file, with lists for pairs.
    """
    result: Differences = {key: (old, new) for key, (old, new) in before.items()}
    for key, (old, new) in later.items():
        first = before[key][0] if key in before else old
        result[key] = (first, new)
    return {key: pair for key, pair in result.items() if pair[0] != pair[1]}


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
    names = (
        str(run.folder if run else path) for run, path in zip(runs, paths, strict=True)
    )
    result: dict[str, Any] = dict(zip(("first", "second"), names, strict=True))
    result["recipe"] = find_differences(*map(_resolved_recipe, paths, runs))
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


def last_step(run: Run) -> int:
    """The last step of a run: of its latest checkpoint, or of its last row."""
    if latest := run.latest_checkpoint():
        return checkpoint_step(latest)
    rows = read_metrics(run.folder)
    return rows[-1]["T"] if rows else 0


def first_difference(original: Run, new: Run, step: int) -> dict[str, Any] | None:
    """The first difference between the metrics of two runs; None if they are equal."""
    first, second = (
        [drop_clock_fields(row) for row in read_metrics(run.folder) if row["T"] <= step]
        for run in (original, new)
    )
    for one, other in zip(first, second, strict=False):
        for key in {**one, **other}:
            if one.get(key) != other.get(key):
                return {
                    "step": one["T"],
                    "seed": one["seed"],
                    "field": key,
                    "values": [one.get(key), other.get(key)],
                }
    if len(first) != len(second):
        rows = max(first, second, key=len)[min(len(first), len(second))]
        return {"step": rows["T"], "seed": rows["seed"], "field": "", "values": []}
    return None


def differing_arrays(original: Run, new: Run, step: int) -> list[str] | None:
    """The paths of differing arrays in two checkpoints of a step.

    None if not both runs have one.
    """
    from rlcli.runs.snapshot_content import CHECKPOINT, read_content

    paths = [run.checkpoint(step) for run in (original, new)]
    if not all(path.is_file() for path in paths):
        return None
    first, second = (read_content(path, CHECKPOINT)["progress"] for path in paths)
    return [
        name
        for name in sorted({*first, *second})
        if name not in first
        or name not in second
        or first[name].tobytes() != second[name].tobytes()
    ]


def describe_origin(original: Run | None, new: Run, warning: str) -> Sequence[str]:
    """What differs now from when the run began that is reproduced, as messages.

    `warning` is one about its code.
    """
    if original is None:
        return ()
    found = diff(original.folder, new.folder)["provenance"]
    resumes = len(original.read_info().get("resumes", []))
    return [
        f"different from the original: {format_differences(found)}"
        if found
        else "versions and machine are those of the original",
        warning,
        f"the original was resumed {format_number_of(resumes, 'time')}: options that a "
        "resume changed apply here from the beginning"
        if resumes
        else "",
    ]
