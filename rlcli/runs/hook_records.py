"""Hook records: what hooks have logged and changed in a run, in its file `hooks.jsonl`.

A line has the step `T` at whose end a hook acted, the numbers that it `set`, by their
places in the recipe, and the values that it logged (`log`), one or one of each seed.
The file is written before a checkpoint of that step, and a reproduction acts at the
same steps. A resume takes the numbers from its checkpoint: the file may be lost, or be
of an earlier time in a copy that was made while the run was training.
"""

import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from rlcli.runs import predicates
from rlcli.runs.files import open_regular, read_records, replace_file, to_json
from rlcli.runs.run_folder import Run
from rlcli.xla.numeric_limits import is_float32


class HookRecord(NamedTuple):
    """What a hook did at the end of a step."""

    step: int
    numbers: Mapping[str, float]  # that it set, by their places
    values: Mapping[str, Any]  # that it logged: a number, or one of each seed


def read_hook_records(run: Run) -> list[HookRecord]:
    """The records of a run in their order; [] if no hook has acted."""
    return read_records(run.hook_records, _parse, " is not a record")


def write_hook_records(run: Run, records: Sequence[HookRecord]) -> None:
    """Replaces the records of a run."""
    replace_file(run.hook_records, "".join(map(_to_line, records)).encode())


def append_hook_record(run: Run, record: HookRecord) -> None:
    """Adds a record, so that a process that is killed does not forget it."""
    flags = os.O_APPEND | os.O_CREAT | os.O_WRONLY
    with open_regular(run.hook_records, flags, "ab") as file:
        file.write(_to_line(record).encode())
        file.flush()
        os.fsync(file.fileno())


def _to_line(record: HookRecord) -> str:
    fields = {"T": record.step, "set": record.numbers, "log": record.values}
    return f"{to_json(fields)}\n"


def _parse(data: Any, before: Sequence[HookRecord]) -> HookRecord:
    step, numbers, values = data["T"], data["set"], data["log"]
    least = before[-1].step if before else 0
    if type(step) is not int or step < least or {*data} != {"T", "set", "log"}:
        raise ValueError("no step, or steps in another order")
    lists = [each if isinstance(each, list) else [each] for each in values.values()]
    logged = [number for each in lists for number in each if number is not None]
    if not all(map(predicates.is_number, [*numbers.values(), *logged])):
        raise ValueError("no number")
    if not all(map(is_float32, numbers.values())):
        raise ValueError("a number that no program can have")
    return HookRecord(step, numbers, values)
