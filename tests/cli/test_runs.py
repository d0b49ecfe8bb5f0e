"""`rlcli runs`: a table of any width, and JSON."""

import json
import re
import time
from pathlib import Path

import pytest
from folders import write_run

import rlcli
from rlcli.cli import main, runs


@pytest.fixture(autouse=True)
def _files(folder, monkeypatch):
    """Two runs and a broken one, two hours after their start."""
    write_run(
        Path("runs/dqn_cartpole/2026-11-20T10-00-00_learning_rate=5e-4"),
        tags=["paper"],
        smoke=True,
    )
    write_run(
        Path("runs/mine"),
        means=(9953.0,),
        name="base",
        step=12_500,
        is_evaluated=False,
        changes={},
        status="interrupted",
        frozen={"0": "the loss"},
        created="2026-11-20T10:00:01Z",
    )
    broken = write_run(Path("runs/ppo/2026-11-20T09-00-00"))
    (broken / "run.json").write_text("{}")
    monkeypatch.setattr(time, "time", lambda: 1_795_168_800 + 7_200.0)


def lines(capsys, monkeypatch, width):
    monkeypatch.setenv("COLUMNS", str(width))
    assert main(["runs"]) == 0
    return capsys.readouterr().out.splitlines()


def test_a_wide_table_has_a_line_for_each_run(capsys, monkeypatch):
    table = lines(capsys, monkeypatch, 160)
    assert table[0].split() == [
        *("run", "changes", "status", "steps", "steps/s", "return", "seeds", "age")
    ]
    assert table[2].split() == [
        *("mine", "(dqn_cartpole,", "base)", "interrupted", "12.5k/50k", "1k"),
        *("~9,954", "0", "(1", "frozen)", "2", "h"),
    ]
    assert table[3].split() == [
        *("dqn_cartpole/2026-11-20T10-00-00", "learning_rate=0.0005,", "smoke,"),
        *("#paper", "finished", "50k", "1k", "12", "(10", "to", "14)", "0–1", "2", "h"),
    ]
    assert table[4].split()[:4] == [
        "ppo/2026-11-20T09-00-00",
        "`run.json`",
        "is",
        "missing",
    ]
    assert "broken" in table[4]
    assert table[-1].startswith("return: last evaluation, or ~ mean of training; over")


@pytest.mark.parametrize("width", [60, 80, 120])
def test_a_table_fits_into_any_terminal_and_shows_everything(
    width, capsys, monkeypatch
):
    table = lines(capsys, monkeypatch, width)
    assert max(map(len, table)) <= width
    text = " ".join(" ".join(table).split())
    for part in ("dqn_cartpole/", "2026-11-20T10-00-00", "mine", "ppo/", "12.5k/50k"):
        assert part in text
    for part in ("finished", "interrupted", "broken", "~9,954", "(10 to 14)", "2 h"):
        assert part in text
    for part in ("0–1", "0 (1 frozen)", "#paper", "smoke"):
        assert part in text
    changes = "".join(line[34:].split()[0] for line in table if line[34:].split())
    assert "learning_rate=0.0005" in (changes if width == 120 else text)
    assert "…" not in text


def test_json_is_the_records_themselves(capsys):
    assert main(["runs", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == rlcli.runs()


def test_every_option_reaches_the_function_of_its_name(monkeypatch, capsys):
    calls = []
    monkeypatch.setitem(
        vars(rlcli), "runs", lambda *given, **more: calls.append((given, more)) or []
    )
    options = "--filter a=1 --filter b=2 --tag x --tag y --sort return --json"
    assert main(["runs", "there", *options.split()]) == 0
    keywords = {"filter": ["a=1", "b=2"], "tag": ["x", "y"], "sort": "return"}
    assert calls == [((Path("there"),), keywords)]
    assert capsys.readouterr().out == "[]\n"


def test_no_runs_are_a_message_and_no_error(folder, capsys):
    (folder / "none").mkdir()
    assert main(["runs", "none"]) == 0
    assert main(["runs", "--tag", "x"]) == 0
    out, err = capsys.readouterr()
    assert out == ""
    assert err == "no run in `none`\nno run in `runs` matches\n"


def test_a_name_of_a_run_does_not_steer_the_terminal(capsys, monkeypatch):
    write_run(Path("runs/x/[red]\x1b[2J"), recipe="\x1b]0;x\x07", tags=["[/]"])
    text = "\n".join(lines(capsys, monkeypatch, 160))
    assert "\x1b" not in text and "\x07" not in text
    assert "[red]\\x1b[2J" in text and "#[/]" in text


def test_watching_requires_a_terminal_and_prints_no_json(capsys):
    assert main(["runs", "--watch"]) == 1
    assert "`--watch` requires a terminal" in capsys.readouterr().err
    assert main(["runs", "--watch", "--json"]) == 2


def test_watching_shows_the_runs_until_ctrl_c(capsys, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")  # Rich's sign of a terminal
    pauses = []

    def sleep(seconds):
        pauses.append(seconds)
        if len(pauses) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(runs.time, "sleep", sleep)
    assert main(["runs", "--watch"]) == 0
    assert capsys.readouterr().out.count("interrupted") >= 2
    assert all(pause >= runs.PERIOD for pause in pauses)


@pytest.mark.parametrize("width", [80, 120])
def test_a_long_name_is_broken_at_slashes_and_a_smoke_run_always_marked(
    width, capsys, monkeypatch
):
    name = "bsuite/dqn_catch/2026-11-28T14-30-33/runs/catch-0"
    changes = {f"updater.option_{n}": [0, n] for n in range(9)}
    write_run(Path("runs", name), changes=changes, smoke=True)
    table = lines(capsys, monkeypatch, width)
    assert "runs/catch-0" in [cell for line in table for cell in line.split()]
    text = " ".join(" ".join(table).split())
    assert re.search("…, (seeds 0–1, )?smoke", text)
