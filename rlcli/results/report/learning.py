"""Learning: the results and curves of a report, from the metrics of runs.

Runs are shown by environment, because returns of different ones cannot be compared.
"""

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from rlcli.errors import RlcliError
from rlcli.results import comparison, comparison_tables, protocol
from rlcli.results.chart import ALL_ENVIRONMENTS, Data
from rlcli.results.curves import (
    DEFAULT_METRICS,
    X_FIELDS,
    CurveReader,
    ReadSeries,
    Seed,
    make_curve,
    read_series,
)
from rlcli.results.groups import Group, Member
from rlcli.results.report import charts
from rlcli.results.report.charts import Chart, Line
from rlcli.runs.formatting import format_duration, format_number
from rlcli.runs.metric_labels import EVALUATION, describe_metric, label_metric
from rlcli.runs.metrics import CLOCK_FIELDS, FIRST_FIELDS, read_last_rows
from rlcli.runs.result import Table

CURVE_POINTS = 400  # of a curve over the width of the page
SMALL_POINTS = 150  # of a small chart
_MOST_SPREADS = 30  # seeds in the chart of their episodes
_TRAINING = DEFAULT_METRICS[1]
_NOT_DIAGNOSTICS = {*FIRST_FIELDS, *CLOCK_FIELDS, "updates", "frozen", EVALUATION}
_FIRST = ("loss", "gradient_norm")  # of the diagnostics; the others by name
_CENTERS = {"mean": "mean", "iqm": "interquartile mean"}
_PROFILE = ("score", "fraction", "low", "high")  # as in a `Line`
_SPREAD = tuple(f"{EVALUATION}.{name}" for name in ("mean", "std", "min", "max"))


class MetricOptions(NamedTuple):
    """The options of a report on metrics."""

    metric: str | None
    center: str
    threshold: float | None
    x: str = "steps"  # one of `X_FIELDS`
    range: tuple[float, float] | None = None  # the part of x that is shown
    has_results: bool = True
    has_diagnostics: bool = True


class Card(NamedTuple):
    """The result of a group in short."""

    label: str
    color: int
    value: str
    interval: str
    facts: Sequence[tuple[str, str]]


class Learning(NamedTuple):
    """The results and curves of the runs in an environment."""

    environment: str
    metric: str
    cards: Sequence[Card]
    results: Sequence[Chart] = ()
    spread: Chart | None = None
    tables: Sequence[Table] = ()
    curves: Sequence[Chart] = ()
    diagnostics: Sequence[Chart] = ()
    schedules: Sequence[Chart] = ()


def describe_learning(
    groups: Sequence[Group],
    options: MetricOptions,
    notes: list[str],
    read: ReadSeries = read_series,
) -> list[Learning]:
    """The results and curves of groups, by environment."""
    members = [member for group in groups for member in group.members]
    diagnostics: Sequence[str] = ()
    schedules: Sequence[str] = ()
    if options.has_diagnostics:
        diagnostics, schedules = _find_diagnostics(members, read)
    more = (_TRAINING, *diagnostics, *schedules, *X_FIELDS[options.x], *_SPREAD)
    reader = CurveReader(members, options.metric, notes, more=more, read=read)
    environments = dict.fromkeys(member.environment for member in members)
    found: list[Learning] = []
    samples: dict[str, Sequence[comparison.Sample]] = {}
    colors: Mapping[str, int] = {}
    for environment in environments:
        if environment is None:
            notes.append("runs whose recipes cannot be read are left out")
            continue
        page = _Environment(environment, groups, reader, options)
        if page.samples:
            found.append(page.describe(diagnostics, schedules))
            samples[environment], colors = page.samples, page.colors
    if len(found) > 1 and options.has_results:
        found += _describe_overall(samples, colors, reader, options.center)
    return found


def _describe_overall(
    samples: Mapping[str, Sequence[comparison.Sample]],
    colors: Mapping[str, int],
    reader: CurveReader,
    center: str,
) -> list[Learning]:
    """The results over all environments; [] if they cannot be normalized."""
    metric = reader.metric
    overall = comparison.compare_overall(samples, metric, {}, reader.notes)
    if overall is None:
        return []
    rows, cards = overall["groups"], []
    for row in rows:
        gap = format_number(row["optimality_gap"]["value"])
        facts = [("Optimality gap", gap), ("Seeds", str(sum(row["seeds"])))]
        cards.append(_make_card(row, colors[row["group"]], center, facts))
    data = {"environments": [], "overall": overall, "threshold": None, "y": metric}
    tables = [*comparison_tables.tables(data)]
    shown = [_draw_profiles(rows, colors)]
    if pairs := overall["improvement"]:
        shown.insert(0, _draw_intervals(rows, colors, "normalized score", center))
        shown.append(_draw_improvement(pairs, colors))
    return [Learning(ALL_ENVIRONMENTS, "normalized score", cards, shown, tables=tables)]


def _draw_intervals(
    rows: Sequence[Data], colors: Mapping[str, int], x: str, center: str
) -> Chart:
    """The estimate of each group, and the value of each seed."""
    return charts.draw_intervals(
        "Result of each group",
        [
            {
                "label": row["group"],
                "color": colors[row["group"]],
                **row[center],  # `value` and `ci95`
                "results": row["results"],
            }
            for row in rows
        ],
        x=x,
        center=_CENTERS[center],
        description=f"{x}: the {_CENTERS[center]} over seeds of each group with its "
        "95 % bootstrap interval, and the value of each seed as a dot",
    )


def _draw_profiles(rows: Sequence[Data], colors: Mapping[str, int]) -> Chart:
    """The fraction of seeds above each score."""
    profiles = [(row["group"], row["profile"]) for row in rows]
    lines = [
        Line(label, colors[label], *(profile[name] for name in _PROFILE))
        for label, profile in profiles
    ]
    return charts.draw_lines(
        "Performance profile",
        lines,
        x="normalized score",
        y="fraction of seeds above",
        height=200,
        description="The fraction of seeds above each score, with its 95 % bootstrap "
        "interval",
        has_legend=True,
    )


def _draw_improvement(pairs: Sequence[Data], colors: Mapping[str, int]) -> Chart:
    """The probability that the first group of a pair is better than the second."""
    rows = [
        {
            "label": f"{pair['first']} over {pair['second']}",
            "color": colors[pair["first"]],
            **{"value": pair["value"], "ci95": pair["ci95"], "results": ()},
        }
        for pair in pairs
    ]
    return charts.draw_intervals(
        "Probability of improvement",
        rows,
        x="probability",
        center="probability",
        x_range=(0, 1),
        threshold=0.5,
        description="The probability that a seed of the first group has a higher score "
        "than one of the second, with its 95 % bootstrap interval",
    )


def _make_card(
    row: Data, color: int, center: str, facts: Sequence[tuple[str, str]]
) -> Card:
    """The estimate of a group with its interval in words, and facts."""
    interval = "no interval: 1 seed"
    if row[center]["ci95"] is not None:
        low, high = map(format_number, row[center]["ci95"])
        interval = f"95 % interval {low} to {high}"
    value = format_number(row[center]["value"])
    return Card(row["group"], color, value, interval, facts)


def _find_diagnostics(
    members: Sequence[Member], read: ReadSeries
) -> tuple[list[str], list[str]]:
    """The metrics of updaters, and the values of options with schedules."""
    names: set[str] = set()
    for member in members:
        names |= read(member.folder, ()).metrics
        seeds = len(member.info.get("seeds", ()))
        rows = []
        with contextlib.suppress(RlcliError):  # damaged: a note counts such lines
            rows, _ = read_last_rows(member.folder, seeds, with_evaluation=False)
        names |= {
            name
            for row in rows
            for name, value in row.items()
            if value is None or type(value) in (int, float)
        }
    names = {
        name
        for name in names - _NOT_DIAGNOSTICS
        if not name.startswith((f"{EVALUATION}.", "total_", "max_"))
    }
    ordered = [name for name in _FIRST if name in names]
    ordered += sorted(name for name in names - {*_FIRST} if "." not in name)
    return ordered, sorted(name for name in names if "." in name)


class _Environment:
    """Computes the results and curves of the groups in one environment."""

    def __init__(
        self,
        environment: str,
        groups: Sequence[Group],
        reader: CurveReader,
        options: MetricOptions,
    ) -> None:
        self.environment, self.options, self.reader = environment, options, reader
        self.metric = reader.metric
        self.colors = {group.label: index for index, group in enumerate(groups)}
        self.samples = comparison.collect_samples(reader, groups, environment)
        # The charts of all metrics have equal axes of steps.
        steps = [each.last_step for sample in self.samples for each in sample.by_steps]
        self._last_step = float(max(steps, default=0))

    def describe(
        self, diagnostics: Sequence[str], schedules: Sequence[str]
    ) -> Learning:
        """The parts that the options ask for; without results, cards are labels."""
        labels = [sample.group.label for sample in self.samples]
        learning = Learning(
            self.environment,
            label_metric(self.metric),
            [Card(label, self.colors[label], "", "", ()) for label in labels],
            diagnostics=self._small_charts(diagnostics),
            schedules=self._small_charts(schedules),
        )
        if not self.options.has_results:
            return learning
        result = comparison.compare_environment(
            self.environment, self.samples, self.metric, self.options.threshold
        )
        members = [m for sample in self.samples for m in sample.group.members]
        differences = protocol.find_recipe_differences(members, ("episodes",))
        differences += protocol.find_early_ends(
            [seed for sample in self.samples for seed in sample.by_steps]
        )
        self.reader.notes += [f"{self.environment}: {line}" for line in differences]
        data = {"threshold": self.options.threshold, "overall": None, "y": self.metric}
        rows, center = result["groups"], self.options.center
        curves = [self._curve_chart(self.metric)]
        if self.metric != _TRAINING:
            curves.append(self._curve_chart(_TRAINING))
        chart = _draw_intervals(rows, self.colors, learning.metric, center)
        return learning._replace(
            cards=[self._card(*pair) for pair in zip(self.samples, rows, strict=True)],
            results=[chart] if len(rows) > 1 else [],
            spread=self._spread_chart(),
            tables=[*comparison_tables.tables({**data, "environments": [result]})],
            curves=[chart for chart in curves if chart],
        )

    def _card(self, sample: comparison.Sample, row: Data) -> Card:
        center = self.options.center
        other = "iqm" if center == "mean" else "mean"
        facts = [
            (_CENTERS[other].capitalize(), format_number(row[other]["value"])),
            ("Seeds", str(row["seeds"])),
            ("Steps per seed", f"{max(s.last_step for s in sample.by_steps):,}"),
        ]
        if sample.by_seconds:
            seconds = max(float(seed.x[-1]) for seed in sample.by_seconds)
            facts.append(("Training time", format_duration(seconds)))
        return _make_card(row, self.colors[row["group"]], center, facts)

    def _spread_chart(self) -> Chart | None:
        """The returns of each seed's episodes in its last evaluation."""
        rows: list[dict[str, Any]] = []
        for sample in self.samples:
            lasts = [self.reader.read_seeds(sample.group, name) for name in _SPREAD]
            ends = [
                {(each.member.folder, each.seed): float(each.y[-1]) for each in seeds}
                for seeds in lasts
            ]
            for key, mean in ends[0].items():
                std, low, high = (each.get(key, mean) for each in ends[1:])
                label = f"{sample.group.label}, seed {key[1]}"
                rows.append(
                    {"label": label, "color": self.colors[sample.group.label]}
                    | {"value": mean, "ci95": (mean - std, mean + std)}
                    | {"results": [low, high]}
                )
        if not rows or all(low == high for low, high in (r["results"] for r in rows)):
            return None
        chart = charts.draw_intervals(
            "Episodes of the last evaluation",
            rows[:_MOST_SPREADS],
            x="return",
            center="mean",
            interval="mean ± standard deviation",
            point="lowest, highest",
            description="For each seed the mean return of the episodes of its last "
            "evaluation, ± their standard deviation, and the lowest and the highest",
        )
        left_out = len(rows) - _MOST_SPREADS
        note = (
            f"The first {_MOST_SPREADS} of {len(rows)} seeds." if left_out > 0 else ""
        )
        return chart._replace(note=note)

    def _curve_chart(self, metric: str) -> Chart | None:
        is_result = metric == self.metric
        return self._chart(
            metric,
            CURVE_POINTS,
            height=300 if is_result else 200,
            threshold=self.options.threshold if is_result else None,
        )

    def _small_charts(self, metrics: Sequence[str]) -> list[Chart]:
        found = (self._chart(metric, SMALL_POINTS, height=150) for metric in metrics)
        return [chart for chart in found if chart]

    def _chart(self, metric: str, points: int, **options: Any) -> Chart | None:
        """The curves of a metric, at most `points` each; None if no group has it."""
        lines, longest = [], 0
        for sample in self.samples:
            group = sample.group
            seeds = self.reader.read_seeds(group, metric, self.options.x)
            seeds = [*filter(None, (self._cut(seed) for seed in seeds))]
            curve = make_curve(
                group.label, seeds, self.options.center, self.reader.notes, points
            )
            if curve is None:
                continue
            longest = max(longest, *(len(seed.x) for seed in seeds))
            own = group.label, self.colors[group.label]
            lines.append(Line(*own, curve.x, curve.y, curve.low, curve.high))
        if not lines:
            return None
        size = -(-longest // points)
        note = (
            f"Each point is the mean of {size} successive log points."
            if size > 1
            else ""
        )
        label, center = label_metric(metric), _CENTERS[self.options.center]
        description = (
            f"{label} by {self.options.x}: {center} over seeds, with its 95 % "
            "bootstrap interval"
        )
        last = self._last_step if self.options.x == "steps" else 0.0
        return charts.draw_lines(
            label if "." in label else label[:1].upper() + label[1:],
            lines,
            x=self.options.x,
            y=label,
            x_range=self.options.range or (0.0, last),
            note=note,
            description=description,
            **options,
        )._replace(meaning=describe_metric(metric))

    def _cut(self, seed: Seed) -> Seed | None:
        """The values of a seed in the range of x; None without any."""
        if self.options.range is None:
            return seed
        low, high = self.options.range
        inside = (seed.x >= low) & (seed.x <= high)
        cut = seed._replace(x=seed.x[inside], y=seed.y[inside])
        return cut if inside.any() else None
