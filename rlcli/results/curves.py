"""Curves: the course of a metric over training, averaged over the seeds of a group.

Seeds of one run log at equal points; different runs may not. Then the points of a curve
are those of all seeds, where all of them have data, and each seed is interpolated
linearly between its own points. Very many points are averaged in short intervals first.
"""

import json
import math
import os
import re
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np

from rlcli.errors import RlcliError, quote, suggest
from rlcli.results import aggregates
from rlcli.results.groups import Group, Member
from rlcli.runs import metrics
from rlcli.runs.files import exists, open_regular, parse_json
from rlcli.runs.formatting import format_number_of
from rlcli.runs.metric_labels import EVALUATION
from rlcli.runs.statistics import bootstrap_band, iqm

_START = re.compile(rb'\{"T": (\d{1,18}), "seed": (\d{1,18})([,}])')
_BLOCK = 2**22  # bytes to read at once
_LONGEST = 2**24  # bytes of a line; longer ones are damaged
_SAMPLED = 1000  # of this many rows, one is parsed to learn the names of its fields


class Series(NamedTuple):
    """The values of a metric of one seed, `[n]` each, in order of steps.

    Values that are not finite, or as good as infinite, are nan.
    """

    steps: np.ndarray
    values: np.ndarray


class RunSeries(NamedTuple):
    """What `read_series` finds in a run."""

    by_metric: Mapping[str, Mapping[int, Series]]  # metric -> seed -> series
    metrics: frozenset[str]  # names in the file; those in few rows may be missing
    damaged: int  # number of lines that are not rows of metrics


class _Field:
    """Finds a metric in rows, and collects its values by seed."""

    def __init__(self, metric: str) -> None:
        head, dot, tail = metric.partition(".")
        self.metric = metric
        self.is_evaluation = bool(dot) and head == EVALUATION
        name = json.dumps(tail if self.is_evaluation else metric, ensure_ascii=False)
        # With what is before it, because a name may end in another one: "x\"a".
        self.patterns = tuple(f"{start}{name}: ".encode() for start in (", ", "{"))
        self.steps: dict[int, array[int]] = {}
        self.values: dict[int, array[float]] = {}

    def append(self, step: int, seed: int, value: float) -> None:
        if seed not in self.steps:
            self.steps[seed], self.values[seed] = array("q"), array("d")
        self.steps[seed].append(step)
        self.values[seed].append(value)

    def series(self) -> dict[int, Series]:
        return {
            seed: _sort(np.array(steps, np.int64), np.array(self.values[seed]))
            for seed, steps in sorted(self.steps.items())
        }


def _sort(steps: np.ndarray, values: np.ndarray) -> Series:
    """In order of steps; of several rows with one step, the last one."""
    if (np.diff(steps) <= 0).any():
        steps, index = np.unique(steps[::-1], return_index=True)
        values = values[::-1][index]
    values[~(np.abs(values) < metrics.LARGEST)] = math.nan
    return Series(steps, values)


class SeriesCollector:
    """Collects metrics of all seeds from the lines of `metrics.jsonl`.

    `evaluation.mean` and the like are fields of evaluations; any other name is a field
    of the rows of log points. A line that is not a row of metrics is counted.
    """

    def __init__(self, wanted: Sequence[str]) -> None:
        self._fields = [_Field(metric) for metric in wanted]
        self._names: set[str] = set()
        self._has_evaluation = False
        self._lines = self._damaged = 0

    def add(self, lines: Iterable[bytes]) -> None:
        """Collects the metrics of complete lines, without their ends."""
        for line in lines:
            is_sampled = self._lines % _SAMPLED == 0 or (
                not self._has_evaluation and b'"evaluation": {' in line
            )
            self._lines += 1
            if is_sampled or not _scan(line, self._fields):
                row = _parse(line)
                if row is None:
                    self._damaged += 1
                    continue
                self._names |= _numbers(row).keys()
                self._has_evaluation = self._has_evaluation or EVALUATION in row
                _collect(row, self._fields)

    def result(self) -> RunSeries:
        """The metrics of all lines so far."""
        by_metric = {field.metric: field.series() for field in self._fields}
        return RunSeries(by_metric, frozenset(self._names), self._damaged)


def read_series(folder: str | Path, wanted: Sequence[str]) -> RunSeries:
    """Reads metrics of a run, all seeds; a missing file has none.

    Names are those of a `SeriesCollector`. A partial last line is ignored.
    """
    collector, path = SeriesCollector(wanted), Path(folder) / metrics.FILE_NAME
    if exists(path):
        with open_regular(path, os.O_RDONLY, "rb") as file:
            collector.add(_complete_lines(file))
    return collector.result()


def _complete_lines(file: IO[bytes]) -> Iterator[bytes]:
    """The complete lines of a file, without their ends."""
    rest = b""
    while block := file.read(_BLOCK):
        *lines, rest = (rest + block).split(b"\n")
        yield from lines
        if len(rest) > _LONGEST:
            rest = b"?"  # damaged, as is the rest of this line


def _scan(line: bytes, fields: Sequence[_Field]) -> bool:
    """Collects the fields of a row as rlcli writes it; False for any other line."""
    match = _START.match(line)
    if match is None or line[-1:] != b"}":
        return False
    is_evaluation = line.startswith(b' "evaluation": {', match.end())
    found = []
    for field in fields:
        if field.is_evaluation is not is_evaluation:
            continue
        for pattern in field.patterns:
            begin = line.find(pattern)
            if begin >= 0:
                break
        else:
            continue
        begin += len(pattern)
        end = line.find(b",", begin)
        text = line[begin:] if end < 0 else line[begin:end]
        try:
            value = float(text.rstrip(b"}"))
        except ValueError:  # null, or no number
            return False
        found.append((field, value))
    step, seed = int(match[1]), int(match[2])
    for field, value in found:
        field.append(step, seed, value)
    return True


def _parse(line: bytes) -> dict[str, Any] | None:
    """A row of metrics; None for any other line."""
    try:
        row = parse_json(line.decode())
    except (ValueError, RecursionError):
        return None
    is_row = isinstance(row, dict) and all(
        type(row.get(name)) is int and 0 <= row[name] < 2**63 for name in ("T", "seed")
    )
    return row if is_row else None


def _collect(row: Mapping[str, Any], fields: Sequence[_Field]) -> None:
    numbers = _numbers(row)
    for field in fields:
        if field.metric in numbers:
            field.append(row["T"], row["seed"], numbers[field.metric])


def _numbers(row: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of a row by the name of their metric; null is nan."""
    evaluation = row.get(EVALUATION)
    prefix = ""
    if isinstance(evaluation, Mapping):
        row, prefix = evaluation, f"{EVALUATION}."
    return {
        f"{prefix}{name}": math.nan if value is None else float(value)
        for name, value in row.items()
        if value is None or type(value) in (int, float)
    }


ReadSeries = Callable[[Path, Sequence[str]], RunSeries]  # as `read_series`
DEFAULT_METRICS = ("evaluation.mean", "avg_G")
X_FIELDS = {"steps": (), "seconds": ("dt",), "updates": ("updates",)}
MAX_POINTS = 1000  # of a curve
OVERALL_POINTS = 100  # of one over environments, whose intervals take longer
_CUT = 0.01  # a curve that ends earlier than its longest seed by this share has a note


class Seed(NamedTuple):
    """The values of a metric of one seed at increasing x, `[n]` each."""

    member: Member
    seed: int
    x: np.ndarray
    y: np.ndarray
    last_step: int  # environment steps at the last value


class Curve(NamedTuple):
    """A metric of a group, `[points]` each; `low` and `high` are None for one seed."""

    label: str
    runs: Sequence[Path]
    seeds: int
    x: np.ndarray
    y: np.ndarray
    low: np.ndarray | None
    high: np.ndarray | None


class CurveReader:
    """Reads the metrics of runs, each file once, and collects notes about them.

    `metric` is that of the results; by default evaluated returns, if all runs with
    metrics have `points` of them. An error if no run has it. `more` are others to read.
    """

    def __init__(
        self,
        members: Sequence[Member],
        metric: str | None,
        notes: list[str],
        *,
        more: Sequence[str] = (),
        points: int = 2,
        read: ReadSeries = read_series,
    ) -> None:
        self.notes = notes
        self._series: dict[Path, RunSeries] = {}
        default = DEFAULT_METRICS if metric is None else (metric,)
        wanted = [*dict.fromkeys((*default, "dt", *more))]
        for member in members:
            series = read(member.folder, wanted)
            self._series[member.folder] = series
            if series.damaged:
                lines = format_number_of(series.damaged, "damaged line")
                self.notes.append(f"`{member.folder}`: {lines} ignored")
        self.metric = self._choose_metric(points) if metric is None else metric
        self._check_metric()

    def _choose_metric(self, points: int) -> str:
        evaluation, training = DEFAULT_METRICS
        logged = [each for each in self._series.values() if each.metrics]
        lengths = (
            [len(seed.steps) for seed in each.by_metric[evaluation].values()]
            for each in logged
        )
        have = [each for each in lengths if max(each, default=0) >= points]
        if have and len(have) < len(logged):
            self.notes.append(
                f"{len(logged) - len(have)} of {len(logged)} runs have too few "
                f"evaluations, so `{training}` is used, the mean return in training"
            )
        return evaluation if have and len(have) == len(logged) else training

    def _check_metric(self) -> None:
        """An error if no run has the metric; a note of each that lacks it."""
        metric, series = self.metric, self._series.items()
        missing = [folder for folder, each in series if not each.by_metric[metric]]
        if len(missing) < len(self._series):
            self.notes += [f"`{folder}` has no `{metric}` yet" for folder in missing]
            return
        names = sorted(
            {name for each in self._series.values() for name in each.metrics}
        )
        if not names:
            raise RlcliError(
                "the runs have no metrics yet: "
                + ", ".join(f"`{folder}`" for folder in self._series),
                "the first log point writes them",
            )
        hint = suggest(metric, names)
        if not hint.startswith("choose"):
            hint += " Available: " + ", ".join(map(quote, names))
        raise RlcliError(f"no run has the metric {quote(metric)}", hint)

    def read_seeds(self, group: Group, metric: str, x: str = "steps") -> list[Seed]:
        """The seeds of a group, without repeated ones and those without values."""
        found: dict[tuple[str, int], Seed] = {}
        identities = {each.folder: each.identity for each in group.members}
        repeated: Counter[Path] = Counter()
        seeds = [*self._seeds(group, metric, x)]
        self._note_missing(group, seeds, metric)
        for seed in seeds:
            key = (identities[seed.member.folder], seed.seed)
            other = found.get(key)
            if other is None:
                found[key] = seed
                continue
            found[key], shorter = sorted((other, seed), key=_end, reverse=True)
            repeated[shorter.member.folder] += 1
        for folder, count in repeated.items():
            self.notes.append(
                f"{format_number_of(count, 'seed')} of `{folder}` left out: a longer "
                "or newer run of the same recipe has the same seeds"
            )
        return list(found.values())

    def _note_missing(self, group: Group, seeds: Sequence[Seed], metric: str) -> None:
        """Adds a note on each run of which only some seeds have values."""
        counts = Counter(seed.member.folder for seed in seeds)
        for member in group.members:
            total, count = len(member.info.get("seeds") or ()), counts[member.folder]
            if 0 < count < total:
                self.notes.append(
                    f"{total - count} of {total} seeds of `{member.folder}` left out: "
                    f"they have no `{metric}`"
                )

    def _seeds(self, group: Group, metric: str, x: str) -> Iterator[Seed]:
        for member in group.members:
            series = self._series[member.folder].by_metric
            for seed, values in series[metric].items():
                places = _places(
                    values.steps, {n: series[n] for n in X_FIELDS[x]}, seed
                )
                # Equal places are possible where x is rounded or has no data yet.
                kept = np.isfinite(values.values) & np.isfinite(places)
                kept[:-1] &= np.diff(places) > 0
                if kept.any():
                    last_step = int(values.steps[kept][-1])
                    yield Seed(
                        member, seed, places[kept], values.values[kept], last_step
                    )


def make_curve(
    label: str,
    seeds: Sequence[Seed],
    center: str,
    notes: list[str],
    max_points: int = MAX_POINTS,
) -> Curve | None:
    """The mean or `iqm` over seeds, and its 95 % bootstrap interval at each point.

    Of more than `max_points`, successive ones are averaged. None, and a note, if there
    is no point at which all seeds have data.
    """
    if not seeds:
        return None
    grid, values = _align(seeds, max_points)
    if not len(grid):
        notes.append(f"`{label}`: the x ranges of its seeds do not overlap")
        return None
    longest = max(seed.x[-1] for seed in seeds)
    if grid[-1] < (1 - _CUT) * longest:
        ends = sum(seed.x[-1] < (1 - _CUT) * longest for seed in seeds)
        notes.append(
            f"`{label}`: {ends} of {len(seeds)} seeds end early, and the curve ends "
            "with the first of them"
        )
    low = high = None
    if len(seeds) > 1:
        low, high = bootstrap_band(values, center)
    y = iqm(values, axis=0) if center == "iqm" else values.mean(axis=0)
    runs = list(dict.fromkeys(seed.member.folder for seed in seeds))
    return Curve(label, runs, len(seeds), grid, y, low, high)


def make_overall_curve(
    label: str, scores: Sequence[Sequence[Seed]], notes: list[str]
) -> Curve | None:
    """The IQM over the seeds of all environments, with its stratified interval.

    `scores` has the seeds of each environment, normalized. None, and a note, if there
    is no point at which all seeds have data.
    """
    seeds = [seed for each in scores for seed in each]
    grid, values = _align(seeds, OVERALL_POINTS)
    if not len(grid):
        notes.append(f"`{label}`: the x ranges of its environments do not overlap")
        return None
    if grid[-1] < (1 - _CUT) * max(seed.x[-1] for seed in seeds):
        notes.append(
            f"`{label}`: the curve over all environments ends with the shortest of them"
        )
    ends = np.cumsum([len(each) for each in scores])[:-1]
    points = [
        aggregates.estimate(aggregates.iqm, np.split(column, ends))
        for column in values.T
    ]
    intervals = np.array([each.ci95 for each in points if each.ci95 is not None])
    low, high = intervals.T if len(intervals) == len(grid) else (None, None)
    y = np.array([each.value for each in points])
    runs = list(dict.fromkeys(seed.member.folder for seed in seeds))
    return Curve(label, runs, len(seeds), grid, y, low, high)


def find_crossing(curve: Curve, threshold: float) -> float | None:
    """The first x at which a curve crosses a threshold, by linear interpolation.

    None if the curve stays on the side of the threshold on which it begins.
    """
    above = curve.y >= threshold
    (changes,) = np.nonzero(above != above[0])
    if not len(changes):
        return None
    right = changes[0]
    (x0, x1), (y0, y1) = curve.x[right - 1 : right + 1], curve.y[right - 1 : right + 1]
    return float(x0 + (x1 - x0) * (threshold - y0) / (y1 - y0))


def _align(seeds: Sequence[Seed], max_points: int) -> tuple[np.ndarray, np.ndarray]:
    """The points of a curve, and the values of each seed there `[seeds, points]`."""
    thinned = [_thin(seed.x, seed.y, max_points) for seed in seeds]
    grid = _grid([x for x, _ in thinned], max_points)
    return grid, np.stack([np.interp(grid, x, y) for x, y in thinned])


def _grid(places: Sequence[np.ndarray], max_points: int) -> np.ndarray:
    """The points of all seeds, where all seeds have data; at most `max_points`."""
    if all(np.array_equal(each, places[0]) for each in places[1:]):
        return places[0]
    start, end = max(x[0] for x in places), min(x[-1] for x in places)
    points = np.unique(np.concatenate(places))
    points = points[(points >= start) & (points <= end)]
    return points if len(points) <= max_points else np.linspace(start, end, max_points)


def _thin(
    x: np.ndarray, y: np.ndarray, max_points: int
) -> tuple[np.ndarray, np.ndarray]:
    """The means of as many successive points as leave at most `max_points`."""
    size = -(-len(x) // max_points)
    if size == 1:
        return x, y
    starts = np.arange(0, len(x), size)
    counts = np.diff(starts, append=len(x))
    return np.add.reduceat(x, starts) / counts, np.add.reduceat(y, starts) / counts


def _places(
    steps: np.ndarray, clocks: Mapping[str, Mapping[int, Series]], seed: int
) -> np.ndarray:
    """The updates or seconds at which a seed made its steps; else the steps."""
    for name, by_seed in clocks.items():
        if seed not in by_seed:
            return np.full(len(steps), np.nan)
        at, values = by_seed[seed]
        if name == "dt":  # milliseconds per step since the previous log point
            values = np.cumsum(np.diff(at, prepend=0) * np.nan_to_num(values)) / 1e3
        return np.interp(steps, [0, *at], [0.0, *values])
    return steps.astype(np.float64)


def _end(seed: Seed) -> tuple[float, str]:
    return seed.last_step, str(seed.member.info.get("created", ""))
