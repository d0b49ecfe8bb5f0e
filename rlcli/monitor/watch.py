"""Watch: the panel of a run that another process trains; behind `rlcli watch`."""

import math
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rlcli.monitor.lines import Row, group_by_point
from rlcli.monitor.monitors import Monitor
from rlcli.runs.formatting import parse_time
from rlcli.runs.locate import locate_run
from rlcli.runs.metrics import MetricsReader
from rlcli.runs.records import UNFINISHED, Record, find_status, read_record
from rlcli.runs.run_folder import Run

_RESULTS = ("mean", "std", "min", "max", "episodes")  # of an evaluation
PERIOD = 0.5  # seconds between two polls of the files


def watch(run: str | Path) -> Record:
    """Shows the progress of a run on stderr until it ends, and returns its record.

    Reads the files of the run only: the run does not notice. Outside a terminal it
    prints the lines of the run's `log.txt`, from the beginning of the run.
    """
    folder = locate_run(run)
    while not _follow(folder):  # a resume has rewritten the metrics
        pass
    return read_record(folder.folder)


def _follow(run: Run) -> bool:
    """Shows the run until it ends; False if its metrics are not continued."""
    reader = MetricsReader(run.folder)
    with _make_monitor(run) as monitor:
        while True:
            # First, because the last rows are written before the status.
            has_ended = find_status(run) not in UNFINISHED
            rows = reader.read()
            if rows is None:
                return False
            _show(monitor, rows)
            if has_ended:
                monitor.end_at(parse_time(run.read_info().get("ended")))
                return True
            time.sleep(PERIOD)


def _make_monitor(run: Run) -> Monitor:
    """A monitor whose clock began with the current process of the run."""
    info = run.read_info()
    while "total_steps" not in info and find_status(run) in UNFINISHED:
        time.sleep(PERIOD)  # the run is being built
        info = run.read_info()
    resume: dict[str, Any] = (info.get("resumes") or [{}])[-1]
    monitor = Monitor(
        title=info.get("recipe", run.folder.name),
        start_time=parse_time(resume.get("time", info.get("created"))),
    )
    monitor.begin(
        info.get("total_steps", 0),
        info.get("seeds", ()),
        start=resume.get("step", 0),
        hint="Ctrl-C does not stop the run",
    )
    monitor.set_phase("waiting for the first log point")
    return monitor


def _show(monitor: Monitor, rows: Sequence[Row]) -> None:
    """Shows new rows, in groups with the same step."""
    if rows:
        monitor.set_phase("running")
    for point in group_by_point(rows):
        logged = [row for row in point if "evaluation" not in row]
        found = [row["evaluation"] for row in point if "evaluation" in row]
        # What is not finite is null in JSON, and a file from elsewhere lacks numbers.
        absent = dict.fromkeys((*_RESULTS, *(key for each in found for key in each)))
        evaluation = [
            {**row, "evaluation": _fill(absent | row["evaluation"])}
            for row in point
            if "evaluation" in row
        ]
        monitor.update(logged, point[0]["T"], evaluation)
    monitor.refresh()


def _fill(result: Mapping[str, float | None]) -> dict[str, float]:
    numbers = {key: math.nan if n is None else n for key, n in result.items()}
    return numbers | {"episodes": int(result["episodes"] or 1)}
