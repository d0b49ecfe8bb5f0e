"""The documents: every block in them is run, and says what it gives."""

import doctest
import io
import re
import shlex
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

from rlcli import documents
from rlcli.build import build
from rlcli.cli import main
from rlcli.recipe import load

ROOT = Path(__file__).parents[1]
DOCUMENTS = ("python", "recipes", "parts", "formats")
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"# ([\w/.]+\.(?:py|yaml))\n")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty working folder, which Python imports from."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]


def blocks(name):
    """The blocks of a document: (language, text)."""
    return BLOCK.findall((ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_block_of_a_document_does_what_it_says(name, folder):
    names = {"__name__": "__main__"}
    for language, text in blocks(name):
        file = FILE.match(text)
        if file:
            target = folder / file[1]
            target.parent.mkdir(exist_ok=True)
            target.write_text(text[file.end() :], encoding="utf-8")
        if language == "python" and not file:
            exec(compile(text, f"{name}.md", "exec"), names)
        elif language == "yaml":
            sound(text)
        elif language in RUN:
            RUN[language](text, names)


def sound(text):
    """Builds a recipe; sections alone stand in a recipe that has what is needed."""
    data = {"environment": "CartPole-v1", "updater": "q_learning"}
    build(load({**data, **documents.load(text).data}))


def python_session(text, names):
    options = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    test = doctest.DocTestParser().get_doctest(text, names, "session", None, 0)
    said = io.StringIO()
    runner = doctest.DocTestRunner(optionflags=options)
    assert runner.run(test, out=said.write, clear_globs=False).failed == 0, (
        said.getvalue()
    )
    names.update(test.globs)


def shell_session(text, names):
    """Lines `$ rlcli …`, each with all that it prints; `…` stands for anything."""
    del names
    for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        command, _, expected = part.partition("\n")
        program, *arguments = shlex.split(command.removesuffix("; echo $?"))
        assert program == "rlcli"
        out, err = io.StringIO(), io.StringIO()
        with redirect_stdout(out), redirect_stderr(err):
            code = main(arguments)
        said = err.getvalue() + out.getvalue()
        if command.endswith("; echo $?"):
            said += f"{code}\n"
        pattern = re.escape(expected.strip()).replace("…", ".*")
        assert re.fullmatch(pattern, said.strip(), re.DOTALL), f"{command}\n{said}"


RUN = {"pycon": python_session, "console": shell_session}
KNOWN = {"python", "yaml", "pycon", "console"}


@pytest.mark.parametrize("name", DOCUMENTS)
def test_no_block_is_of_a_language_that_nobody_checks(name):
    assert {language for language, _ in blocks(name)} <= KNOWN
    text = (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8")
    assert text.count("```") == 2 * len(blocks(name))


def test_the_loop_of_the_document_is_the_example():
    example = (ROOT / "examples" / "own_loop.py").read_text().splitlines()
    shown = next(text for language, text in blocks("python") if language == "python")
    assert shown.splitlines() == ["# own_loop.py", *example[2:]]
