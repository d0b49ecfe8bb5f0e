"""Info recorder: what host environments report in `info`, aggregated per episode.

A step only stores the numbers that it reports; they are summed where an episode ends.
"""

import itertools
import json
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
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


class _Layout:
    """How to read the mappings with certain names: the numbers of some columns."""

    def __init__(self, columns: Sequence[int], read: Callable[[Any], Any]) -> None:
        self.columns = np.array(columns, int)
        self.read = read if columns else None


class InfoStatistics(NamedTuple):
    """Values of finished episodes by name, `[S]` each."""

    last: Mapping[str, HostArray]  # the mean of those that ended in the same step
    total: Mapping[str, HostArray]
    max: Mapping[str, HostArray]


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
        # What each mapping of a step has reported since it was summed.
        self._buffers: list[list[tuple[_Layout, Any]]] = []
        self._steps, self._is_empty = 0, True
        self._reported: set[str] = set()  # names of numbers
        self._sums = np.zeros((0, self._count))
        self._last = np.zeros((0, self._count))
        # The last, the total and the maximum of finished episodes.
        self._finished = np.zeros((3, 0, grid[0]))
        self._has_finished = np.zeros(grid[0], np.bool_)
        for key in sorted(rules):
            self._add_column(key, rules[key])

    def record(self, infos: Sequence[Any]) -> None:
        """Stores what a step reports: a mapping for each environment, or fewer.

        Each is then that of as many consecutive environments, with arrays, as
        Gymnasium's vectors return them: a mask `_name` says who reports, `final_info`
        is what was reported before a reset.
        """
        if len(infos) != len(self._buffers):
            if not any(infos):
                return
            self._sum_up()
            self._buffers, self._layouts = [[] for _ in infos], {}
        for buffer, info in zip(self._buffers, infos, strict=True):
            if not info:
                continue
            try:
                layout = self._layouts.get(tuple(info)) or self._find_layout(info)
            except TypeError:  # no mapping
                continue
            if layout.read is not None:
                buffer.append((layout, layout.read(info)))
                self._is_empty = False
        self._steps += 1
        if self._steps >= _MOST_STEPS:
            self._sum_up()

    def finish(self, rows: HostArray, lengths: HostArray) -> dict[str, HostArray]:
        """Ends the episodes of some environments; returns the values, `[S, B]` each.

        `lengths` are their steps. Values of other environments are 0.
        """
        if not self._has_finished.any():
            self._check_names()
        seeds = rows // self._grid[1]
        if not self._rules:
            self._has_finished[seeds] = True
            return {}
        self._sum_up()
        rules = np.array([*self._rules.values()])[:, None]
        values = np.where(rules == "last", self._last[:, rows], self._sums[:, rows])
        values /= np.where(rules == "mean", np.maximum(lengths, 1), 1)
        self._sums[:, rows] = self._last[:, rows] = 0
        last, total, most = self._finished
        for seed in np.unique(seeds):
            own = values[:, seeds == seed]
            last[:, seed] = own.mean(axis=1)
            total[:, seed] += own.sum(axis=1)
            best = own.max(axis=1)
            is_first = not self._has_finished[seed]
            most[:, seed] = best if is_first else np.maximum(best, most[:, seed])
        self._has_finished[seeds] = True
        table = np.zeros((len(rules), self._count), np.float32)
        table[:, rows] = values
        return dict(zip(self._rules, table.reshape(-1, *self._grid), strict=True))

    def drop(self, rows: HostArray) -> None:
        """Forgets what the current episodes of some environments have reported."""
        self._sum_up()
        self._sums[:, rows] = self._last[:, rows] = 0

    def take_messages(self) -> list[str]:
        """What the user should know, since the last call."""
        messages, self._messages = self._messages, []
        return messages

    def statistics(self) -> InfoStatistics:
        """The values of finished episodes."""
        arrays = self._finished.copy()
        return InfoStatistics(
            *(dict(zip(self._rules, each, strict=True)) for each in arrays)
        )

    def save(self) -> dict[str, HostArray]:
        """The arrays of a checkpoint; replaying restores the current episodes."""
        names = json.dumps(self._rules).encode()
        return {_FINISHED: self._finished.copy(), _NAMES: np.frombuffer(names, "u1")}

    def restore(self, arrays: Mapping[str, HostArray], has_finished: HostArray) -> None:
        """Continues from a checkpoint; `has_finished` `[S]`: seeds with an episode."""
        rules = json.loads(np.asarray(arrays[_NAMES], "u1").tobytes())
        finished = np.array(arrays[_FINISHED], np.float64)
        if finished.shape != (3, len(rules), self._grid[0]):
            raise ValueError(f"`{_FINISHED}` has the shape {finished.shape}")
        for key in rules.keys() - self._rules.keys():
            self._add_column(key, rules[key])
        self._finished[:, self._columns(rules)] = finished
        self._has_finished = np.array(has_finished, np.bool_)

    def _add_column(self, key: str, rule: InfoRule) -> None:
        self._rules[key] = rule
        zeros = np.zeros((1, self._count))
        self._sums = np.concatenate([self._sums, zeros])
        self._last = np.concatenate([self._last, zeros])
        finished = np.zeros((3, 1, self._grid[0]))
        self._finished = np.concatenate([self._finished, finished], axis=1)

    def _columns(self, keys: Sequence[str] | Mapping[str, Any]) -> list[int]:
        places = {key: column for column, key in enumerate(self._rules)}
        return [places[key] for key in keys]

    def _find_layout(self, info: Mapping[str, Any]) -> _Layout:
        """Finds the numbers of a mapping, and how to read those that are logged."""
        if not isinstance(info, Mapping):
            raise TypeError
        size = self._count // len(self._buffers)
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

        def read(info: Mapping[str, Any]) -> list[HostArray]:
            missing = _Numbers(np.full(size, np.nan), is_bool=False)
            return [(_find_numbers(info, key, size) or missing).values for key in keys]

        is_plain = size == 1 and not any(key in info for key in _OF_VECTORS)
        is_plain &= all(isinstance(info.get(key), _PLAIN) for key in keys)
        reader: Callable[[Any], Any] = read
        if is_plain and len(keys) > 1:
            reader = operator.itemgetter(*keys)
        elif is_plain and keys:
            (key,) = keys
            reader = lambda info: (info[key],)  # noqa: E731 - it is fast
        layout = _Layout(self._columns(keys), reader)
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

    def _sum_up(self) -> None:
        """Adds what the buffers have to the sums."""
        self._steps = 0
        if self._is_empty:
            return
        self._is_empty = True
        for place, buffer in enumerate(self._buffers):
            size = self._count // len(self._buffers)
            rows = slice(place * size, (place + 1) * size)
            for layout, group in itertools.groupby(buffer, operator.itemgetter(0)):
                steps = [values for _, values in group]
                sums, last = _sum_steps(steps, len(layout.columns), size)
                self._sums[layout.columns, rows] += sums
                before = self._last[layout.columns, rows]
                self._last[layout.columns, rows] = np.where(
                    np.isnan(last), before, last
                )
            buffer.clear()


class _Numbers(NamedTuple):
    values: HostArray  # float64 `[size]`; NaN where there is none
    is_bool: bool


def _names(info: Mapping[str, Any]) -> list[str]:
    """The names of a mapping that may be those of numbers."""
    names = dict.fromkeys([*info, *info.get(_FINAL, ())]) if _FINAL in info else info
    return [
        name
        for name in names
        if isinstance(name, str)
        and not name.startswith("_")
        and name not in _OF_VECTORS
    ]


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
    steps: Sequence[Any], columns: int, size: int
) -> tuple[HostArray, HostArray]:
    """The sums and the last known values of some steps, `[columns, size]` each."""
    if type(steps[0]) is tuple:  # numbers of one environment: faster without NumPy
        try:
            sums = np.array([sum(column) for column in zip(*steps, strict=True)], float)
            if not np.isnan(sums).any():
                return sums[:, None], np.array(steps[-1], np.float64)[:, None]
        except (TypeError, ValueError):  # something has become no number
            pass
        steps = [
            [float(x) if isinstance(x, _PLAIN) else np.nan for x in step]
            for step in steps
        ]
    values = np.array(steps, np.float64).reshape(-1, columns, size)
    is_known = ~np.isnan(values)
    last = values[-1]
    if not is_known[-1].all():
        for step, known in zip(values, is_known, strict=True):
            last = np.where(known, step, last)
    return np.where(is_known, values, 0).sum(axis=0), last
