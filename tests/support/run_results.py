"""Run results: what a run has computed, to compare with that of another run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

from rlcli.runs.metrics import CLOCK_FIELDS
from rlcli.runs.run_folder import Run


class RunResult(NamedTuple):
    """What does not depend on interruptions."""

    status: str
    checkpoint: tuple[str, bytes] | None  # the name of the newest, and its content
    policies: dict[str, bytes]  # by the name of the file
    rows: list[dict[str, Any]]  # of metrics, without times
    films: list[str]
    temporary_files: list[str]


def read_result(folder: Path) -> RunResult:
    """The result of the run in a folder."""
    run = Run(folder)
    latest = run.latest_checkpoint()
    policies = [path for path in (run.policy, run.best) if path.exists()]
    rows = [json.loads(line) for line in run.metrics.read_text().splitlines()]
    return RunResult(
        run.read_info()["status"],
        latest and (latest.name, latest.read_bytes()),
        {path.name: path.read_bytes() for path in policies},
        [{k: v for k, v in row.items() if k not in CLOCK_FIELDS} for row in rows],
        sorted(path.name for path in folder.glob("films/*")),
        sorted(path.name for path in folder.rglob("*.tmp")),
    )


def differences(one: RunResult, other: RunResult) -> list[str]:
    """The names of the fields that differ."""
    return [
        name.replace("_", " ")
        for name in RunResult._fields
        if getattr(one, name) != getattr(other, name)
    ]
