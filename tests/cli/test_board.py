"""`rlcli board`: its options and what it prints."""

import webbrowser

import pytest

import rlcli
from rlcli.cli import main

LINK = "http://127.0.0.1:9/token/"


@pytest.fixture
def calls(monkeypatch):
    found = []

    def board(runs, *, port, show_link):
        show_link(LINK)
        found.append((runs, port))

    monkeypatch.setitem(vars(rlcli), "board", board)
    return found


def test_the_link_is_on_stdout(calls, capsys):
    assert main(["board"]) == 0
    assert main(["board", "a", "b", "--port", "80"]) == 0
    assert calls == [(["runs"], 0), (["a", "b"], 80)]
    out, err = capsys.readouterr()
    assert out == f"{LINK}\n" * 2
    assert "Ctrl-C" in err


def test_open_shows_the_page_in_the_browser(calls, monkeypatch):
    opened = []
    monkeypatch.setattr(webbrowser, "open", opened.append)
    assert main(["board", "a", "--open"]) == 0
    assert opened == [LINK]


def test_a_port_that_does_not_exist_is_a_usage_error(calls):
    assert main(["board", "--port", "70000"]) == 2
    assert calls == []
