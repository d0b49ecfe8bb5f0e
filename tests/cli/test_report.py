"""`rlcli report`: its options and what it prints."""

import functools
import webbrowser
from pathlib import Path

import pytest

import rlcli
from rlcli.cli import main


@pytest.fixture
def calls(monkeypatch):
    found = []

    @functools.wraps(rlcli.report)  # with its parameters
    def report(runs, *, report_phase, **options):
        report_phase("reading metrics")
        found.append((runs, options))
        return Path("page.html")

    monkeypatch.setitem(vars(rlcli), "report", report)
    return found


def test_every_option_reaches_the_page(calls, capsys):
    options = ["--output", "page.html", "--y", "loss", "--threshold", "3"]
    options += ["--center", "iqm", "--group", "name", "--episodes", "0"]
    options += ["--filter", "recipe=dqn", "--tag", "paper", "--inspect"]
    assert main(["report", "a", "b", *options, "--best", "--seed", "4", "--trust"]) == 0
    assert calls == [
        (
            ["a", "b"],
            {
                "output": Path("page.html"),
                "y": "loss",
                "threshold": 3.0,
                "center": "iqm",
                "group": "name",
                "filter": ["recipe=dqn"],
                "tag": ["paper"],
                "episodes": 0,
                "inspect": True,
                "best": True,
                "seed": 4,
                "trust": True,
            },
        )
    ]
    out, err = capsys.readouterr()
    assert out == "page.html\n"
    assert err == "reading metrics\n"


def test_quiet_prints_the_file_only(calls, capsys):
    assert main(["report", "a", "--episodes", "0", "--quiet"]) == 0
    assert capsys.readouterr() == ("page.html\n", "")


def test_open_shows_the_page_in_the_browser(calls, monkeypatch):
    opened = []
    monkeypatch.setattr(webbrowser, "open", opened.append)
    assert main(["report", "a", "--episodes", "0", "--open"]) == 0
    assert opened == [(Path.cwd() / "page.html").as_uri()]


def test_a_negative_number_of_episodes_is_a_usage_error(calls, capsys):
    assert main(["report", "a", "--episodes", "-1"]) == 2
    assert calls == []
    assert "error: invalid value for '--episodes'" in capsys.readouterr().err
