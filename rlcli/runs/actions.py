"""Actions: what hooks have logged and changed in a run, in its file `actions.jsonl`.

A line has the step `T` at whose end a hook acted, the numbers that it `set`, by their
places in the recipe, and the values that it logged (`log`), one or one of each seed.
The file is written before a checkpoint of that step, so a resume finds the numbers of
its checkpoint, and a reproduction acts at the same steps.
"""

import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from rlcli.errors import RlcliError
from rlcli.runs.files import (
    exists,
    open_regular,
    parse_json,
    read_text,
    replace_file,
    to_json,
)
from rlcli.runs.run_folder import Run

_REMEDY = "restore the file from a copy of the folder"


class Action(NamedTuple):
    """What a hook did at the end of a step."""

    step: int
    numbers: Mapping[str, float]  # that it set, by their places
    values: Mapping[str, Any]  # that it logged: a number, or one of each seed


def read_actions(run: Run) -> list[Action]:
    """The actions of a run in their order; [] if no hook has acted."""
    if not exists(run.actions):
        return []
    actions: list[Action] = []
    for number, line in enumerate(read_text(run.actions, _REMEDY).splitlines(), 1):
        try:
            actions.append(_parse(parse_json(line), actions))
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
            message = f"`{run.actions}` is damaged: line {number} is not an action"
            raise RlcliError(message, _REMEDY) from None
    return actions


def write_actions(run: Run, actions: Sequence[Action]) -> None:
    """Replaces the actions of a run."""
    lines = [
        to_json({"T": each.step, "set": each.numbers, "log": each.values})
        for each in actions
    ]
    replace_file(run.actions, "".join(f"{line}\n" for line in lines).encode())


def append_action(run: Run, action: Action) -> None:
    """Adds an action, so that a process that is killed does not forget it."""
    record = {"T": action.step, "set": action.numbers, "log": action.values}
    flags = os.O_APPEND | os.O_CREAT | os.O_WRONLY
    with open_regular(run.actions, flags, "ab") as file:
        file.write(f"{to_json(record)}\n".encode())
        file.flush()
        os.fsync(file.fileno())


def _parse(data: Any, before: Sequence[Action]) -> Action:
    step, numbers, values = data["T"], data["set"], data["log"]
    least = before[-1].step if before else 0
    if type(step) is not int or step < least or {*data} != {"T", "set", "log"}:
        raise ValueError("no step, or steps in another order")
    lists = [each if isinstance(each, list) else [each] for each in values.values()]
    for number in [*numbers.values(), *(x for each in lists for x in each)]:
        if type(number) not in (int, float, type(None)):
            raise ValueError("no number")
    if None in numbers.values():
        raise ValueError("no number")
    return Action(step, numbers, values)
