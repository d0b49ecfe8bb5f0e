"""Screens: what commands print about runs, in terminals of every kind and in a pipe."""

import os
import re
import time
from pathlib import Path

import pytest
from folders import OTHER_RATE, metric_rows, write_run

from rlcli.cli import main

SNAPSHOTS = Path(__file__).parent / "snapshots"
COMMANDS = {
    "runs": ["runs"],
    "show": ["show", "runs/a"],
    "diff": ["diff", "runs/a", "runs/b"],
    "plot": ["plot", "runs", "--threshold", "300"],
    "compare": ["compare", "runs", "--threshold", "300"],
    "misspelled": ["shwo", "runs/a"],
    "missing": ["eval", "runs/c"],
}
TABLES = ("runs", "diff", "plot", "compare")
# The environment variables of each kind.
TERMINALS = {
    "60": {"COLUMNS": "60"},
    "80": {"COLUMNS": "80"},
    "120": {"COLUMNS": "120"},
    "80_colour": {"COLUMNS": "80", "FORCE_COLOR": "1", "TERM": "xterm-256color"},
    "80_no_colour": {
        **{"COLUMNS": "80", "FORCE_COLOR": "1", "TERM": "xterm-256color"},
        "NO_COLOR": "1",
    },
    "80_dumb": {"COLUMNS": "80", "TERM": "dumb"},
    "pipe": {},
}
VARIABLES = ("COLUMNS", "LINES", "FORCE_COLOR", "NO_COLOR", "TERM", "COLORTERM", "CI")


@pytest.fixture(autouse=True)
def _files(folder, monkeypatch):
    """Two runs of two seeds, two hours after their start."""
    monkeypatch.setattr(time, "time", lambda: 1_795_168_800 + 7_200.0)
    for name, slope, resolved in (("a", 1.0, None), ("b", 0.6, OTHER_RATE)):
        curves = {
            seed: [
                (step, slope * (step / 100 + seed)) for step in range(0, 50_001, 500)
            ]
            for seed in (0, 1)
        }
        write_run(
            folder / "runs" / name,
            rows=sorted(
                metric_rows(curves, "evaluation.mean"), key=lambda row: row["T"]
            ),
            **({"resolved": resolved} if resolved else {}),
            changes={"optimizer.learning_rate": [0.001, 0.01]} if resolved else {},
            tags=["paper"],
        )


@pytest.mark.parametrize("terminal", TERMINALS)
@pytest.mark.parametrize("command", COMMANDS)
def test_a_screen_looks_as_it_did(command, terminal, capsys, monkeypatch):
    """UPDATE_SNAPSHOTS=1 writes the files: look at them before they are committed."""
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    for name, value in TERMINALS[terminal].items():
        monkeypatch.setenv(name, value)
    code = main(COMMANDS[command])
    out, err = capsys.readouterr()
    text = f"{out}--- stderr, exit {code}\n{err}".replace("\x1b", "␛")
    styles = re.findall(r"\x1b\[([0-9;]*)m", out)
    if terminal == "80_no_colour" and command in TABLES:
        lines = re.sub(r"\x1b\[[0-9;]*m", "", out).splitlines()
        assert max(map(len, lines)) <= 80
    if terminal != "80_colour":
        assert not {"31", "32", "33", "34", "35", "36"} & {*";".join(styles).split(";")}
    path = SNAPSHOTS / f"{command}_{terminal}.txt"
    if os.environ.get("UPDATE_SNAPSHOTS"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")
