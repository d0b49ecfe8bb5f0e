"""The documentation site: its navigation and its reference are complete."""

import re
import runpy
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

import rlcli
from rlcli import types

DOCS = Path(__file__).parents[1] / "docs"


def read(name):
    return (DOCS / name).read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def settings():
    return SimpleNamespace(**runpy.run_path(str(DOCS / "conf.py")))


def test_every_page_is_in_the_navigation():
    reachable, pages = set(), [DOCS / "index.md"]
    while pages:
        page = pages.pop()
        reachable.add(page)
        trees = re.findall(r"^```{toctree}\n(.*?)^```", page.read_text(), re.M | re.S)
        for entry in "\n".join(trees).split():
            pages += {*page.parent.glob(f"{entry}.md")} - reachable
    missing = {*DOCS.rglob("*.md")} - reachable
    assert not missing, "add it to a toctree in docs/index.md"


def test_every_link_to_a_page_names_a_page_of_the_site():
    """Sphinx says so, too, but `make docs` comes last; sections are left to it."""
    pages = {*DOCS.rglob("*.md")}
    missing = [
        f"{page.relative_to(DOCS)}: {target}"
        for page in pages
        for target in re.findall(r"\]\(([^)#:]+\.md)[)#]", page.read_text())
        if (page.parent / target).resolve() not in pages
    ]
    assert not missing, "write the name of a file outside docs/ as code"


def test_every_public_function_is_in_the_reference():
    names = re.findall(r"auto\w+:: ([\w.]+)$", read("api/functions.md"), re.MULTILINE)
    assert {name.split(".")[-1] for name in names} >= {*rlcli.__all__} - {"__version__"}
    assert len(names) == len(set(names))


def test_the_changelog_has_this_version_and_every_command():
    text = (DOCS.parent / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.search(r"^## (\S+)", text, re.MULTILINE)[1] == rlcli.__version__
    spans = [*map(str.split, re.findall(r"`([^`]+)`", text))]
    named = {words[1] for words in spans if words[0] == "rlcli" and len(words) > 1}
    named |= {words[0] for words in spans if len(words) == 1}
    assert {*map(rlcli.command_name, rlcli.COMMANDS)} <= named


def test_every_contract_is_in_the_reference():
    names = re.findall(r"^:pyobject: (\w+)$", read("api/types.md"), re.MULTILINE)
    records = [
        name
        for name, value in vars(types).items()
        if isinstance(value, type) and hasattr(value, "_fields")
    ]
    assert sorted(names) == sorted(records)


def convert(settings, text):
    lines = text.splitlines()
    settings.convert_docstring(None, "function", "f", None, None, lines)
    return "\n".join(line for line in lines if line)


def test_equations_of_docstrings_keep_their_layout(settings):
    text = "The target.\n\n    y = r + γ |v|\n      + 1\n\nAnd `a*`, a_ and *b*."
    assert convert(settings, text) == (
        "The target.\n::\n    y = r + γ \\|v\\|\n      + 1\nAnd ``a*``, a\\_ and *b*."
    )


def test_sections_of_docstrings_stay_for_napoleon(settings):
    text = "Adds.\n\nArgs:\n    x: the first\n        `int`.\n    y: the second."
    expected = text.replace("`int`", "``int``").replace("\n\n", "\n")
    assert convert(settings, text) == expected


def test_images_are_small():
    sizes = {path.name: path.stat().st_size for path in DOCS.glob("images/*")}
    assert {"panel.svg", "comparison.svg"} <= set(sizes)
    assert all(size <= 200_000 for size in sizes.values()), sizes
    assert "url(" not in re.sub(r"url\(#[\w-]+\)", "", read("images/panel.svg"))


def test_the_citation_names_this_version():
    citation = yaml.safe_load((DOCS.parent / "CITATION.cff").read_text())
    assert citation["version"] == rlcli.__version__
