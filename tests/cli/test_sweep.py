"""`rlcli sweep`: arguments, the screen while it runs, and what it has found."""

import functools
import io
import json
from pathlib import Path

import pytest
from sweeps import FakeEngine, drive, learning_curve, make_sweep, skip_disk

import rlcli
from rlcli.cli import main, study_screen, sweep_screen
from rlcli.studies.search.objectives import Objective
from rlcli.studies.search.trial_source import SweepProgress
from rlcli.studies.search.trials import Trial

pytest.importorskip("optuna")


@pytest.fixture(autouse=True)
def _no_disk(monkeypatch):
    skip_disk(monkeypatch)


@pytest.fixture
def folder(folder):
    drive(make_sweep(folder / "found"), FakeEngine())
    return Path("found")


def test_every_option_reaches_the_function(monkeypatch, folder):
    calls = []

    @functools.wraps(rlcli.sweep)
    def sweep(recipe, **keywords):
        calls.append((recipe, keywords))
        return folder

    monkeypatch.setitem(vars(rlcli), "sweep", sweep)
    words = "sweep lake --space a.yaml --trials 9 --seeds 3 --seed 4 --sampler random"
    words += " --pruner none --objective auc --confirm 2 --confirm-seeds 8 --jobs 2"
    words += " --set a.b=1 --storage sqlite:///x --runs r --name n --max-time 2m"
    words += " --engine slurm --address auto --cpus 2 --gpus 0.5 --together 4 --ready 5"
    words += " --script a.sh --run-storage s3://bucket/runs --trust"
    assert main(words.split()) == 0
    ((recipe, keywords),) = calls
    del keywords["report"]
    given = {key: value for key, value in keywords.items() if value is not None}
    assert recipe == "lake"
    assert {key: str(value) for key, value in given.items()} == {
        **{"space": "a.yaml", "trials": "9", "seeds": "3", "seed": "4"},
        **{"sampler": "random", "pruner": "none", "objective": "auc"},
        **{"confirm": "2", "confirm_seeds": "8", "jobs": "2", "set": "['a.b=1']"},
        **{"storage": "sqlite:///x", "runs": "r", "name": "n", "max_time": "120.0"},
        **{"resume": "False", "engine": "slurm", "address": "auto"},
        **{"cpus": "2.0", "gpus": "0.5", "together": "4", "ready": "5"},
        **{"script": "a.sh", "run_storage": "s3://bucket/runs", "trust": "True"},
    }


def test_the_end_names_the_winner_and_what_to_do_next(folder, capsys):
    assert sweep_screen.report_end(folder, quiet=False, json=False) == 0
    out, err = capsys.readouterr()
    assert out == "found\n"
    winner, following = err.splitlines()
    assert winner.startswith("winner: trial ")
    assert "over 3 other seeds: x=" in winner
    assert following.endswith("sweep export found best.yaml")
    assert sweep_screen.report_end(folder, quiet=True, json=True) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["status"] == "finished" and err == ""


@pytest.mark.parametrize(
    ("status", "code", "words"),
    [
        ("interrupted", 130, "sweep found --resume"),
        ("out_of_time", 75, "sweep found --resume"),
        ("failed", 1, "error: no trial has a result"),
    ],
)
def test_an_early_end_says_how_to_go_on(folder, status, code, words, capsys):
    (folder / "result.json").write_text(json.dumps({"status": status}))
    assert sweep_screen.report_end(folder, quiet=False, json=False) == code
    assert words in capsys.readouterr().err


def test_the_next_command_has_the_addresses_and_the_trust_of_this_one(folder, capsys):
    (folder / "result.json").write_text('{"status": "interrupted"}')
    addresses = {"storage": None, "run_storage": "s3://my bucket"}
    for trust, option in ((True, " --trust"), (False, "")):
        keywords = {"quiet": False, "json": False, "trust": trust}
        sweep_screen.report_end(folder, **addresses, **keywords)
        end = f"sweep found --resume --run-storage 's3://my bucket'{option}\n"
        assert capsys.readouterr().err.endswith(end)


@pytest.mark.parametrize(
    "words",
    [
        *("show found --trials 3", "show found --set a=1"),
        *("export found a.yaml --jobs 2", "export found a.yaml --cpus 1"),
    ],
)
def test_a_verb_refuses_the_options_of_others(words, folder, capsys):
    verb, *_, option, _ = words.split()
    assert main(["sweep", *words.split()]) == 2
    assert f"{option}: has no effect on `{verb}`" in capsys.readouterr().err
    assert not Path("a.yaml").exists()


def test_what_a_sweep_has_found_is_printed(folder, capsys):
    Path("show").mkdir()  # not the recipe of this name
    assert main(["sweep", "show", str(folder)]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    lines = out.splitlines()
    assert lines[0] == "found: finished: 6 complete of 6"
    assert lines[1] == "return, IQM of 2 seeds; maximized by random"
    assert lines[2].startswith("winner: trial ")
    for words in ("with other seeds [95 %]", "importance", "kind", "confirm/000"):
        assert words in out
    assert main(["sweep", "show", str(folder), "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert [each["trial"] for each in data["trials"]] == [*range(6)]
    assert {*data["importance"]} == {"x", "kind"}
    (x, kind) = data["slices"]
    assert sum(each["trials"] for each in x["values"]) == 6
    assert [each["label"] for each in kind["values"]] == ["a", "b"]
    best = max(each["value"] for each in data["trials"])
    assert max(each["best"] or 0 for each in x["values"]) == best


def test_values_that_are_infinite_or_missing_are_printed(tmp_path, capsys):
    space = {"x": {"int": [3, 5]}}
    changes = {"sampler": "grid", "objective": "steps_to:28", "trials": 3}
    sweep = make_sweep(tmp_path / "s", space, confirm=1, **changes)
    drive(sweep, FakeEngine(codes={"trials/0001": [1]}, curve=learning_curve))
    assert main(["sweep", "show", str(sweep.folder)]) == 0
    out = capsys.readouterr().out
    assert "never" in out and "failed" in out
    assert "minimized by grid" in out


def test_pruned_trials_have_their_rung_and_few_complete_ones_a_warning(
    tmp_path, capsys
):
    """x = 3 is complete; ASHA stops the others at 100 steps with 10 − |x − 3|."""
    space = {"x": {"int": [3, 8]}}
    changes = {"sampler": "grid", "pruner": "asha", "trials": 6}
    sweep = make_sweep(tmp_path / "s", space, confirm=1, **changes)
    drive(sweep, FakeEngine(room=1))
    assert main(["sweep", "show", str(sweep.folder)]) == 0
    out, err = capsys.readouterr()
    warning = "1 of 6 trials is complete: too few to rank the options"
    assert err == f"warning: {warning}\n"
    assert "pruned: 5 at step 100\n" in out
    rows = [line.split() for line in out.splitlines() if " at 100 " in line]
    assert rows == [
        [str(x - 3), "pruned", "at", "100", str(13 - x), str(x)] for x in range(4, 9)
    ]
    *_, header, _, last = out.splitlines()  # only the part of x = 3 has trials
    assert header.split()[0] == "option" and last.split()[:3] == ["x", "3", "1"]
    data = rlcli.show_sweep(sweep.folder)
    assert data["warnings"] == [warning]
    assert [each["pruned_at"] for each in data["trials"]] == [None, *[100] * 5]


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["show"], 2, "expected `rlcli sweep show FOLDER`"),
        (["export", "a"], 2, "expected `rlcli sweep export FOLDER FILE.yaml`"),
        (["a", "b"], 2, "expected a single recipe"),
        (["show", "nope"], 1, "`nope` is not the folder of a sweep"),
        (["export", "nope", "a.yaml"], 1, "`nope` is not the folder of a sweep"),
        (["dqn_cartpole"], 1, "a sweep needs a space"),
        (["nope", "--space", "x.yaml"], 1, "there is no recipe `nope`"),
        (["dqn_cartpole", "--space", "x.yaml"], 1, "there is no file `x.yaml`"),
    ],
)
def test_wrong_words_are_refused(words, code, message, capsys):
    assert main(["sweep", *words]) == code
    assert message in capsys.readouterr().err


def progress(*states, confirmed=(), seconds=None):
    trials = [
        Trial(number, state, {"a.b": 0.5}, value, {100: 7.0}, {})
        for number, (state, value) in enumerate(states)
    ]
    return SweepProgress("s", Objective("return"), trials, 9, confirmed, seconds)


def test_the_table_has_the_best_and_the_running_trials():
    from rich.console import Console

    shown = progress(
        ("complete", 3.0),
        ("running", None),
        ("pruned", None),
        ("failed", None),
        seconds=90.0,
    )
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(sweep_screen._panel(shown, 80))
    first, *_, best, running = console.export_text().splitlines()
    assert first.startswith("3 of 9 trials · 1 running · 1 complete · 1 pruned")
    assert best.split()[:3] == ["0", "best", "3"]
    assert running.split()[:3] == ["1", "running", "7"]
    console.print(sweep_screen._panel(progress(("complete", 3.0), confirmed=[0]), 80))
    assert "confirming 0 with other seeds" in console.export_text()


def test_options_that_do_not_fit_side_by_side_share_a_column():
    from rich.console import Console

    values = {f"part_{letter}.option": 0.123 for letter in "abcdefgh"}
    console = Console(width=80, record=True, file=io.StringIO())
    rows = [("12", "complete", "481 [472, 490]", values)]
    console.print(sweep_screen._table(rows, "return", 80))
    lines = console.export_text().splitlines()
    assert lines[0].split() == ["trial", "state", "return", "options"]
    assert lines[2].split()[:5] == ["12", "complete", "481", "[472,", "490]"]
    text = "".join(line[33:].strip() for line in lines[2:])
    assert all(f"part_{letter}.option=0.123" in text for letter in "abcdefgh")


def test_without_a_terminal_each_trial_that_ends_is_a_line(capsys):
    lines, panel = sweep_screen._Lines, sweep_screen._panel
    with study_screen.show_live(False, lines(), panel) as report:
        report(progress(("complete", 3.0), ("running", None)))
        report(progress(("complete", 3.0), ("complete", 4.0), ("pruned", None)))
    assert capsys.readouterr().err.splitlines() == [
        "[2 of 9] trial 1: 4; best 4, trial 1",
        "[3 of 9] trial 2: pruned; best 4, trial 1",
    ]
    with study_screen.show_live(True, lines(), panel) as report:
        report(progress(("complete", 3.0)))
        report(progress(("complete", 3.0), ("complete", 4.0)))
    assert capsys.readouterr().err == ""
