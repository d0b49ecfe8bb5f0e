"""Documentation: runs every code block and compares its output."""

import doctest
import io
import itertools
import json
import os
import re
import shlex
import sys
import tomllib
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from unittest import mock

import pytest

from rlcli import errors, registry
from rlcli.assembly import build
from rlcli.cli import main
from rlcli.errors import EXIT_CODES, RlcliError
from rlcli.recipe import documents, grammar, load_recipe, resolve
from rlcli.runs import checkpoint
from rlcli.studies.search.space import load_space
from rlcli.studies.study_file import read_study

ROOT = Path(__file__).parents[1]
GUIDES = sorted(
    f"guides/{path.stem}" for path in (ROOT / "docs" / "guides").glob("*.md")
)
DOCUMENTS = (
    "python",
    "recipes",
    "environments",
    "parts",
    "formats",
    "results",
    *GUIDES,
)
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"# ([\w/.]+\.(?:py|yaml))\n")


@pytest.fixture
def folder(folder, monkeypatch, own_parts):
    """An empty working directory on the import path."""
    monkeypatch.syspath_prepend(folder)
    modules = set(sys.modules)
    yield folder
    registry.entry_points.cache_clear()
    for name in set(sys.modules) - modules:
        paths = {getattr(sys.modules[name], "__file__", None)}
        paths |= {*getattr(sys.modules[name], "__path__", ())}
        if any(str(folder) in str(path) for path in paths):
            del sys.modules[name]


def blocks(name):
    """Returns the code blocks of a document: (language, text)."""
    return BLOCK.findall((ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    "file", sorted((ROOT / "docs").rglob("*.md")), ids=lambda file: file.stem
)
def test_a_heading_stands_once_in_a_document(file):
    """Links lead to the first of several equal headings."""
    text = BLOCK.sub("", file.read_text(encoding="utf-8"))
    headings = re.findall(r"(?m)^#+ .*", text)
    assert len(headings) == len({*headings})


@pytest.mark.pages
@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_block_of_a_document_runs_with_the_documented_output(name, folder):
    names = {"__name__": "__main__"}
    for language, text in blocks(name):
        file = FILE.match(text)
        if file:
            target = folder / file[1]
            target.parent.mkdir(exist_ok=True)
            target.write_text(text[file.end() :], encoding="utf-8")
        if language == "python" and not file:
            exec(compile(text, f"{name}.md", "exec"), names)
        elif language == "yaml" and file and file[1].startswith("space"):
            load_space(folder / file[1])
        elif language == "yaml" and file and file[1].startswith("paper"):
            read_study(folder / file[1])
        elif language == "yaml":
            check_recipe(text)
        elif language in RUN:
            RUN[language](text, names)
    if name == "formats":
        check_fields_are_documented(folder / "runs" / "lake")


def check_fields_are_documented(run):
    """Compares the tables of the document with the files of a run."""
    text = (ROOT / "docs" / "formats.md").read_text(encoding="utf-8")

    def documented(title):
        rows = re.findall(
            r"^\| (.*?) \|", text.partition(f"# {title}\n")[2], re.MULTILINE
        )
        return set(re.findall(r"`([\w./-]+)`", "\n".join(rows)))

    info = json.loads((run / "run.json").read_text())
    assert {*info} <= documented("run.json")
    lines = (run / "metrics.jsonl").read_text().splitlines()
    reported = {"td_error", "q"}  # documented as examples of the updaters' reports
    fields = {field for line in lines for field in json.loads(line)} - reported
    assert fields - {"evaluation"} <= documented("metrics.jsonl")
    files = {str(file.relative_to(run)) for file in run.rglob("*") if file.is_file()}
    earlier = {"checkpoints/000002000.pkl.lz4", ".lock"}
    assert files - earlier == documented("A run") & files
    assert documented("A run") & {"recipe.yaml", "best.pkl.lz4"} <= files
    for file in ("policy.pkl.lz4", "best.pkl.lz4", "checkpoints/000004000.pkl.lz4"):
        assert {*checkpoint.read(run / file)} <= documented(
            "Checkpoint and policy files"
        )


def check_recipe(text):
    """Builds a recipe; missing required sections are filled in."""
    data = documents.load_document(text).data
    if "extends" not in data:
        data = {"environment": "CartPole-v1", "updater": "q_learning", **data}
    parsed = load_recipe(data)
    try:
        build(parsed)
    except RlcliError as error:
        if not error.hint.startswith("pip install "):
            raise  # otherwise an extra is not installed


def python_session(text, names):
    options = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    test = doctest.DocTestParser().get_doctest(text, names, "session", None, 0)
    output = io.StringIO()
    runner = doctest.DocTestRunner(optionflags=options)
    assert runner.run(test, out=output.write, clear_globs=False).failed == 0, (
        output.getvalue()
    )
    names.update(test.globs)


def shell_session(text, names):
    """Runs lines `$ [NAME=VALUE] rlcli …`, and compares the complete output.

    `…` matches anything.
    """
    del names
    for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        command, _, expected = part.partition("\n")
        words = shlex.split(command.removesuffix("; echo $?"))
        settings = itertools.takewhile(lambda word: "=" in word, words)
        variables = dict(word.split("=", 1) for word in settings)
        program, *arguments = words[len(variables) :]
        assert program == "rlcli"
        out, err = io.StringIO(), io.StringIO()
        changed = mock.patch.dict(os.environ, variables)
        with changed, redirect_stdout(out), redirect_stderr(err):
            code = main(arguments)
        output = re.sub(r" +$", "", err.getvalue() + out.getvalue(), flags=re.MULTILINE)
        if command.endswith("; echo $?"):
            output += f"{code}\n"
        pattern = re.escape(expected.strip()).replace("…", ".*")
        if not re.fullmatch(pattern, output.strip(), re.DOTALL):
            pytest.fail(f"$ {command}\n{output}", pytrace=False)


def mark_installed(text, names):
    """Writes the metadata of an installed package into the working directory."""
    del names
    project = tomllib.loads(text)["project"]
    dist_info = Path(
        f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    )
    dist_info.mkdir()
    name, version = project["name"], project["version"]
    (dist_info / "METADATA").write_text(f"Name: {name}\nVersion: {version}\n")
    lines = []
    for group, points in project["entry-points"].items():
        lines += [f"[{group}]", *(f"{key} = {value}" for key, value in points.items())]
    (dist_info / "entry_points.txt").write_text("\n".join(lines))
    registry.entry_points.cache_clear()


RUN = {"pycon": python_session, "console": shell_session, "toml": mark_installed}
# `sh`, `yml`: scripts and configurations, which tests/test_examples.py runs and reads.
KNOWN = {"python", "yaml", "sh", "yml", *RUN}


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_block_has_a_language_that_is_tested(name):
    assert {language for language, _ in blocks(name)} <= KNOWN
    text = (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8")
    assert text.count("```") == 2 * len(blocks(name))


def test_the_documented_loop_equals_the_example():
    example = (ROOT / "examples" / "own_loop.py").read_text().splitlines()
    documented = next(
        text for _, text in blocks("python") if text.startswith("# own_loop.py")
    )
    assert documented.splitlines() == ["# own_loop.py", *example[2:]]


def recipe_table(section):
    """Returns a section's table in docs/recipes.md: key -> default."""
    text = (ROOT / "docs" / "recipes.md").read_text(encoding="utf-8")
    text = text.partition(f"\n### {section}\n")[2]
    text = re.split(r"^###", text, maxsplit=1, flags=re.MULTILINE)[0]
    return dict(re.findall(r"^\| `(\w+)` \| ([^|]*) \|", text, re.MULTILINE))


def test_the_documented_train_keys_and_defaults_equal_the_grammar():
    table = recipe_table("train")
    unsupported = {"episodes"}
    assert set(table) == set(registry.options(grammar.Train)) - unsupported
    data = {"environment": "CartPole-v1", "updater": "q_learning"}
    defaults = resolve(load_recipe(data))["train"]
    for key, cell in table.items():
        if re.fullmatch(r"`[^`]*`", cell):  # other cells describe the default in words
            documented = documents.load_document(f"{key}: {cell.strip('`')}").data[key]
            default = defaults[key]
            if isinstance(documented, dict):
                default = {name: default[name] for name in documented}
            assert documented == default, key


def test_every_native_environment_is_documented():
    text = (ROOT / "docs" / "environments.md").read_text(encoding="utf-8")
    names = {
        name
        for name in registry.names("environment")
        if registry.find("environment", name).factory.__module__.startswith("rlcli.")
        and not name.endswith("/")
    }
    families = {name for name in names if re.match("probe-|MinAtar/.*-v1", name)}
    assert {"probe-…", "-v1"} <= set(re.findall("`([^`]+)`", text))
    assert all(f"`{name}`" in text for name in names - families)


def test_the_documented_environment_keys_equal_the_grammar():
    assert set(recipe_table("environment")) == {
        *registry.options(grammar.Vector),
        "options",  # Gymnasium's
    }


def test_the_documented_exit_codes_equal_those_of_the_program():
    text = (ROOT / "docs" / "formats.md").read_text(encoding="utf-8")
    section = text.partition("\n## A run\n")[0]
    table = dict(re.findall(r"^\| (\d+) \| (.*) \|$", section, re.MULTILINE))
    known = {*EXIT_CODES.values(), errors.OK, errors.USER_ERROR, errors.USAGE}
    known.add(errors.SOME_SEEDS_FROZEN)
    assert {int(code) for code in table} == known
    assert table[str(errors.OUT_OF_TIME)] == "`--max-time` reached"
    assert table[str(errors.INTERRUPTED)] == "Ctrl-C"
    assert table[str(errors.TERMINATED)] == "SIGTERM"
    assert all(f"`{status}`" in text for status in EXIT_CODES)
