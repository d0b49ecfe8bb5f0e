"""Tables: records and comparisons of runs for people, in terminals of any width."""

import os
import re
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich import box
from rich.table import Table
from rich.text import Text

from rlcli.errors import shorten
from rlcli.quoting import printable
from rlcli.runs import formatting
from rlcli.runs.formatting import NOTHING
from rlcli.runs.run_folder import TIME

WIDE = 118  # columns of a terminal from which on a run has one line
_NAME = 40  # characters of a run's name in one line
_WIDE_COLUMNS = (
    *("run", "changes", "status", "steps", "steps/s", "return", "seeds", "age"),
)
_NARROW_COLUMNS = ("run", "status", "steps", "return")
_OTHER_COLUMNS = 40  # characters of a narrow table beside the names
_LEAST = 8  # characters of a column that the others leave little room
_LONGEST = 100  # characters of the changes of a run
_LEGEND = "return: last evaluation, or ~ mean of training"
_INTERVAL = "; over seeds: IQM (95 % bootstrap interval)"
_STYLES = {
    **{"running": "cyan", "created": "cyan", "finished": "green", "stopped": "green"},
    **{"failed": "bold red", "broken": "bold red"},
}
Record = Mapping[str, Any]


def runs_table(records: Sequence[Record], folder: str | Path, width: int) -> Table:
    """A row per run; in narrow terminals its cells have several lines.

    Names are relative to `folder`, without the overrides at their end.
    """
    has_intervals = any(e["return"] and e["return"]["ci95"] for e in records)
    table = Table(
        box=box.SIMPLE_HEAD,
        padding=0,
        pad_edge=False,
        show_edge=False,
        caption=_LEGEND + (_INTERVAL if has_intervals else ""),
        caption_justify="left",
    )
    columns = _WIDE_COLUMNS if width >= WIDE else _NARROW_COLUMNS
    make_row = _wide_row if width >= WIDE else _narrow_row
    longest = _NAME - 1 if width >= WIDE else width - _OTHER_COLUMNS  # and a gap
    rows = [make_row(record, _name(record, folder, longest)) for record in records]
    flexible = "changes" if width >= WIDE else "run"
    # Widths given here save a third of the time of printing.
    widths = {
        name: 1 + max(len(line) for cell in cells for line in str(cell).split("\n"))
        for name, *cells in zip(columns, columns, *rows, strict=True)
    }
    others = {name: min(n, _NAME) for name, n in widths.items() if name != flexible}
    room = max(_LEAST, width - sum(others.values()) - len(others))  # and the gaps
    for name, size in widths.items():
        justify = "left" if name in ("run", "changes", "status") else "right"
        given = others.get(name, min(size, room))
        table.add_column(name, justify=justify, overflow="fold", width=given)
    for row in rows:
        table.add_row(*row)
    return table


def _wide_row(record: Record, name: str) -> list[Text]:
    speed = formatting.format_count(record["steps_per_second"])
    numbers = (_steps(record), speed, " ".join(_return(record)), _seeds(record))
    cells = [*map(Text, numbers), Text(_age(record))]
    return [Text(name), _changes(record), _status(record), *cells]


def _narrow_row(record: Record, name: str) -> list[Text]:
    """The same with speed and age in a second line, and seeds beside the changes."""
    speed = record["steps_per_second"]
    rate = f"{formatting.format_count(speed)}/s" if speed else ""
    seeds = _seeds(record)
    changes = _changes(record, [] if seeds in ("", "0") else [f"seeds {seeds}"])
    run = Text(name)
    if changes:
        run.append("\n").append(changes)
    mean, *interval = _return(record)
    return [
        run,
        _status(record).append(f"\n{_age(record)}", "dim"),
        Text(_steps(record)).append(f"\n{rate}", "dim"),
        Text(mean).append("\n" + "".join(interval), "dim"),
    ]


def _name(record: Record, folder: str | Path, longest: int) -> str:
    """The path of a run from a folder, with recipe and name unless they are in it.

    Above `longest` characters it has several lines, which end with slashes.
    """
    parts = Path(record["run"]).parts
    path = Path(os.path.relpath(record["run"], folder))
    if not path.name:  # the folder itself
        path = Path(Path(record["run"]).absolute().name)
    if match := TIME.match(path.name):
        path = path.with_name(match[0])
    notes = ", ".join(
        record[field]
        for field in ("recipe", "name")
        if record[field] and record[field] not in parts
    )
    name = printable(f"{path} ({notes})" if notes else str(path))
    lines = [""]
    for piece in re.findall("[^/]*/|[^/]+", name):
        if lines[-1] and len(lines[-1] + piece) > longest:
            lines.append("")
        lines[-1] += piece
    return "\n".join(lines)


def _changes(record: Record, more: Sequence[str] = ()) -> Text:
    """The changes of the built-in recipe, or the reason why a run is broken."""
    if record["status"] == "broken":
        reason = record["reason"].replace(f"{record['run']}{os.sep}", "")
        reason = shorten(reason, _LONGEST)
        return Text(printable(reason), "red")
    marks = ["smoke"] if record["smoke"] else []
    marks += [f"#{printable(tag)}" for tag in record["tags"]]
    changes = shorten(", ".join(formatting.format_changes(record["changes"])), _LONGEST)
    return Text(", ".join([*([changes] if changes else []), *more, *marks]), "dim")


def _status(record: Record) -> Text:
    status = printable(str(record["status"]))
    return Text().append(status, _STYLES.get(status, "yellow"))


def _steps(record: Record) -> str:
    steps, total = record["steps"], record["total_steps"]
    text = formatting.format_count(steps)
    goal = f"/{formatting.format_count(total)}" if total and steps != total else ""
    return text + goal


def _return(record: Record) -> list[str]:
    """The mean of one seed; the IQM of several seeds, and its interval."""
    result = record["return"]
    if result is None:
        return [NOTHING]
    mark = "~" if result["source"] == "training" else ""
    number = f"{mark}{formatting.format_number(result['iqm'])}"
    if result["ci95"] is None:
        return [number]
    low, high = map(formatting.format_number, result["ci95"])
    return [number, f"({low} to {high})"]


def _seeds(record: Record) -> str:
    """The first and the last seed, and the number of frozen seeds."""
    seeds = record["seeds"] or ()
    text = f"{seeds[0]}–{seeds[-1]}" if len(seeds) > 1 else "".join(map(str, seeds))
    return f"{text} ({record['frozen']} frozen)" if record["frozen"] else text


def _age(record: Record) -> str:
    created = formatting.parse_time(record["created"])
    if created is None:
        return NOTHING
    return formatting.format_duration(time.time() - created)


def diff_table(result: Mapping[str, Any]) -> Table:
    """The values of two runs or recipes side by side, by section."""
    table = Table(
        box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False
    )
    table.add_column("", no_wrap=True)
    table.add_column(Text(printable(result["first"])), overflow="fold")
    table.add_column(Text(printable(result["second"])), overflow="fold")
    for title, rows in _diff_sections(result).items():
        table.add_row(Text(title, "bold"), "" if rows else "equal")
        for name, values in rows.items():
            texts = (name, *values)
            table.add_row(*(Text(printable(text)) for text in texts))
    return table


def _diff_sections(result: Mapping[str, Any]) -> dict[str, dict[str, list[str]]]:
    """The rows by section; an empty section has no differences."""
    sections = {
        title: {
            f"  {key}": [_format_option(value) for value in values]
            for key, values in result[title].items()
        }
        for title in ("recipe", "provenance")
        if result[title] is not None
    }
    if result["results"] is not None:
        values = {"seeds": result["seeds"], **result["results"]}
        sections["results"] = {
            f"  {name.replace('_per_second', '/s')}": [
                _format_result(name, value) for value in pair
            ]
            for name, pair in values.items()
            if pair is not None
        }
    return sections


def _format_option(value: Any) -> str:
    return NOTHING if value is None else formatting.format_value(value, _LONGEST)


def _format_result(name: str, value: Any) -> str:
    if name == "return":
        return formatting.format_return(value) or NOTHING
    if name == "seeds":
        return ", ".join(map(str, value or ()))
    if isinstance(value, str):
        return value
    return formatting.format_number(value)
