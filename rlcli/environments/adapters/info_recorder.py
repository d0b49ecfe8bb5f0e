"""Info recorder: what host environments report in `info`, aggregated per episode.

A step only stores the numbers that it reports; they are summed where an episode ends.
"""

import json
import math
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from rlcli.environments.adapters.conversion import HostArray
from rlcli.environments.episode_info import MAX_INFO, RESERVED, default_rule
from rlcli.errors import RlcliError, quote, suggest
from rlcli.types import InfoRule

_MOST_STEPS = 256  # that are stored before they are summed
_MOST_LAYOUTS = 64  # mappings with other names than these are read slowly
_MOST_NAMED = 12  # names in a message
_FINISHED, _NAMES = "info", "info_names"  # in a checkpoint
_PLAIN = (int, float, np.integer, np.floating, np.bool_)
# What Gymnasium's vectors report of episodes that have ended before a reset.
_FINAL = "final_info"
_OF_VECTORS = frozenset((_FINAL, "final_obs", "final_observation"))


class _Layout(NamedTuple):
    """How to read the mappings with certain names."""

    columns: Sequence[int]
    read: Callable[[Any], Sequence[Any]]  # mapping -> the numbers of these columns
    names: int | None = None  # of such a mapping, if `read` needs every one of them


class _Source:
    """What the environments of one mapping have reported in their current episodes.

    Each value is a number, or an array `[size]` of several environments.
    """

    def __init__(self, size: int, columns: int) -> None:
        self.layout = _Layout((), lambda info: ())
        self.values: list[Any] = []  # of steps with this layout, not yet summed
        self._size = size
        self.sums: list[Any] = []
        self.last: list[Any] = []
        for _ in range(columns):
            self.add_column()

    def add_column(self) -> None:
        """Adds a column of zeros."""
        for column in (self.sums, self.last):
            column.append(0.0 if self._size == 1 else np.zeros(self._size))

    def sum_up(self) -> None:
        """Adds the values to the sums."""
        if not self.values:
            return
        columns = self.layout.columns
        totals, final = _sum_steps(self.values, len(columns), self._size)
        for column, total, value in zip(columns, totals, final, strict=True):
            self.sums[column] += total
            self.last[column] = _newest(self.last[column], value)
        self.values.clear()

    def take(self, index: int) -> tuple[list[float], list[float]]:
        """The sums and the last values of one environment; they become 0."""
        self.sum_up()
        if self._size == 1:
            sums, last = self.sums[:], self.last[:]
            self.sums[:] = self.last[:] = [0.0] * len(sums)
            return sums, last
        sums, last = (
            [float(each[index]) for each in column] for column in (self.sums, self.last)
        )
        for each in (*self.sums, *self.last):
            each[index] = 0
        return sums, last


class InfoStatistics(NamedTuple):
    """Values of finished episodes by name, `[S]` each."""

    last: Mapping[str, HostArray]  # the mean of those that ended in the same step
    total: Mapping[str, HostArray]
    max: Mapping[str, HostArray]
    messages: Sequence[str]  # what the user should know, since the start


class _Logged(Mapping[str, HostArray]):
    """What episodes log that end in a step, `[S, B]` each; 0 elsewhere.

    Only evaluations read it. So that training does not pay for arrays, it makes them
    when it is read.
    """

    def __init__(
        self,
        names: Iterable[str],
        rows: list[int],
        values: list[list[float]],
        grid: tuple[int, int],
    ) -> None:
        self._columns = {name: column for column, name in enumerate(names)}
        self._rows, self._values, self._grid = rows, values, grid

    def __getitem__(self, name: str) -> HostArray:
        column = self._columns[name]
        result = np.zeros(self._grid[0] * self._grid[1], np.float32)
        result[self._rows] = [each[column] for each in self._values]
        return result.reshape(self._grid)

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)


class InfoRecorder:
    """Aggregates numbers and booleans of `info` over the episodes of `[S, B]`.

    With `rules` only those names; a dot leads into a mapping, as in `episode.r`. Else
    up to `MAX_INFO` single numbers, as `default_rule` says. What an episode does not
    report, None and NaN count as 0. `owner` is the environment's name, for messages.
    """

    def __init__(
        self, rules: Mapping[str, InfoRule], grid: tuple[int, int], owner: str
    ) -> None:
        self._given, self._grid, self._owner = rules, grid, owner
        self._count = grid[0] * grid[1]
        self._messages: list[str] = []
        self._rules: dict[str, InfoRule] = {}  # of each column
        self._layouts: dict[tuple, _Layout] = {}
        self._sources: list[_Source] = []  # of each mapping of a step
        self._size = 1  # environments of a mapping
        self._steps = 0
        self._reported: set[str] = set()  # names of numbers
        # Of each seed: the last, the total and the maximum of finished episodes.
        self._finished: list[list[list[float]]] = [[[], [], []] for _ in range(grid[0])]
        self._has_finished = [False] * grid[0]
        for key in sorted(rules):
            self._add_column(key, rules[key])

    def record(self, infos: Sequence[Any]) -> None:
        """Stores what a step reports: a mapping for each environment, or fewer.

        Each is then that of as many consecutive environments, with arrays, as
        Gymnasium's vectors return them: a mask `_name` says who reports, `final_info`
        is what was reported before a reset.
        """
        if len(infos) != len(self._sources):
            if not any(infos):
                return
            self._size, self._layouts = self._count // len(infos), {}
            self._sources = [_Source(self._size, len(self._rules)) for _ in infos]
        for source, info in zip(self._sources, infos, strict=True):
            if not info:
                continue
            layout = source.layout
            try:
                if len(info) == layout.names:  # with the same names, or a KeyError
                    source.values.extend(layout.read(info))
                    continue
            except (KeyError, TypeError):
                pass
            try:
                layout = self._layouts.get(tuple(info)) or self._find_layout(info)
            except TypeError:  # no mapping
                continue
            if layout is not source.layout:
                source.sum_up()
                source.layout = layout
            source.values.extend(layout.read(info))
        self._steps += 1
        if self._steps == _MOST_STEPS:
            self._steps = 0
            for source in self._sources:
                source.sum_up()

    def finish(self, rows: HostArray, lengths: HostArray) -> Mapping[str, HostArray]:
        """Ends the episodes of some environments; returns the values, `[S, B]` each.

        `lengths` are their steps. Values of other environments are 0.
        """
        if not any(self._has_finished):
            self._check_names()
        per_seed, places = self._grid[1], rows.tolist()
        if not self._rules:
            for row in places:
                self._has_finished[row // per_seed] = True
            return {}
        by_seed: dict[int, list[list[float]]] = {}
        values = self._take(places, lengths.tolist())
        for row, own in zip(places, values, strict=True):
            by_seed.setdefault(row // per_seed, []).append(own)
        for seed, episodes in by_seed.items():
            _, total, most = self._finished[seed]
            columns = [*zip(*episodes, strict=True)]
            sums, best = [*map(sum, columns)], [*map(max, columns)]
            last = [each / len(episodes) for each in sums]
            if self._has_finished[seed]:
                best = [*map(max, best, most)]
            self._finished[seed] = [last, [*map(operator.add, sums, total)], best]
            self._has_finished[seed] = True
        return _Logged(self._rules, places, values, self._grid)

    def drop(self, rows: HostArray) -> None:
        """Forgets what the current episodes of some environments have reported."""
        where = np.arange(self._count)[rows]
        self._take(where.tolist(), [1] * len(where))

    def _take(self, rows: list[int], lengths: list[int]) -> list[list[float]]:
        """What episodes log, by column; sets their sums to 0."""
        rules = [*self._rules.values()]
        if not self._sources:
            return [[0.0] * len(rules) for _ in rows]
        values = []
        for row, length in zip(rows, lengths, strict=True):
            place, index = divmod(row, self._size)
            sums, last = self._sources[place].take(index)
            divisors = {"last": 1, "sum": 1, "mean": max(length, 1)}
            chosen = [last if rule == "last" else sums for rule in rules]
            pairs = enumerate(zip(chosen, rules, strict=True))
            values.append([own[i] / divisors[rule] for i, (own, rule) in pairs])
        return values

    def statistics(self) -> InfoStatistics:
        """The values of finished episodes."""
        arrays = np.moveaxis(np.array(self._finished, np.float64), 0, -1)
        columns = (dict(zip(self._rules, each, strict=True)) for each in arrays)
        return InfoStatistics(*columns, messages=tuple(self._messages))

    def save(self) -> dict[str, HostArray]:
        """The arrays of a checkpoint; replaying restores the current episodes."""
        names = json.dumps(self._rules).encode()
        finished = np.array(self._finished, np.float64)  # [S, 3, names]
        return {_FINISHED: finished, _NAMES: np.frombuffer(names, "u1")}

    def restore(self, arrays: Mapping[str, HostArray], has_finished: HostArray) -> None:
        """Continues from a checkpoint; `has_finished` `[S]`: seeds with an episode."""
        rules = json.loads(np.asarray(arrays[_NAMES], "u1").tobytes())
        finished = np.array(arrays[_FINISHED], np.float64)
        if finished.shape != (self._grid[0], 3, len(rules)):
            raise ValueError(f"`{_FINISHED}` has the shape {finished.shape}")
        for key in rules:  # in their order, so that a resumed run saves the same
            if key not in self._rules:
                self._add_column(key, rules[key])
        places = {key: index for index, key in enumerate(rules)}
        for own, saved in zip(self._finished, finished.tolist(), strict=True):
            own[:] = [
                [each[places[key]] if key in places else 0.0 for key in self._rules]
                for each in saved
            ]
        self._has_finished = has_finished.tolist()

    def _add_column(self, key: str, rule: InfoRule) -> None:
        self._rules[key] = rule
        for source in self._sources:
            source.add_column()
        for seed in self._finished:
            for each in seed:
                each.append(0.0)

    def _find_layout(self, info: Mapping[str, Any]) -> _Layout:
        """Finds the numbers of a mapping, and how to read those that are logged."""
        if not isinstance(info, Mapping):
            raise TypeError
        size = self._size
        found = {
            key: numbers
            for key in _names(info)
            if (numbers := _find_numbers(info, key, size)) is not None
        }
        self._reported |= found.keys()
        if self._given:
            keys = [key for key in self._given if self._reports(info, key, size)]
        else:
            keys = self._choose(found)

        missing = _Numbers(np.full(size, np.nan), is_bool=False)

        def read(info: Mapping[str, Any]) -> list[Any]:
            found = [(_find_numbers(info, key, size) or missing).values for key in keys]
            return found if size > 1 else [float(each[0]) for each in found]

        is_plain = size == 1 and not any(key in info for key in _OF_VECTORS)
        is_plain &= all(isinstance(info.get(key), _PLAIN) for key in keys)
        reader: Callable[[Any], Sequence[Any]] = read
        if is_plain and keys:
            # With a single key, the getter would return no tuple.
            get = operator.itemgetter(*keys)
            reader = get if len(keys) > 1 else lambda info: (get(info),)
        needs_all = reader is not read and len(keys) == len(info)
        places = {key: column for column, key in enumerate(self._rules)}
        columns = [places[key] for key in keys]
        layout = _Layout(columns, reader, len(info) if needs_all else None)
        may_change = any(value is None for value in info.values())
        if not may_change and len(self._layouts) < _MOST_LAYOUTS:
            self._layouts[tuple(info)] = layout
        return layout

    def _choose(self, found: Mapping[str, "_Numbers"]) -> list[str]:
        """The names that are logged without rules; adds columns for new ones."""
        for key in sorted(found.keys() - RESERVED - self._rules.keys()):
            if len(self._rules) == MAX_INFO:
                self._messages.append(
                    f"{self._owner} reports more than {MAX_INFO} numbers in `info`: "
                    f"{quote(key)} and others are not logged; `environment.info` "
                    "chooses, as in `info: {success: last}`"
                )
                break
            self._add_column(key, default_rule(key, is_bool=found[key].is_bool))
        return [key for key in found if key in self._rules]

    def _reports(self, info: Mapping[str, Any], key: str, size: int) -> bool:
        """Whether a mapping has a number that a rule names; refuses anything else."""
        if _find_numbers(info, key, size) is not None:
            self._reported.add(key)
            return True
        for members, inner in _places(info, key):
            value = members[inner]
            if value is not None:
                shape = np.shape(value)[1:] if size > 1 else np.shape(value)
                kind = f"an array {list(shape)}" if shape else type(value).__name__
                raise RlcliError(
                    f"{quote(key)} in the `info` of {self._owner} is {kind}, not a "
                    "number",
                    f"remove {quote(key)} from `environment.info`",
                )
        return False

    def _check_names(self) -> None:
        """Says which names of the rules the first episode has not reported."""
        missing = sorted(self._given.keys() - self._reported)
        if missing:
            known = ", ".join(map(quote, sorted(self._reported)[:_MOST_NAMED]))
            hint = suggest(missing[0], self._reported)
            self._messages.append(
                f"the first episode of {self._owner} has reported no "
                f"{', '.join(map(quote, missing))} in `info`, only "
                f"{known or 'nothing that is a number'}"
                + (f": {hint}" if "did you mean" in hint else "")
                + "; what is missing counts as 0"
            )


class _Numbers(NamedTuple):
    values: HostArray  # float64 `[size]`; NaN where there is none
    is_bool: bool


def _names(info: Mapping[str, Any]) -> list[str]:
    """The names of a mapping that may be those of numbers."""
    names = dict.fromkeys([*info, *info.get(_FINAL, ())]) if _FINAL in info else info
    strings = [name for name in names if isinstance(name, str)]
    return [x for x in strings if not x.startswith("_") and x not in _OF_VECTORS]


def _places(info: Mapping[str, Any], key: str) -> Iterator[tuple[Mapping, str]]:
    """The mappings that have a name, which a dot may lead into, and the name there."""
    for members in (info, info.get(_FINAL)):
        if not isinstance(members, Mapping):
            continue
        if key in members:
            yield members, key
            continue
        *outer, inner = key.split(".")
        for name in outer:
            members = members.get(name) if isinstance(members, Mapping) else None
        if isinstance(members, Mapping) and inner in members:
            yield members, inner


def _find_numbers(info: Mapping[str, Any], key: str, size: int) -> _Numbers | None:
    """The numbers of a name; None if there are none."""
    result = None
    for members, inner in _places(info, key):
        numbers = _as_numbers(members[inner], size)
        if numbers is not None:
            before = np.full(size, np.nan) if result is None else result.values
            mask = members.get(f"_{inner}", True)
            values = np.where(np.broadcast_to(mask, size), numbers.values, before)
            result = _Numbers(values, numbers.is_bool)
    return result


def _as_numbers(value: Any, size: int) -> _Numbers | None:
    """`size` numbers or booleans of any type; None for anything else."""
    try:
        array = np.asarray(value)
        if array.dtype == object:  # Gymnasium's arrays of numbers that it does not know
            is_known = np.array([each is not None for each in array.ravel()])
            array = np.array(array.ravel()[is_known].tolist())
        else:
            is_known = np.ones(array.size, np.bool_)
    except ValueError:  # sequences of different lengths
        return None
    if is_known.size != size or array.dtype.kind not in "biuf":
        return None
    if array.size != is_known.sum() or not array.size:
        return None
    values = np.full(size, np.nan)
    values[is_known] = array.ravel()
    return _Numbers(values, array.dtype.kind == "b")


def _sum_steps(
    values: Sequence[Any], columns: int, size: int
) -> tuple[list[Any], list[Any]]:
    """The sums and the last known values, by column, of the values of some steps.

    A last value that is not known is NaN.
    """
    if size == 1:  # faster without NumPy
        try:
            sums = [math.fsum(values[column::columns]) for column in range(columns)]
            if not any(map(math.isnan, sums)):
                return sums, [*map(float, values[-columns:])]
        except (TypeError, ValueError, OverflowError):  # something is no number
            pass
        values = [float(x) if isinstance(x, _PLAIN) else np.nan for x in values]
    steps = np.array(values, np.float64).reshape(-1, columns, size)
    is_known = ~np.isnan(steps)
    last = steps[-1]
    if not is_known[-1].all():
        for step, known in zip(steps, is_known, strict=True):
            last = np.where(known, step, last)
    sums = np.where(is_known, steps, 0).sum(axis=0)
    if size == 1:
        return sums[:, 0].tolist(), last[:, 0].tolist()
    return [*sums], [*last]


def _newest(before: Any, after: Any) -> Any:
    """The later of two numbers, or arrays, that is known."""
    if isinstance(after, float):
        return before if math.isnan(after) else after
    return np.where(np.isnan(after), before, after)
