"""What tests pin of a message: the words that matter, not its sentences."""

from __future__ import annotations

import pytest

from rlcli.cli import main


def mentions(text: str, *words: str) -> bool:
    """Whether a message has all words, in this order.

    They are its place, names, values and what decides, so that another wording of the
    same message passes.
    """
    position = 0
    for word in words:
        position = text.find(word, position)
        if position < 0:
            return False
        position += len(word)
    return bool(words)


def refused(*words: object, capsys: pytest.CaptureFixture[str]) -> str:
    """What a command that fails prints: an error, with exit code 1 and no traceback."""
    assert main([*map(str, words)]) == 1
    error = capsys.readouterr().err
    assert "error: " in error and "Traceback" not in error
    return error
