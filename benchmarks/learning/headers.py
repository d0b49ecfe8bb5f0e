"""What a recipe reaches, as a sentence of the comment at its beginning."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping
from typing import Any

from benchmarks.learning.table import number

_WIDTH = 88
_NO_BREAK = "\0"  # for a space, while lines are wrapped
_SCHEMA = "# yaml-language-server:"
_SENTENCE = re.compile(r"Greedy return .*?\.(?= [A-Z`]|$)")


def sentence(result: Mapping[str, Any]) -> str:
    """Returns the measured return in words."""
    count = len(result["means"])
    steps = f"{result['steps']:,}".replace(",", " ")
    seeds = "new seeds" if result["tuned"] else "seeds"
    begin = f"Greedy return {number(result['iqm'])} after {steps} steps"
    if result["ci95"] is None:
        return f"{begin}, of one seed."
    low, high = result["ci95"]
    if len({*map(number, result["means"])}) == 1:
        return f"{begin}, on {count} of {count} {seeds}."
    return (
        f"{begin}: the IQM of {count} {seeds} of 100 episodes, 95 % interval "
        f"{number(low)} … {number(high)}."
    )


def text_of(recipe: str) -> str:
    """Returns the comment at the beginning of a recipe as one line."""
    return " ".join(line[2:] for line in _comment(recipe))


def update(recipe: str, result: Mapping[str, Any]) -> str:
    """Returns the text of a recipe with the measured sentence in its comment.

    It replaces the sentence about the return, or comes last. The first line of the
    comment is a sentence of its own.
    """
    if sentence(result) in text_of(recipe):
        return recipe
    first, *others = (line[2:] for line in _comment(recipe))
    rest, found = _SENTENCE.subn(sentence(result), " ".join(others), count=1)
    if not found:
        rest = f"{rest} {sentence(result)}".strip()
    rest = re.sub(r"(?<=\d) (?=[\d%])", _NO_BREAK, rest)  # 50 000 and 95 %
    lines = [first, *textwrap.wrap(rest, _WIDTH - 2, break_on_hyphens=False)]
    comment = "".join(f"# {line}\n" for line in lines).replace(_NO_BREAK, " ")
    return comment + recipe[sum(len(line) + 1 for line in _comment(recipe)) :]


def _comment(recipe: str) -> list[str]:
    """The lines of the comment at the beginning of a recipe, without its schema."""
    lines = []
    for line in recipe.splitlines():
        if not line.startswith("# ") or line.startswith(_SCHEMA):
            break
        lines.append(line)
    return lines
