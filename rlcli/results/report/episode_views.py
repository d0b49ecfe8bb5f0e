"""Episode views: charts and films of the episodes of trained policies."""

import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from rlcli.errors import RlcliError
from rlcli.results.canvas import widen_range
from rlcli.results.groups import Group
from rlcli.results.report import charts
from rlcli.results.report.charts import Chart, Line
from rlcli.results.report.frame_sheet import FrameSheet
from rlcli.results.report.replayed_episodes import (
    EpisodeOptions,
    EpisodeRecording,
    SeedResult,
    choose_extremes,
    evaluate_group,
    replay_episode,
)
from rlcli.runs.formatting import format_number, format_number_of
from rlcli.runs.result import Table
from rlcli.runs.statistics import summary

_BINS = 24
_MAX_POINTS = 400  # of a curve along an episode
_MAX_ACTIONS = 12  # of a chart of probabilities or values
_draw_steps = functools.partial(
    charts.draw_lines, x="step", height=180, has_legend=True
)


class Film(NamedTuple):
    """The frames of an episode, with a caption for each."""

    sheet: FrameSheet
    captions: Sequence[str]


class EpisodeView(NamedTuple):
    """An episode of the page."""

    title: str
    caption: str
    film: Film | None
    charts: Sequence[Chart]
    notes: Sequence[str]


class GroupEpisodes(NamedTuple):
    """The episodes of a group."""

    label: str
    color: int
    summary: str
    returns: Chart
    table: Table
    episodes: Sequence[EpisodeView]


def describe_episodes(
    groups: Sequence[Group],
    options: EpisodeOptions,
    notes: list[str],
    report_phase: Callable[[str], None],
) -> list[GroupEpisodes]:
    """The returns of each group's policies, and its best and worst episode."""
    members = (member for group in groups for member in group.members)
    environments = [*dict.fromkeys(member.environment for member in members)]
    found = []
    for environment in environments:
        evaluated = {
            index: evaluate_group(own, options, notes, report_phase)
            for index, group in enumerate(groups)
            if (own := group.within(environment)).members
        }
        # Histograms of one environment have equal intervals, so they can be compared.
        limits = _find_range([*itertools.chain(*evaluated.values())])
        for index, results in evaluated.items():
            if not results:
                continue
            place = f" in {environment}" if len(environments) > 1 else ""
            label = f"{groups[index].label}{place}"
            report_phase(f"replaying episodes of {label}")
            episodes = [*_view_extremes(results, options, notes)]
            text, table = _summarize(results), _tabulate(results)
            returns = _draw_returns(results, index, limits)
            found.append(GroupEpisodes(label, index, text, returns, table, episodes))
    return found


def _view_extremes(
    results: Sequence[SeedResult], options: EpisodeOptions, notes: list[str]
) -> Iterator[EpisodeView]:
    """The best and the worst episode; one that cannot be replayed gets a note."""
    for title, result, place in choose_extremes(results):
        try:
            replay = replay_episode(result, place, options)
        except RlcliError as error:
            notes.append(
                f"no episode of `{result.run}` can be replayed: {error.message}"
            )
        else:
            yield view_episode(title, replay, result, place)


def _summarize(results: Sequence[SeedResult]) -> str:
    total = summary(np.array([result.returns.mean() for result in results]))
    episodes = format_number_of(len(results[0].returns), "episode")
    seeds = format_number_of(len(results), "seed")
    text = f"Mean {format_number(total['mean'])}, IQM {format_number(total['iqm'])}"
    if total["ci95"] is not None:
        low, high = map(format_number, total["ci95"])
        text += f" (95 % interval over seeds: {low} to {high})"
    return f"{text}; {seeds} of {episodes}."


def _finite_returns(results: Sequence[SeedResult]) -> np.ndarray:
    values = np.concatenate([[], *(result.returns for result in results)])
    return values[np.isfinite(values)]


def _find_range(results: Sequence[SeedResult]) -> tuple[float, float]:
    finite = _finite_returns(results)
    return widen_range([*finite]) if len(finite) else (0.0, 1.0)


def _draw_returns(
    results: Sequence[SeedResult], color: int, limits: tuple[float, float]
) -> Chart:
    finite, (low, high) = _finite_returns(results), limits
    counts, edges = np.histogram(finite, _BINS, (low, high))
    marks = {
        f"seed {result.seed} ({result.run})": float(result.returns.mean())
        for result in results
        if np.isfinite(result.returns).all()
    }
    return charts.draw_histogram(
        "Distribution of returns",
        color,
        counts.tolist(),
        edges.tolist(),
        marks,
        x="return",
        description=f"Histogram of the returns of {len(finite)} episodes, between "
        f"{format_number(low)} and {format_number(high)}; triangles are the means of "
        "seeds",
    )


def _tabulate(results: Sequence[SeedResult]) -> Table:
    rows = []
    for each in results:
        statistics = (np.mean, np.std, np.min, np.median, np.max)
        numbers = [
            format_number(float(function(each.returns))) for function in statistics
        ]
        frozen = " (frozen)" if each.is_frozen else ""
        length = format_number(float(each.lengths.mean()))
        rows.append([f"{each.seed}{frozen}", *numbers, length, each.run])
    header = ["seed", "mean", "std", "min", "median", "max", "length", "run"]
    return Table("Returns of each seed", header, rows)


def view_episode(
    title: str, replay: EpisodeRecording, result: SeedResult, place: int
) -> EpisodeView:
    """The charts and the film of a replayed episode."""
    expected = float(result.returns[result.replayable[place]])
    missing = "; ".join(replay.reasons)
    notes = [f"Not shown: {missing}"] if missing else []
    steps = len(replay.rewards)
    is_cut = not replay.has_ended and steps < replay.length
    if not is_cut and not np.isclose(replay.total, expected, rtol=1e-4, atol=1e-6):
        notes.append(
            f"The replayed episode has the return {replay.total:.6g}, the evaluation "
            f"had {expected:.6g} in {replay.length:,} steps: single observations are "
            "rounded differently from a batch"
        )
    caption = (
        f"Return {format_number(replay.total)} in {_describe_length(replay)}; "
        f"seed {replay.seed} of {replay.run}, episode {place + 1}."
    )
    shown = [*_value_charts(replay), *_action_charts(replay)]
    film = replay.frames and Film(replay.frames, _captions(replay))
    return EpisodeView(title, caption, film, shown, notes)


def _describe_length(replay: EpisodeRecording) -> str:
    steps = len(replay.rewards)
    if replay.has_ended:
        end = "terminated" if replay.has_terminated else "truncated"
        return f"{steps:,} steps, {end}"
    if steps < replay.length:
        return f"the first {steps:,} of {replay.length:,} steps"
    return f"the first {steps:,} steps"


def _captions(replay: EpisodeRecording) -> list[str]:
    """Step, return so far and action of each frame."""
    assert replay.frames is not None
    totals = np.concatenate([[0.0], np.cumsum(replay.rewards)])
    captions = []
    for step in replay.frames.steps:
        parts = [f"step {step:,}", f"return {totals[step]:.4g}"]
        if replay.actions is not None and step < len(replay.actions):
            action = " ".join(f"{number:.3g}" for number in replay.actions[step][:4])
            parts.append(f"action {action}")
        captions.append(" · ".join(parts))
    return captions


def _thin(steps: int) -> tuple[np.ndarray, str]:
    """The steps that charts show, and a note if these are not all."""
    every = -(-steps // _MAX_POINTS)
    note = f"One of {every} steps is shown." if every > 1 else ""
    return np.arange(0, steps, every), note


def _value_charts(replay: EpisodeRecording) -> list[Chart]:
    steps, note = _thin(len(replay.rewards))
    found = []
    if replay.values is not None and replay.values.ndim == 1:
        lines = [Line("value estimate", 0, steps, replay.values[steps])]
        if replay.discounted is not None:
            lines.append(Line("discounted return", 1, steps, replay.discounted[steps]))
            if not replay.has_terminated:
                note += " The episode was truncated, so the return lacks later rewards."
        found.append(
            _draw_steps(
                "Value estimates",
                lines,
                y="value",
                height=200,
                note=note.strip(),
                description="The policy's value estimate at each step of the episode"
                ", and the discounted return that followed",
            )
        )
    values = replay.action_values
    if values is not None and values.shape[1] <= _MAX_ACTIONS:
        # Relative to the best action: the differences are small beside the values.
        is_legal = values > -1e8
        best = np.where(is_legal, values, -np.inf).max(axis=1, keepdims=True)
        gaps = np.where(is_legal, values - best, np.nan)
        gap_lines = [
            Line(_label_action(replay, index), index, steps, column[steps])
            for index, column in enumerate(gaps.T)
        ]
        found.append(
            _draw_steps(
                "Advantages of the actions",
                gap_lines,
                y="q(s, a) − max q",
                description="The value of each action minus that of the best action",
            )
        )
    return found


def _label_action(replay: EpisodeRecording, index: int) -> str:
    """The label of a Discrete action, with its number in the environment."""
    return f"action {replay.first_action + index}"


def _action_charts(replay: EpisodeRecording) -> list[Chart]:
    steps, note = _thin(len(replay.rewards))
    shares = replay.probabilities
    if shares is not None and shares.ndim == 2 and shares.shape[1] <= _MAX_ACTIONS:
        labels = [_label_action(replay, index) for index in range(shares.shape[1])]
        return [
            charts.draw_shares(
                "Action probabilities",
                labels,
                steps,
                shares[steps],
                x_title="step",
                description="The probability of each action at each step, with the "
                "exploration of training",
                note=f"With the exploration of training. {note}".strip(),
            )
        ]
    actions: Any = replay.actions
    if actions is None or actions.shape[1] > _MAX_ACTIONS:
        return []
    lines = [
        Line(f"action {index}", index, steps, column[steps])
        for index, column in enumerate(actions.T.astype(float))
    ]
    return [
        _draw_steps(
            "Actions",
            lines,
            y="action",
            note=note,
            description="The actions along the episode",
        )
    ]
