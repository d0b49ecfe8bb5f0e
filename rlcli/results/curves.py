"""Curves: the course of a metric over training, averaged over the seeds of a group.

Seeds of one run log at equal points; different runs may not. Then the points of a curve
are those of all seeds, where all of them have data, and each seed is interpolated
linearly between its own points. Very many points are averaged in short intervals first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from rlcli.errors import RlcliError, quote, suggest
from rlcli.results.groups import Group, Member
from rlcli.results.series import RunSeries, Series, read_series
from rlcli.runs.statistics import bootstrap_band, iqm

DEFAULT_METRICS = ("evaluation.mean", "avg_G")
X_FIELDS = {"steps": (), "seconds": ("dt",), "updates": ("updates",)}
MAX_POINTS = 1000  # of a curve
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
    """Reads the metrics of runs, each file once, and collects notes about them."""

    def __init__(
        self, members: Sequence[Member], wanted: Sequence[str], notes: list[str]
    ) -> None:
        self.notes = notes
        self._series: dict[Path, RunSeries] = {}
        for member in members:
            series = read_series(member.folder, wanted)
            self._series[member.folder] = series
            if series.damaged:
                lines = "line" if series.damaged == 1 else "lines"
                self.notes.append(
                    f"`{member.folder}`: {series.damaged:,} damaged {lines} ignored"
                )

    def choose_metric(self, points: int) -> str:
        """Evaluated returns if all runs with metrics have so many points of them."""
        evaluation, training = DEFAULT_METRICS
        logged = [each for each in self._series.values() if each.metrics]
        have = [each for each in logged if _length_of(each, evaluation) >= points]
        if have and len(have) < len(logged):
            self.notes.append(
                f"{len(logged) - len(have)} of {len(logged)} runs have too few "
                f"evaluations, so `{training}` is used, the mean return in training"
            )
        return evaluation if have and len(have) == len(logged) else training

    def check_metric(self, metric: str) -> None:
        """An error if no run has a metric; a note of each that lacks it."""
        missing = [
            folder
            for folder, series in self._series.items()
            if not series.by_metric[metric]
        ]
        if len(missing) < len(self._series):
            self.notes += [f"`{folder}` has no `{metric}` yet" for folder in missing]
            return
        names = sorted(
            {name for each in self._series.values() for name in each.metrics}
        )
        if not names:
            raise RlcliError(
                "the runs have no metrics yet: " + _join(self._series),
                "the first log point writes them",
            )
        hint = suggest(metric, names)
        if not hint.startswith("choose"):
            hint += " Available: " + ", ".join(f"`{name}`" for name in names)
        raise RlcliError(f"no run has the metric {quote(metric)}", hint)

    def read_seeds(self, group: Group, metric: str, x: str = "steps") -> list[Seed]:
        """The seeds of a group, without repeated ones and those without values."""
        found: dict[tuple[str, int], Seed] = {}
        repeated: Counter[Path] = Counter()
        seeds = [*self._seeds(group, metric, x)]
        self._note_missing(group, seeds, metric)
        for seed in seeds:
            key = (seed.member.identity, seed.seed)
            other = found.get(key)
            if other is None:
                found[key] = seed
                continue
            found[key], shorter = sorted((other, seed), key=_end, reverse=True)
            repeated[shorter.member.folder] += 1
        for folder, count in repeated.items():
            number = "1 seed" if count == 1 else f"{count} seeds"
            self.notes.append(
                f"{number} of `{folder}` left out: a longer or newer run of the same "
                "recipe has the same seeds"
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
    thinned = [_thin(seed.x, seed.y, max_points) for seed in seeds]
    if not thinned:
        return None
    grid = _grid([x for x, _ in thinned], max_points)
    if not len(grid):
        notes.append(f"`{label}`: the x ranges of its seeds do not overlap")
        return None
    longest = max(x[-1] for x, _ in thinned)
    if grid[-1] < (1 - _CUT) * longest:
        ends = sum(x[-1] < (1 - _CUT) * longest for x, _ in thinned)
        notes.append(
            f"`{label}`: {ends} of {len(seeds)} seeds end early, and the curve ends "
            "with the first of them"
        )
    values = np.stack([np.interp(grid, x, y) for x, y in thinned])
    low = high = None
    if len(seeds) > 1:
        low, high = bootstrap_band(values, center)
    y = iqm(values, axis=0) if center == "iqm" else values.mean(axis=0)
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


def _length_of(series: RunSeries, metric: str) -> int:
    """The largest number of values of a seed."""
    return max(
        (len(each.steps) for each in series.by_metric[metric].values()), default=0
    )


def _end(seed: Seed) -> tuple[float, str]:
    return seed.last_step, str(seed.member.info.get("created", ""))


def _join(folders: Mapping[Path, Any]) -> str:
    return ", ".join(f"`{folder}`" for folder in folders)
