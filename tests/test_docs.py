"""The documents: every block in them is run, and says what it gives."""

import doctest
import io
import json
import re
import shlex
import sys
import tomllib
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

from rlcli import errors, registry
from rlcli.assembly import build
from rlcli.cli import main
from rlcli.errors import EXIT_CODES, RlcliError
from rlcli.recipe import documents, grammar, load_recipe, resolve
from rlcli.runs import checkpoint

ROOT = Path(__file__).parents[1]
DOCUMENTS = ("python", "recipes", "environments", "parts", "formats")
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"# ([\w/.]+\.(?:py|yaml))\n")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty working folder, which Python imports from."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    before, parts = set(sys.modules), set(registry._BUILT_IN)
    yield tmp_path
    registry._entry_points.cache_clear()
    for key in registry._BUILT_IN.keys() - parts:
        if not registry._BUILT_IN[key].factory.__module__.startswith(
            ("rlcli.", "optax.")
        ):
            del registry._BUILT_IN[key]
    for name in set(sys.modules) - before:
        places = {getattr(sys.modules[name], "__file__", None)}
        places |= {*getattr(sys.modules[name], "__path__", ())}
        if any(str(tmp_path) in str(place) for place in places):
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
    if name == "formats":
        every_field_is_documented(folder / "runs" / "lake")


def every_field_is_documented(run):
    """Compares the tables of the document with what a run has written."""
    text = (ROOT / "docs" / "formats.md").read_text(encoding="utf-8")

    def named(title):
        rows = re.findall(
            r"^\| (.*?) \|", text.partition(f"# {title}\n")[2], re.MULTILINE
        )
        return set(re.findall(r"`([\w./-]+)`", "\n".join(rows)))

    info = json.loads((run / "run.json").read_text())
    assert {*info} <= named("run.json")
    lines = (run / "metrics.jsonl").read_text().splitlines()
    reported = {"td_error", "q"}  # named among what updaters report
    fields = {field for line in lines for field in json.loads(line)} - reported
    assert fields - {"evaluation"} <= named("metrics.jsonl")
    files = {str(file.relative_to(run)) for file in run.rglob("*") if file.is_file()}
    earlier = {"checkpoints/000002000.pkl.lz4", ".lock"}
    assert files - earlier == named("A run") & files
    assert named("A run") & {"recipe.yaml", "best.pkl.lz4"} <= files
    for file in ("policy.pkl.lz4", "best.pkl.lz4", "checkpoints/000004000.pkl.lz4"):
        assert {*checkpoint.read(run / file)} <= named("Checkpoint and policy files")


def sound(text):
    """Builds a recipe; sections alone stand in a recipe that has what is needed."""
    data = {"environment": "CartPole-v1", "updater": "q_learning"}
    parsed = load_recipe({**data, **documents.load_document(text).data})
    try:
        build(parsed)
    except RlcliError as error:
        if not error.hint.startswith('pip install "rlcli['):
            raise  # else it wants an extra that is not there


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
        said = re.sub(r" +$", "", err.getvalue() + out.getvalue(), flags=re.MULTILINE)
        if command.endswith("; echo $?"):
            said += f"{code}\n"
        pattern = re.escape(expected.strip()).replace("…", ".*")
        if not re.fullmatch(pattern, said.strip(), re.DOTALL):
            pytest.fail(f"$ {command}\n{said}", pytrace=False)


def mark_installed(text, names):
    """Puts beside the packages of the folder what an installer notes of their names."""
    del names
    project = tomllib.loads(text)["project"]
    note = Path(f"{project['name'].replace('-', '_')}-{project['version']}.dist-info")
    note.mkdir()
    name, version = project["name"], project["version"]
    (note / "METADATA").write_text(f"Name: {name}\nVersion: {version}\n")
    lines = []
    for group, points in project["entry-points"].items():
        lines += [f"[{group}]", *(f"{key} = {value}" for key, value in points.items())]
    (note / "entry_points.txt").write_text("\n".join(lines))
    registry._entry_points.cache_clear()


RUN = {"pycon": python_session, "console": shell_session, "toml": mark_installed}
KNOWN = {"python", "yaml", *RUN}


@pytest.mark.parametrize("name", DOCUMENTS)
def test_no_block_is_of_a_language_that_nobody_checks(name):
    assert {language for language, _ in blocks(name)} <= KNOWN
    text = (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8")
    assert text.count("```") == 2 * len(blocks(name))


def test_the_loop_of_the_document_is_the_example():
    example = (ROOT / "examples" / "own_loop.py").read_text().splitlines()
    shown = next(text for language, text in blocks("python") if language == "python")
    assert shown.splitlines() == ["# own_loop.py", *example[2:]]


def recipe_table(section):
    """The rows of a section's table in the document on recipes: key -> default."""
    text = (ROOT / "docs" / "recipes.md").read_text(encoding="utf-8")
    text = text.partition(f"\n### {section}\n")[2].partition("\n### ")[0]
    return dict(re.findall(r"^\| `(\w+)` \| ([^|]*) \|", text, re.MULTILINE))


def test_the_keys_of_train_are_those_of_the_grammar_with_their_defaults():
    table = recipe_table("train")
    later = {"episodes", "trackers", "precision", "on_error"}
    assert set(table) == set(registry.options(grammar.Train)) - later
    data = {"environment": "CartPole-v1", "updater": "q_learning"}
    defaults = resolve(load_recipe(data))["train"]
    for key, cell in table.items():
        if re.fullmatch(r"`[^`]*`", cell):  # others say it in words
            said = documents.load_document(f"{key}: {cell.strip('`')}").data[key]
            found = defaults[key]
            if isinstance(said, dict):
                found = {name: found[name] for name in said}
            assert said == found, key


def test_every_environment_of_ours_is_named_in_its_document():
    text = (ROOT / "docs" / "environments.md").read_text(encoding="utf-8")
    found = {
        name
        for name in registry.names("environment")
        if registry.find("environment", name).factory.__module__.startswith("rlcli.")
        and not name.endswith("/")
    }
    families = {name for name in found if re.match("probe-|MinAtar/.*-v1", name)}
    assert {"probe-…", "-v1"} <= set(re.findall("`([^`]+)`", text))
    assert all(f"`{name}`" in text for name in found - families)


def test_the_keys_of_every_environment_are_those_of_the_grammar():
    assert set(recipe_table("environment")) == {
        *registry.options(grammar.Vector),
        "options",  # Gymnasium's
    }


def test_all_that_is_not_in_this_version_is_named():
    text = (ROOT / "docs" / "recipes.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`(\w+)`", text.partition("## Not in this version")[2]))
    later = {*grammar.UNSUPPORTED_SECTIONS}
    for names in grammar.UNSUPPORTED_OPTIONS.values():
        later |= {*names}
    assert later <= named
    words = {"train", "episodes", "trackers", "precision", "on_error"}
    assert named - later <= words | {"float32", "stop"}


@pytest.mark.parametrize(
    "option",
    [
        "episodes=3",
        "trackers=[wandb]",
        "precision=bfloat16",
        "on_error=restart",
        "evaluate={every: 100, render: true}",
    ],
)
def test_what_train_does_not_have_yet_is_refused(option):
    data = {"environment": "CartPole-v1", "updater": "q_learning"}
    with pytest.raises(RlcliError, match="is not supported in this version"):
        load_recipe(data, [f"train.{option}"])


def test_the_exit_codes_are_those_of_the_program():
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
