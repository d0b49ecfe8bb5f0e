"""Errors: what a user reads, and the numbers that scripts read."""

import pytest

from rlcli import errors
from rlcli.errors import RlcliError, suggest
from rlcli.quoting import printable
from rlcli.registry.paths import enter


def test_an_error_reads_as_its_message_then_its_hint():
    assert str(RlcliError("there is no file `x`")) == "there is no file `x`"
    error = RlcliError("there is no file `x`", "did you mean `y`?")
    assert str(error) == "there is no file `x`\n\nhint: did you mean `y`?"
    assert (error.message, error.hint) == ("there is no file `x`", "did you mean `y`?")


def test_an_error_exits_with_one_unless_it_says_otherwise():
    assert RlcliError("no").code == errors.USER_ERROR == 1
    assert RlcliError("no", code=errors.USAGE).code == 2


def test_exit_codes_are_those_that_are_documented():
    codes = (errors.OK, errors.USER_ERROR, errors.USAGE, errors.OUT_OF_TIME)
    assert codes == (0, 1, 2, 75)
    assert (errors.INTERRUPTED, errors.TERMINATED) == (128 + 2, 128 + 15)  # signals


@pytest.mark.parametrize(
    ("name", "known", "hint"),
    [
        (
            "learning_rat",
            ["learning_rate", "clip_norm"],
            "did you mean `learning_rate`?",
        ),
        ("adma", ["sgd", "adam"], "did you mean `adam`?"),
        ("rate_learning", ["learning_rate"], "did you mean `learning_rate`?"),
        ("Cup-toys", ["CupX-v1", "toys/Cup"], "did you mean `toys/Cup`?"),
        ("CUP", ["Cap-v1", "Cup-v0", "Cup-v1"], "did you mean `Cup-v1`?"),
        ("v3", ["abc-v3", "abc-v4"], "choose from `abc-v3`, `abc-v4`"),
        ("zzz", ["b", "a"], "choose from `a`, `b`"),
        ("zzz", [], "there are none"),
        ("zzz", {"b": 1, "a": 2}, "choose from `a`, `b`"),
    ],
)
def test_the_nearest_name_is_named_or_all_there_are(name, known, hint):
    assert suggest(name, known) == hint


def test_names_may_come_from_an_iterator():
    assert suggest("zzz", iter(["a", "b"])) == "choose from `a`, `b`"


def test_what_stands_in_front_of_a_name_makes_none_alike():
    known = ["CartPole-v1", "Pong-misc"]
    assert suggest("CartPole", known, "gymnax/") == "did you mean `gymnax/CartPole-v1`?"
    hint = "choose from `gymnax/CartPole-v1`, `gymnax/Pong-misc`"
    assert suggest("Xy", known, "gymnax/") == hint


def test_of_very_many_names_a_hint_lists_the_first():
    hint = suggest("zzz", [f"name{index:03}" for index in range(608)])
    assert hint.startswith("choose from `name000`, `name001`")
    assert hint.endswith("`name099`, and 508 more")


@pytest.mark.parametrize(
    "text", ["x" * 10**6, "a\nb\n" * 10**4, "`" * 10**5, "\x1b" * 10**4, "a b " * 10**5]
)
def test_a_message_is_one_short_line_whatever_it_quotes(text):
    for message in (text, f"`{text}` is wrong", f"file `{text}` has the key `{text}`"):
        error = RlcliError(message, f"remove `{text}`")
        assert len(error.message) <= 700 and len(str(error)) <= 7_000
        assert "\n" not in error.message and printable(str(error)) == str(error)


def test_a_path_in_a_message_keeps_its_end():
    path = "/".join(["folder"] * 200 + ["run.json"])
    message = RlcliError(f"`{path}` is damaged: it is empty").message
    assert message.startswith("`folder/folder/")
    assert message.endswith("/run.json` is damaged: it is empty")
    assert len(message) < 250


def test_a_command_quotes_the_path_that_the_user_has_typed(tmp_path, monkeypatch):
    folder = tmp_path / "meine Übung"
    folder.mkdir()
    monkeypatch.chdir(folder)
    assert errors.shell_path(enter("runs/a")) == "runs/a"
    assert errors.shell_path(enter("my run")) == "'my run'"
    assert errors.shell_path(folder.parent / "other") == str(folder.parent / "other")


def test_a_name_from_elsewhere_stays_on_its_line_in_a_hint():
    names = ["loss\n\x1b[2J", "q\tvalue", "x" * 5_000]
    hints = [suggest("reward", names), suggest("loss\nx", names), suggest("xxx", names)]
    for hint in hints:
        assert hint.isprintable() and len(hint) < 300
    assert "`loss\\n\\x1b[2J`" in hints[0]
