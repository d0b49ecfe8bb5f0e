"""Run differences: where the metrics and states of two runs differ."""

from collections.abc import Sequence
from typing import Any

from rlcli.runs.diff import diff
from rlcli.runs.formatting import format_differences
from rlcli.runs.metrics import drop_clock_fields, read_metrics
from rlcli.runs.run_folder import Run


def last_step(run: Run) -> int:
    """The last step of a run: of its latest checkpoint, or of its last row."""
    latest = run.latest_checkpoint()
    if latest is not None:
        return int(latest.name.partition(".")[0])
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
    from rlcli.runs import checkpoint

    paths = [run.checkpoint(step) for run in (original, new)]
    if not all(path.is_file() for path in paths):
        return None
    first, second = (checkpoint.read(path)["progress"] for path in paths)
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
        f"the original was resumed {resumes} times: options that a resume changed "
        "apply here from the beginning"
        if resumes
        else "",
    ]
