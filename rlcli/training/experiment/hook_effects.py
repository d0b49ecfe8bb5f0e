"""Hook effects: what hooks log and change in a run, now or when it is reproduced.

A hook acts at the end of a chunk. Its values become fields of the rows of that step,
and its numbers hold from the next step on. `runs.hook_records` has both with the step,
before a checkpoint of that step is written.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from rlcli.errors import RlcliError, quote, suggest
from rlcli.monitor.lines import NOT_METRICS
from rlcli.runs.files import exists
from rlcli.runs.hook_records import (
    HookRecord,
    append_hook_record,
    read_hook_records,
    write_hook_records,
)
from rlcli.runs.run_folder import Run
from rlcli.training.experiment.experiment import ChunkReport, Experiment
from rlcli.types import Environment
from rlcli.xla.numeric_limits import is_float32

_ENVIRONMENT = "environment."
_LONGEST = 80  # characters of a name
_MOST = 100  # names that the hooks of a run log


class HookEffects:
    """The effects of the hooks of a run.

    `replayed` are those of another run, which is reproduced: they happen again at the
    ends of the same steps.
    """

    def __init__(
        self, run: Run, experiment: Experiment, replayed: Sequence[HookRecord] = ()
    ) -> None:
        self._run, self._experiment = run, experiment
        self._left = [*replayed]
        self._names: set[str] = set()  # of values
        self._values: dict[str, Any] = {}  # logged since the last rows
        self._restore()

    @property
    def numbers(self) -> dict[str, float]:
        """The numbers of the program that can be set, by their places."""
        return self._experiment.program.current_numbers()

    def _restore(self) -> None:
        """Sets the numbers of the checkpoint; forgets later records, adds lost ones."""
        step, numbers = self._experiment.step, dict(self._experiment.numbers)
        kept = [each for each in read_hook_records(self._run) if each.step <= step]
        recorded = {place: n for each in kept for place, n in each.numbers.items()}
        if lost := dict(numbers.items() - recorded.items()):
            kept.append(HookRecord(step, lost, {}))
        if kept or exists(self._run.hook_records):  # may end with half a line
            write_hook_records(self._run, kept)
        for record in kept:
            self._names |= {*record.values}
        for place, value in numbers.items():
            self._set(place, value, is_restored=True)

    def limit(self, iterations: int) -> int:
        """So many iterations, or fewer: until the next record that is repeated."""
        steps = self._experiment.setup.steps_per_iteration
        now = self._experiment.iteration
        left = [each.step // steps - now for each in self._left]
        return min([iterations, *(number for number in left if number > 0)])

    def repeat(self) -> None:
        """Repeats what hooks did at this step."""
        while self._left and self._left[0].step <= self._experiment.step:
            record = self._left.pop(0)
            self.log(record.values)
            for place, value in record.numbers.items():
                self.set(place, value)

    def log(self, values: Mapping[str, Any]) -> None:
        """Logs numbers, each one for all seeds or one of each seed."""
        seeds = len(self._experiment.setup.seeds)
        checked = {name: _check_value(name, v, seeds) for name, v in values.items()}
        self._names |= {*checked}
        if len(self._names) > _MOST:
            message = f"the hooks of a run log at most {_MOST} different names"
            raise RlcliError(message, "log fewer, with the same names at every step")
        self._values |= checked
        append_hook_record(self._run, HookRecord(self._experiment.step, {}, checked))

    def set(self, place: str, value: float) -> None:
        """Sets a number from the next step on."""
        number = _check_number(place, value)
        self._set(place, number)
        append_hook_record(
            self._run, HookRecord(self._experiment.step, {place: number}, {})
        )

    def _set(self, place: str, value: float, *, is_restored: bool = False) -> None:
        program = self._experiment.program
        environment = program.setup.environment
        if place in self.numbers:
            program.set_number(place, value)
        elif place.startswith(_ENVIRONMENT) and (set_number := _setter(environment)):
            name = place.removeprefix(_ENVIRONMENT)
            if not is_restored:  # else `restore_environment` has set it
                set_number(program.progress.environment, name, value)
        else:
            raise _unknown_number(place, self.numbers, environment.pure)
        self._experiment.numbers[place] = value
        log_rows = self._experiment.log_rows
        log_rows.options = {**log_rows.options, place: value}

    def complete(self, report: ChunkReport) -> ChunkReport:
        """The results of the chunk, with the values that hooks have logged."""
        if not self._values:
            return report
        values, self._values = self._values, {}
        step, seeds = self._experiment.step, self._experiment.setup.seeds
        rows = [dict(row) for row in report.rows]
        if not any(row["T"] == step for row in rows):
            rows += [{"T": step, "seed": seed} for seed in seeds]
        last = [row for row in rows if row["T"] == step]
        for index, row in enumerate(last):
            for name, value in values.items():
                if name in row:
                    raise RlcliError(
                        f"a hook cannot log {quote(name)}: it is a metric of the run",
                        "choose another name, as in `hook/" + name[:_LONGEST] + "`",
                    )
                row[name] = value[index] if isinstance(value, list) else value
        return report._replace(rows=rows)


def restore_environment(environment: Environment, numbers: Mapping[str, float]) -> None:
    """Sets numbers of a host environment, before its episodes are replayed."""
    set_number = _setter(environment)
    for place, value in numbers.items():
        name = place.removeprefix(_ENVIRONMENT)
        if name != place and set_number:
            set_number(None, name, value)


def _setter(environment: Environment) -> Callable[[Any, str, float], None] | None:
    """The function that sets numbers of an environment on the host."""
    return environment.host and environment.host.set_number


def _check_value(name: str, value: Any, seeds: int) -> float | list[float]:
    """A value that is logged: a number, or a list of one number of each seed."""
    is_name = isinstance(name, str) and name.isprintable() and name.strip() == name
    if not is_name or not 0 < len(name) <= _LONGEST or name in NOT_METRICS:
        message = f"a hook cannot log {quote(name)}"
        hint = f"a name is text of at most {_LONGEST} characters, and no field of a row"
        raise RlcliError(message, hint)
    array = np.asarray(value)
    if array.dtype.kind not in "biuf" or array.shape not in ((), (1,), (seeds,)):
        shape = f" of shape {array.shape}" if array.shape else ""
        raise RlcliError(
            f"a hook cannot log `{name}`: it is {type(value).__name__}{shape}",
            "log a number, or one of each seed",
        )
    if array.size == 1:
        return float(array.item())
    return array.astype(float).tolist()


def _check_number(place: str, value: Any) -> float:
    array = np.asarray(value)
    if array.size == 1 and array.dtype.kind in "biuf":
        number = float(array.item())
        if is_float32(number):
            return number
    raise RlcliError(f"{quote(place)} cannot be set to {quote(value)}", "set a number")


def _unknown_number(
    place: str, numbers: Mapping[str, float], is_pure: bool
) -> RlcliError:
    message = f"{quote(place)} cannot be set: it is no number of the running program"
    if is_pure and str(place).startswith(_ENVIRONMENT):
        return RlcliError(
            message,
            f"list it in the recipe, `train: {{adjustable: [{place}]}}`, if it is an "
            "option of the environment that may follow a schedule",
        )
    return RlcliError(
        message,
        suggest(place, numbers)
        + "; 0 and 1 are constants of a program, unless `train.adjustable` lists them",
    )
