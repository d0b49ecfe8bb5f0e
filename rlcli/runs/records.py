"""Records: the facts in the folder of a run, as plain data.

Reads small files and the end of the metrics only, so that a thousand runs can be read
in less than a second. Imports no JAX.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rlcli.errors import RlcliError
from rlcli.runs.files import DAMAGES
from rlcli.runs.metrics import read_last_rows
from rlcli.runs.run_folder import INFO_FIELDS, SUFFIX, TIME, Run

Record = dict[str, Any]
FIELDS = (
    *("run", "recipe", "name", "tags", "changes", "smoke", "status", "reason"),
    *("steps", "total_steps", "steps_per_second", "seeds", "frozen", "return"),
    *("created", "ended", "command", "init"),
)
UNFINISHED = ("created", "running")  # as long as there is a process
COMPLETE = ("finished", "stopped")  # by its steps, or by `train.stop`


def read_record(folder: str | Path) -> Record:
    """The record of a run, with all `FIELDS`; never raises an error.

    `status` is that of `run.json`, or `killed` if the run has no process any more, or
    `broken` if its files cannot be read; then `reason` says why.

    `return` is `{"mean", "iqm", "ci95", "seeds", "step", "source"}`: statistics over
    seeds of their mean returns in the last `evaluation`, or else of the running means
    in `training`; `seeds` are the values. None if no episode has finished.
    """
    run = Run(Path(folder))
    record: Record = dict.fromkeys(FIELDS) | {"run": str(folder), "tags": []}
    if match := TIME.match(run.folder.name):  # in case `run.json` is lost
        date, _, clock = match[1].partition("T")
        record["created"] = f"{date}T{clock.replace('-', ':')}Z"
    try:
        _read_into(record, run)
    except RlcliError as error:
        record |= {"status": "broken", "reason": error.message}
    except (OSError, *DAMAGES) as error:
        reason = f"a file has unexpected content: {error!r}"
        record |= {"status": "broken", "reason": reason}
    return record


def _read_into(record: Record, run: Run) -> None:
    info = run.read_info()
    # Others are no fields of `run.json`, so its reader has not checked them.
    known = [name for name in FIELDS if name in INFO_FIELDS]
    record |= {name: info[name] for name in known if name in info}
    if not info:
        raise RlcliError(f"`{run.info}` is missing or empty")
    record["status"] = find_status(run, info)
    record["frozen"] = len(info.get("frozen") or {})
    index = run.read_index()
    latest = str(index.get("latest", "")).removesuffix(SUFFIX)
    seeds, has_best = len(info.get("seeds", ())), "best" in index
    rows, evaluation = read_last_rows(run.folder, seeds, with_evaluation=has_best)
    steps = [row["T"] for row in (*rows[:1], *evaluation[:1])]
    record["steps"] = max([*steps, int(latest) if latest.isdecimal() else 0])
    if rows:
        record["steps_per_second"] = rows[-1].get("steps_per_second")
    record["return"] = summarize_returns(rows, evaluation)


def find_status(run: Run, info: Mapping[str, Any] | None = None) -> str:
    """The status of a run; `killed` if it has not ended but has no process.

    `info`: the content of `run.json`, if it was just read.
    """
    status = _status_in(info or run.read_info(), run)
    if status in UNFINISHED and run.is_abandoned():
        status = _status_in(run.read_info(), run)  # it may just have ended
        return "killed" if status in UNFINISHED else status
    return status


def _status_in(info: Mapping[str, Any], run: Run) -> str:
    status = info.get("status")
    if status is None:
        message = f"`{run.info}` is missing or has no `status`"
        raise RlcliError(message, f"`{run.command('resume')}` recreates the file")
    return status


def summarize_returns(
    rows: Sequence[Mapping[str, Any]], evaluation: Sequence[Mapping[str, Any]]
) -> dict[str, Any] | None:
    """The field `return` of a record, from rows of a log point and an evaluation."""
    source, group = "evaluation", evaluation
    values = [row["evaluation"]["mean"] for row in evaluation]
    if not evaluation:
        source, group = "training", rows
        values = [row.get("avg_G") for row in rows]
    if all(value is None for value in values):
        return None
    numbers = [float("nan") if value is None else float(value) for value in values]
    step = group[0]["T"]
    return {**_summary(numbers), "seeds": values, "step": step, "source": source}


def _summary(values: Sequence[float]) -> dict[str, Any]:
    if len(values) == 1:  # spares a thousand runs a fifth of a second, and NumPy
        return {"mean": values[0], "iqm": values[0], "ci95": None}
    from rlcli.runs.statistics import summary  # here: imports NumPy

    return summary(values)
