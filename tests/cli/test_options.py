"""Options that several verbs share."""

from pathlib import Path

import pytest
import typer
from folders import write_run

from rlcli.cli import options
from rlcli.runs.durations import START_TIME


@pytest.mark.parametrize(
    ("text", "expected"), [("600x400", (600, 400)), ("1X2", (1, 2)), (None, None)]
)
def test_a_size_is_width_and_height(text, expected):
    assert options.parse_size(text) == expected


@pytest.mark.parametrize(
    "text", ["", "x", "600", "0x1", "1x2x3", "-1x2", "²x2", "9e9x1"]
)
def test_another_size_is_refused(text):
    with pytest.raises(typer.BadParameter, match="a height such as 600x400"):
        options.parse_size(text)


def test_no_time_limit_is_none():
    assert options.parse_deadline(None) is None
    assert options.parse_deadline("10m") == START_TIME + 600
    assert options.parse_deadline("10m", "slurm") == 600  # of each task


def test_of_several_runs_the_newest_is_taken_and_named(folder, capsys):
    write_run(Path("runs/my dqn/2026-11-20T10-00-00"))
    assert options.choose_run("runs/my dqn") == "runs/my dqn"
    newest = write_run(Path("runs/my dqn/2026-11-20T11-00-00"))
    assert capsys.readouterr().err == ""
    assert options.choose_run(Path("runs/my dqn")) == newest
    assert capsys.readouterr().err == (
        "using `runs/my dqn/2026-11-20T11-00-00`, the newest of 2 runs; to use "
        "another, pass its folder: `rlcli runs 'runs/my dqn'` lists all runs\n"
    )
    options.choose_run("runs/my dqn", quiet=True)
    assert capsys.readouterr().err == ""
    for path in (newest, "runs", "dqn_cartpole", newest / "run.json"):
        assert options.choose_run(path) == path
