"""The tutorial: its commands run, and print what the page shows."""

import io
import os
import re
import shlex
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from unittest import mock

import pytest

from rlcli import COMMANDS
from rlcli.cli import main

pytestmark = pytest.mark.usefixtures("folder")

PAGE = (Path(__file__).parents[1] / "docs" / "tutorial.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"^```(yaml|console)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SMALL = [
    "--seeds",
    "1",
    "--set",
    "train.steps=1_000",
    "--set",
    "train.evaluate.every=500",
]


def follow(extra=()):
    """Does what the page says; yields each command, its output and the documented one.

    `extra` is added to the options of `rlcli train` and `rlcli study`.
    """
    for language, text in BLOCK.findall(PAGE):
        if language == "yaml":
            first, _, text = text.partition("\n")
            Path(first.removeprefix("# ")).write_text(text, encoding="utf-8")
            continue
        for part in re.split(r"^\$ rlcli ", text, flags=re.MULTILINE)[1:]:
            command, _, documented = part.partition("\n")
            arguments = shlex.split(command)
            arguments += extra if arguments[0] in ("train", "study") else ()
            out, err = io.StringIO(), io.StringIO()
            # `compare` prints another form of a table that is too wide, and the width
            # depends on the digits of the returns.
            width = {"COLUMNS": "120"} if arguments[0] == "compare" else {}
            changed = mock.patch.dict(os.environ, width)
            with changed, redirect_stdout(out), redirect_stderr(err):
                code = main(arguments)
            assert code == 0, (command, err.getvalue())
            yield command, err.getvalue() + out.getvalue(), documented


def normalize(text):
    """Numbers differ between machines: each becomes `#`. `…` stays."""
    text = re.sub(r"never reaches \S+|reaches \S+ at \S+ steps", "#", text)
    text = re.sub(r"\d[\d,]*(\.\d+)?|never", "#", text)
    return re.sub(r"[ ─]+", " ", re.sub(r" +$", "", text, flags=re.MULTILINE)).strip()


@pytest.mark.pages
def test_every_command_of_the_tutorial_runs_with_a_small_budget():
    commands = [command for command, *_ in follow(SMALL)]
    assert [command.split()[0] for command in commands] == [
        *("new", "show", "check", "train", "train", "plot", "compare", "report"),
        *("study", "compare", "plot"),
    ]


def test_every_command_that_the_tutorial_names_exists():
    for name in re.findall(r"`rlcli (\w+)", PAGE):
        assert name in COMMANDS


@pytest.mark.slow
def test_the_tutorial_prints_what_the_page_shows():
    outputs = {}
    for command, output, documented in follow():
        pattern = re.escape(normalize(documented)).replace("…", ".*")
        assert re.fullmatch(pattern, normalize(output), re.DOTALL), (command, output)
        outputs.setdefault(command.split()[0], output)
    steps = re.findall(r"reaches 475 at ([\d,]+) steps", outputs["plot"])
    eight_steps, *one_step = (int(each.replace(",", "")) for each in steps)
    assert eight_steps < 20_000  # the conclusion of the page
    assert not one_step or eight_steps < one_step[0] / 1.5
    # Processors round differently, and the last policy of one seed may then be worse:
    # the interquartile mean of five seeds leaves out the best and the worst.
    (line,) = re.findall(r"dqn_cartpole +5 .*\]", outputs["compare"])
    _, _, iqm = re.findall(r"([\d.]+) \[", line)
    assert float(iqm) >= 475, outputs["compare"]


def test_the_tutorial_says_what_make_tutorial_does():
    makefile = (Path(__file__).parents[1] / "Makefile").read_text(encoding="utf-8")
    assert re.search(r"^tutorial: demo ", makefile, re.MULTILINE)
    assert "make tutorial" in PAGE and "make demo" in PAGE
