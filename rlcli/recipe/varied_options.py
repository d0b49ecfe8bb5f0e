"""Varied options: numbers of an environment that differ between copies or episodes.

each: {length: [0.5, 1.0]}                      copy i takes value i mod n
each: {length: {log_uniform: [0.2, 2.0]}}       each episode draws a value
grid: {length: [0.2, 0.5], masspole: [0.1]}     an evaluation takes every combination
"""

import inspect
import itertools
import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from rlcli.errors import suggest
from rlcli.recipe.annotations import is_schedulable, quote_value
from rlcli.recipe.documents import Place
from rlcli.recipe.grammar import Reader
from rlcli.schedules import RandomNumber

RANGES = ("uniform", "log_uniform")
CHOICE = "choice"
MAX_COMBINATIONS = 1_000  # of a grid: each is an environment of an evaluation
_EXAMPLE = "for example `{uniform: [0.5, 1.5]}`, `{log_uniform: …}` or `{choice: …}`"
Each = Mapping[str, list[float] | RandomNumber]


class VariedOptions(NamedTuple):
    """Reads values for some options of a part; `name` is that of their section."""

    reader: Reader  # of the part; errors are at `place` below its own
    parameters: Mapping[str, inspect.Parameter]  # the options of the part
    name: str
    place: Place
    # Whether episodes may draw numbers of any name, and nothing else may be varied: the
    # environment gets them where it begins an episode.
    takes_any: bool = False

    def read_each(
        self, options: Mapping[str, Any], single_keys: Collection[str], num_envs: int
    ) -> dict[str, list[float] | RandomNumber]:
        """The values or the distribution of each option, by its name in Python.

        Options in `single_keys` are already set for all copies. Copy i takes value
        i mod n of a list, so n is at most `num_envs`.
        """
        varied: dict[str, list[float] | RandomNumber] = {}
        for key, value in options.items():
            parameter = self._parameter(key)
            if key in single_keys:
                message = f"`{key}` is set twice, directly and in `{self.name}`"
                self._fail((key,), message, "remove one of the two")
            if isinstance(value, Mapping):
                varied[parameter.name] = self._distribution(key, value)
                continue
            if self.takes_any:
                message = f"{self.reader.label} runs on the host: every episode draws "
                message += f"`{key}` from a distribution, got {quote_value(value)}"
                self._fail((key,), message, _EXAMPLE)
            varied[parameter.name] = self._values(key, value)
            if len(value) > num_envs:
                count = f"{len(value)} values for `{key}` of {self.reader.label}"
                message = f"`{self.name}` has {count}, but `num_envs` is {num_envs}"
                hint = f"set `num_envs` to at least {len(value)}, or remove values"
                self._fail((key,), message, hint)
        return varied

    def read_grid(self, options: Mapping[str, Any]) -> dict[str, list[float]]:
        """The values of each option, of which an evaluation takes all combinations."""
        if self.takes_any:
            message = f"{self.reader.label} runs on the host: it takes no `grid`"
            self._fail((), message, "`each` draws numbers for every episode")
        grid = {key: self._values(key, values) for key, values in options.items()}
        count = math.prod(map(len, grid.values()))
        if count > MAX_COMBINATIONS:
            message = f"`{self.name}` has {count:,} combinations of values"
            self._fail((), message, f"use at most {MAX_COMBINATIONS:,}")
        return grid

    def _fail(self, place: Place, message: str, hint: str) -> Any:
        self.reader.fail((*self.place, *place), message, hint)

    def _parameter(self, key: str) -> inspect.Parameter:
        """The option of that key, which has to be a number of the compiled program."""
        if self.takes_any:
            kind = inspect.Parameter.KEYWORD_ONLY
            return inspect.Parameter(key, kind, annotation=float)
        numbers = {
            name: parameter
            for name, parameter in self.parameters.items()
            if is_schedulable(parameter.annotation)
        }
        if key not in numbers:
            message = f"`{self.name}` cannot vary `{key}` of {self.reader.label}"
            hint = suggest(key, numbers)
            if key in self.parameters:
                hint = f"`{key}` is fixed when a run starts; {hint}"
            self._fail((key,), message, hint)
        return numbers[key]

    def _values(self, key: str, values: Any) -> list[float]:
        if isinstance(values, str | Mapping) or not hasattr(values, "__len__"):
            message = f"`{self.name}`: `{key}`: expected a list of numbers"
            self._fail((key,), f"{message}, got {quote_value(values)}", _EXAMPLE)
        if not len(values):
            hint = f"list numbers, as in `{key}: [0.5, 1.0]`, or remove `{key}`"
            self._fail((key,), f"`{self.name}` has no value for `{key}`", hint)
        return [self._number(key, (i,), value) for i, value in enumerate(values)]

    def _number(self, key: str, place: Place, value: Any) -> float:
        """A number within the range of its option."""
        place = (*self.place, key, *place)
        if isinstance(value, Mapping):
            message = f"`{self.name}` takes numbers, not schedules"
            self.reader.fail(place, message, "")
        return self.reader.value(self._parameter(key).annotation, value, place)

    def _distribution(self, key: str, value: Mapping[str, Any]) -> RandomNumber:
        """The distribution of an option: `{uniform: [low, high]}` and its like."""
        kinds, given = (*RANGES, CHOICE), [*map(str, value)]
        unknown = [name for name in given if name not in kinds]
        if unknown or len(given) != 1:
            message = f"`{key}` of `{self.name}`: expected the name of a distribution "
            message += f"and its numbers, got {quote_value(value)}"
            hint = suggest(unknown[0], kinds) if unknown else _EXAMPLE
            self._fail((key,), message, hint)
        kind: Any = given[0]
        values = value[kind]
        is_range = kind in RANGES
        size = len(values) if isinstance(values, list | tuple) else 0
        if size != 2 if is_range else not size:
            expected = "the lowest and the highest value" if is_range else "a list"
            message = f"`{kind}` of `{key}`: expected {expected}"
            self._fail((key, kind), f"{message}, got {quote_value(values)}", _EXAMPLE)
        numbers = [self._number(key, (kind, i), each) for i, each in enumerate(values)]
        if is_range and numbers[0] >= numbers[1]:
            message = f"`{kind}` of `{key}` begins at {numbers[0]:g}"
            hint = "put the lowest value first"
            self._fail((key, kind), f"{message}, but ends at {numbers[1]:g}", hint)
        if kind == "log_uniform" and numbers[0] <= 0:
            message = f"`log_uniform` of `{key}` begins at {numbers[0]:g}"
            hint = "begin above 0, or use `uniform`"
            self._fail((key, kind), f"{message}, which has no logarithm", hint)
        return RandomNumber(kind, tuple(numbers))


def copies_of(each: Each) -> dict[str, list[float]]:
    """The values of options that differ between copies of an environment."""
    return {k: v for k, v in each.items() if not isinstance(v, RandomNumber)}


def random_numbers_of(each: Each) -> dict[str, RandomNumber]:
    """The distributions from which every episode draws options."""
    return {k: v for k, v in each.items() if isinstance(v, RandomNumber)}


def combinations(grid: Mapping[str, Sequence[float]]) -> dict[str, list[float]]:
    """The values of each option in every combination; those of the last vary first."""
    columns = zip(*itertools.product(*grid.values()), strict=True)
    return {name: list(column) for name, column in zip(grid, columns, strict=True)}
