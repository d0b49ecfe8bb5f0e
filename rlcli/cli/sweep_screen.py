"""Sweep screen: shows a sweep while it runs, its end, and its results."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Group
from rich.table import Table

import rlcli
from rlcli import errors
from rlcli.cli import output, study_screen, training_outcome
from rlcli.errors import shell_path
from rlcli.quoting import join_shell, printable, quote_rich
from rlcli.runs.formatting import format_duration, format_number, format_number_of
from rlcli.runs.naming import shorten_keys
from rlcli.runs.provenance import program

if TYPE_CHECKING:
    from rlcli.studies.search.trial_source import SweepProgress
    from rlcli.studies.search.trials import Trial

_TOP = 10  # trials in a table
_BAR = 20  # characters of the bar of an importance
_NEVER = "never"  # the steps to a return that was not reached
_STYLE: Mapping[str, Any] = {"pad_edge": False, "show_edge": False}
_STYLES = {"complete": "green", "running": "cyan", "pruned": "dim", "failed": "red"}


def run_sweep(*, quiet: bool, json: bool = False, **keywords: Any) -> int:
    """Calls `rlcli.sweep`, shows it, and reports its end; returns the exit code."""
    from rlcli.studies.engines.engine_options import EngineOptions  # as late

    with study_screen.show_live(quiet, _Lines(), _panel) as report:
        folder = training_outcome.complete(rlcli.sweep, report=report, **keywords)
    if (engines := EngineOptions.select(keywords)).is_array:
        resume = _resume_command(folder, **keywords | {"trust": None})
        return study_screen.report_script(folder, engines, resume, quiet)
    return report_end(folder, quiet=quiet, json=json, **keywords)


class _Lines:
    """Prints a line for each trial that has ended."""

    def __init__(self) -> None:
        self._shown: set[int] | None = None  # None: nothing yet, maybe a resume

    def __call__(self, progress: SweepProgress) -> None:
        ended = [each for each in progress.trials if _has_ended(each)]
        before = self._shown
        self._shown = {each.number for each in ended}
        if before is None:
            return
        new = [each for each in ended if each.number not in before]
        for count, trial in enumerate(new, len(ended) - len(new) + 1):
            result = _value(trial.value) if trial.state == "complete" else trial.state
            best = _best(progress)
            leader = f"; best {_value(best.value)}, trial {best.number}" if best else ""
            text = f"[{count} of {progress.total}] trial {trial.number}: {result}"
            output.print_message(text + leader)


def _has_ended(trial: Trial) -> bool:
    return trial.state not in ("running", "waiting")


def _best(progress: SweepProgress) -> Trial | None:
    from rlcli.studies.search.trials import rank

    return next(iter(rank(progress.trials, progress.objective)), None)


def _panel(progress: SweepProgress, width: int) -> Group:
    """The running trials, the best one, counts and the time that is left."""
    counts = Counter(each.state for each in progress.trials)
    ended = sum(map(_has_ended, progress.trials))
    words = [f"{ended} of {progress.total} trials"]
    states = ("running", "complete", "pruned", "failed")
    words += [f"{counts[state]} {state}" for state in states if counts[state]]
    if progress.confirmed:
        numbers = ", ".join(map(str, progress.confirmed))
        words.append(f"confirming {numbers} with other seeds")
    elif progress.seconds is not None:
        words.append(f"about {format_duration(progress.seconds)} left")
    best = _best(progress)
    shown = [each for each in progress.trials if each.state == "running"]
    shown = [*([best] if best else []), *shown]
    rows = [
        (
            str(each.number),
            "best" if each is best else each.state,
            _value(each.value if each is best else _last_rung(each)),
            each.values,
        )
        for each in shown
    ]
    table = _table(rows, f"{progress.objective}", width)
    return Group(quote_rich(" · ".join(words)), table)


def _last_rung(trial: Trial) -> float | None:
    return trial.rungs[max(trial.rungs)] if trial.rungs else None


def _table(
    rows: Sequence[tuple[str, str, str, Mapping[str, Any]]], objective: str, width: int
) -> Table:
    """A row per trial: number, state, objective and options.

    Each option has a column, if they fit in `width`; otherwise all share one.
    """
    keys = [*dict.fromkeys(key for *_, values in rows for key in values)]
    names = shorten_keys(keys)
    options = [[_option(values.get(key)) for key in keys] for *_, values in rows]
    header = ["trial", "state", objective, *names]
    cells = [(*row[:3], *values) for row, values in zip(rows, options, strict=True)]
    columns = zip(header, *cells, strict=True)
    if sum(max(map(len, column)) + 3 for column in columns) > width:
        header = [*header[:3], "options"]
        options = [
            [", ".join(map("=".join, zip(names, values, strict=True)))]
            for values in options
        ]
    table = output.make_table(header, text=("state", "options"), **_STYLE)
    for column in table.columns[:3]:
        column.no_wrap = True
    table.columns[-1].overflow = "fold"
    for (number, state, value, _), values in zip(rows, options, strict=True):
        marked = quote_rich(state, _STYLES.get(state.partition(" ")[0], ""))
        table.add_row(number, marked, value, *map(quote_rich, values))
    return table


def _option(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _value(value: float | None) -> str:
    if value is None:
        return "–"
    return _NEVER if abs(value) == float("inf") else format_number(value)


def _interval(entry: Mapping[str, Any]) -> str:
    """The value with its interval: `480 [470, 490]`."""
    text = _value(entry["value"])
    if entry["ci95"] is None:
        return text
    low, high = map(format_number, entry["ci95"])
    return f"{text} [{low}, {high}]"


def report_end(folder: Path, *, quiet: bool, json: bool, **given: Any) -> int:
    """Prints the winner, the folder and the next command; returns the exit code.

    `given` are the keywords of the sweep, some of which that command names again.
    """
    data = rlcli.show_sweep(folder, storage=given.get("storage"))
    status, path = data["status"], shell_path(folder)
    if status == "failed":
        reasons = [each["reason"] for each in data["trials"] if each["reason"]]
        reason = f": {reasons[0]}" if reasons else ""
        if complete := data["counts"].get("complete"):
            number = format_number_of(complete, "complete trial")
            reason = f": `{data['objective']}` is infinite in {number}"
        output.print_message(f"error: no trial has a result{reason}")
    elif status == "finished" and not quiet:
        _print_warnings(data)
        output.print_message(f"winner: {_describe_winner(data['winner'])}")
        target = f"{program()} sweep export {path} best.yaml"
        output.print_message(f"next: {program()} sweep show {path}, or {target}")
    elif not quiet:
        output.print_message(f"next: {_resume_command(folder, **given)}")
    if json:
        output.print_json(data)
    else:
        output.print_data(folder)
    return errors.EXIT_CODES[status]


def _resume_command(
    folder: Path,
    *,
    storage: str | None = None,
    run_storage: str | None = None,
    trust: bool | None = None,
    **_: Any,
) -> str:
    """The command that continues a sweep, with its addresses and `--trust` again."""
    words = ["--resume"]
    words += [] if storage is None else ["--storage", storage]
    words += [] if run_storage is None else ["--run-storage", run_storage]
    words += ["--trust"] if trust else []
    return f"{program()} sweep {shell_path(folder)} {join_shell(words)}"


def _describe_winner(winner: Mapping[str, Any]) -> str:
    options = ", ".join(
        f"{key}={_option(value)}" for key, value in winner["options"].items()
    )
    other = "other " if _is_confirmed(winner) else ""
    seeds = format_number_of(len(winner["seeds"] or ()), f"{other}seed")
    value = f"{_interval(winner)} over {seeds}"
    return printable(f"trial {winner['trial']}, {value}: {options}")


def _print_warnings(data: Mapping[str, Any]) -> None:
    for warning in data["warnings"]:
        output.print_message(f"warning: {warning}")


def print_sweep(data: Mapping[str, Any], *, json: bool) -> None:
    """Prints the result of `rlcli.show_sweep`."""
    if json:
        output.print_json(data)
        return
    screen = output.table_console()
    counts = ", ".join(f"{n} {state}" for state, n in data["counts"].items())
    words = f"{data['status']}: {counts or 'no trials'} of {data['total']}"
    screen.print(quote_rich(f"{data['folder']}: {words}"), soft_wrap=True)
    title = f"{data['objective']}, IQM of {format_number_of(data['seeds'], 'seed')}"
    search = f"{title}; {data['direction']}d by {data['sampler']}"
    screen.print(quote_rich(search), soft_wrap=True)
    if winner := data["winner"]:
        screen.print(quote_rich(f"winner: {_describe_winner(winner)}"), soft_wrap=True)
    rungs = Counter(each["pruned_at"] for each in data["trials"] if each["pruned_at"])
    if rungs:
        pruned = ", ".join(f"{n} at step {step:,}" for step, n in sorted(rungs.items()))
        screen.print(f"pruned: {pruned}", soft_wrap=True)
    _print_warnings(data)
    if not data["trials"]:
        return
    _print_trials(screen, data)
    _print_confirmation(screen, data)
    _print_lineage(screen, data)
    if data["slices"]:
        _print_options(screen, data)


def _print_trials(screen: Any, data: Mapping[str, Any]) -> None:
    is_less_better = data["direction"] == "minimize"

    def order(trial: Mapping[str, Any]) -> tuple[bool, int, float]:
        value, rung = _latest(trial), trial["pruned_at"] or 0
        if value is None:
            return True, -rung, trial["trial"]
        is_complete = trial["value"] is not None
        return not is_complete, -rung, value if is_less_better else -value

    trials = sorted(data["trials"], key=order)
    rows = [
        (
            str(each["trial"]),
            each["state"] + (f" at {each['pruned_at']:,}" if each["pruned_at"] else ""),
            _interval(each) if each["value"] is not None else _value(_latest(each)),
            each["options"],
        )
        for each in trials[:_TOP]
    ]
    screen.print()
    screen.print(_table(rows, data["objective"], screen.width))
    if len(trials) > _TOP:
        more = format_number_of(len(trials) - _TOP, "more trial")
        screen.print(f"{more}: --json", soft_wrap=True)


def _latest(trial: Mapping[str, Any]) -> float | None:
    """The objective of a trial, or that at which it was pruned."""
    if trial["pruned_at"] is None:
        return trial["value"]
    return trial["rungs"].get(str(trial["pruned_at"]))


def _print_confirmation(screen: Any, data: Mapping[str, Any]) -> None:
    rows = [
        (str(each["trial"]), _value(each["trial_value"]), _interval(each), each["run"])
        for each in data["confirmed"]
        if _is_confirmed(each)
    ]
    if rows:
        screen.print()
        header = ("trial", "in the trial", "with other seeds [95 %]", "run")
        screen.print(output.make_table(header, rows, text=["run"], **_STYLE))


def _print_lineage(screen: Any, data: Mapping[str, Any]) -> None:
    """The history of the winner of a population, or of the best member so far."""
    leader = data["winner"] or data["best"]
    if leader is None or "lineage" not in data["trials"][leader["trial"]]:
        return
    stages = data["trials"][leader["trial"]]["lineage"]
    keys = [*stages[0]["options"]]
    rows = (
        (
            f"{stage['step']:,}",
            str(stage["trial"]),
            *(_option(stage["options"][key]) for key in keys),
        )
        for stage in stages
    )
    screen.print(f"\nlineage of trial {leader['trial']}")
    header = ("from step", "trial", *shorten_keys(keys))
    screen.print(output.make_table(header, rows, **_STYLE))


def _is_confirmed(entry: Mapping[str, Any]) -> bool:
    return entry["run"].startswith("confirm")


def _print_options(screen: Any, data: Mapping[str, Any]) -> None:
    """The importance of each option, and the trials of each part of its range."""
    importance, rows = data["importance"], []
    for each in sorted(
        data["slices"], key=lambda each: -importance.get(each["option"], 0)
    ):
        share = importance.get(each["option"])
        bar = "" if share is None else f"{'█' * round(_BAR * share)} {share:.2f}"
        labels = [each["option"], bar]
        for part in each["values"]:
            if part["trials"]:
                numbers = _value(part["best"]), _value(part["median"])
                rows.append([*labels, part["label"], str(part["trials"]), *numbers])
                labels = ["", ""]
    screen.print()
    text = ("option", "importance", "values")
    header = (*text, "trials", "best", "median")
    screen.print(output.make_table(header, rows, text=text, **_STYLE))
