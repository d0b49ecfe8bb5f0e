"""Printable text: escape sequences in names and recipes never reach the terminal."""

import json

import pytest
from rich.console import Console

import rlcli
from rlcli.cli import main, output
from rlcli.errors import RlcliError, quote
from rlcli.monitor import Monitor
from rlcli.quoting import printable, printable_json
from rlcli.runs import locate

EVIL = "\x1b]0;title\x07 \x9b2J \u202edesrever\u2066 \u200b \U000e0041 \udcff \u2028"
SAFE = (
    "\\x1b]0;title\\x07 \\x9b2J \\u202edesrever\\u2066 \\u200b \\U000e0041 \\udcff "
    "\\u2028"
)


def test_control_and_format_characters_are_written_as_escapes():
    assert printable(EVIL) == SAFE
    plain = "naïve ≥ 0 · 日本\n\tθ … 🙂"
    assert printable(plain) == plain


def test_json_stays_json_with_the_same_meaning():
    value = {"name": EVIL, "ö": ["\u202e", "🙂"]}
    text = output.as_json(value)
    assert json.loads(text) == value
    assert printable(text) == text
    assert printable_json("ö") == "ö"


def test_data_on_stdout_and_talk_on_stderr_are_escaped(capsys):
    output.print_data(EVIL)
    output.print_message(EVIL)
    assert capsys.readouterr() == (f"{SAFE}\n", f"{SAFE}\n")


def test_an_error_with_what_the_user_wrote_is_one_short_safe_line(capsys):
    name = "a\nerror b\x1b[31m" + "x" * 500
    assert main(["show", "updater", name]) == 1
    first = capsys.readouterr().err.splitlines()[0]
    assert first.startswith("error: there is no updater `a\\nerror b\\x1b[31mxxx")
    assert len(first) < 120


@pytest.mark.parametrize(
    "value",
    [10**5_000, "x" * 500, "\x1b" * 100, "\n" * 100],
    ids=["integer", "long", "escapes", "lines"],
)
def test_a_quoted_value_is_short_and_printable(value):
    text = quote(value)
    assert len(text) <= 62 and text[1:-1].isprintable()


def test_the_table_of_eval_shows_an_environments_name_without_steering(
    monkeypatch, capsys, tmp_path
):
    row = {"seed": 0, "mean": 1.0, "std": 0.0, "min": 1.0, "max": 1.0, "length": 2.0}
    row["frozen"] = None
    total = {"mean": 1.0, "iqm": 1.0, "ci95": (1.0, 1.0), "frozen": 0}
    result = {"environment": EVIL, "episodes": 1, "seeds": [row], "return": total}
    result |= {"info": {}, "parameters": {}}
    monkeypatch.setattr(rlcli, "eval", lambda *_, **__: result)
    monkeypatch.setattr(locate, "locate_policy", lambda *_, **__: None)
    assert main(["eval", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert SAFE.split()[0] in out and "\x1b" not in out and "\u202e" not in out


def test_the_panel_shows_its_title_and_messages_without_steering(tmp_path):
    log = tmp_path / "log.txt"
    with (tmp_path / "screen").open("w+", encoding="utf-8") as file:
        console = Console(file=file, width=120, force_terminal=True, color_system=None)
        with Monitor(title=EVIL[:13], console=console) as monitor:
            monitor.begin(10, [0], log_path=log)
            monitor.message(EVIL)
        file.seek(0)
        shown = file.read()
    assert "\\x1b]0;title\\x07" in shown
    assert "\x1b]0" not in shown and "\x07" not in shown and "\u202e" not in shown
    assert SAFE in log.read_text(encoding="utf-8")


def test_a_long_name_is_compared_with_known_ones_at_once():
    with pytest.raises(RlcliError) as error:
        rlcli.show("updater", "ppo" * 300_000)
    assert len(error.value.message) < 100
