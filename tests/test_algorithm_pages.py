"""The pages of docs/algorithms: complete, and equal to the code and the results."""

import re
from pathlib import Path

import jax
import pytest

from rlcli import loop, recipe, registry
from rlcli.assembly import build
from rlcli.errors import RlcliError
from rlcli.recipe import documents
from rlcli.runs.metric_labels import describe_metric
from rlcli.types import START

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs" / "algorithms"
PAGES = {
    path.stem: path.read_text(encoding="utf-8")
    for path in sorted(FOLDER.glob("*.md"))
    if path.stem != "index"
}
SECTIONS = [
    "Equations",
    "Papers",
    "In rlcli",
    "Details",
    "Metrics",
    "Results",
    "Related",
]
QUICKLY_TRACED = ("q_learning",)
each_page = pytest.mark.parametrize("name", PAGES)


def section(text, title):
    """The text of a section of a page."""
    return text.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def code_words(text):
    """What stands between single backticks, outside of code blocks."""
    return re.findall(r"`([^`\n]+)`", re.sub(r"```.*?```", "", text, flags=re.DOTALL))


def recipes(text):
    """The YAML blocks of a page, parsed."""
    return [
        recipe.load_recipe(documents.load_document(block).data)
        for block in re.findall(r"^```yaml\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    ]


def documented_metrics(text):
    rows = re.findall(r"^\| `(\w+)` \| .+ \| .+ \|$", section(text, "Metrics"), re.M)
    assert len(rows) == len(set(rows))
    return set(rows)


def emitted_metrics(parsed):
    """The metrics that an update of a recipe reports; nothing is computed.

    Without the values of its schedules, which any recipe may have.
    """
    setup = build(parsed)
    if not setup.environment.pure:
        pytest.skip("environments on the host cannot be traced")
    run = loop.make_loop(setup._replace(devices=1))
    _, log = jax.eval_shape(
        lambda progress: run.advance(progress, 1), jax.eval_shape(run.begin)
    )
    scheduled = jax.eval_shape(setup.scheduled, START)
    return set(log.metrics) - set(scheduled)


@each_page
def test_a_page_has_all_sections_in_order(name):
    assert re.findall(r"^## (.+)$", PAGES[name], re.MULTILINE) == SECTIONS
    assert PAGES[name].startswith("# ")


def test_every_updater_is_named_on_a_page():
    words = {
        word
        for text in PAGES.values()
        for word in code_words(section(text, "In rlcli"))
    }
    updaters = {
        name
        for name in registry.names("updater")
        if registry.find("updater", name).factory.__module__.startswith("rlcli.")
    }
    assert updaters - words == set()


def test_every_built_in_recipe_is_named_on_a_page():
    words = {word for text in PAGES.values() for word in code_words(text)}
    assert {*recipe.shipped_recipes()} - words == set()


@each_page
def test_recipes_and_parts_of_a_page_exist(name):
    here = section(PAGES[name], "In rlcli")
    line = re.search(r"^(?:Shipped|No shipped) recipe.*$", here, re.MULTILINE)
    assert line
    named = {word for word in code_words(line[0]) if re.fullmatch(r"\w+_\w+", word)}
    assert named <= {*recipe.shipped_recipes()}
    assert named or line[0].startswith("No ")
    results = re.findall(r"^\| `(\w+)` \| `", section(PAGES[name], "Results"), re.M)
    assert {*results} <= {*recipe.shipped_recipes()}
    for kind, cell in re.findall(
        r"^\| `(updater|policy|tracer|replay)` \| (.+) \|$", here, re.MULTILINE
    ):
        part = re.match(r"`(?:\{name: )?(\w+)", cell)
        if part:
            registry.find(kind, part[1])


@each_page
def test_recipes_of_a_page_are_valid(name):
    assert recipes(PAGES[name])


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name in QUICKLY_TRACED else pytest.mark.slow)
        for name in PAGES
    ],
)
def test_the_metrics_of_a_page_are_those_that_its_recipes_report(name):
    try:
        emitted = set().union(*map(emitted_metrics, recipes(PAGES[name])))
    except RlcliError as error:
        if not error.hint.startswith("pip install "):
            raise
        pytest.skip(error.message)
    assert documented_metrics(PAGES[name]) == emitted


def test_every_documented_metric_is_in_the_code_of_updaters():
    code = "\n".join(
        path.read_text(encoding="utf-8")
        for path in (ROOT / "rlcli" / "updaters").rglob("*.py")
    )
    metrics = set().union(*map(documented_metrics, PAGES.values()))
    assert {metric for metric in metrics if f'"{metric}"' not in code} == set()


def test_every_documented_metric_has_a_meaning_in_pages_of_results():
    metrics = set().union(*map(documented_metrics, PAGES.values()))
    assert {metric for metric in metrics if not describe_metric(metric)} == set()


def test_every_measured_recipe_has_its_results_on_a_page():
    learning = (ROOT / "docs" / "learning.md").read_text(encoding="utf-8")
    results = "\n".join(section(text, "Results") for text in PAGES.values())
    measured, documented = (
        set(re.findall(r"^\| `(\w+)` \| `", text, re.MULTILINE))
        for text in (learning, results)
    )
    assert measured == documented


@pytest.mark.parametrize(
    "path", sorted(FOLDER.glob("*.md")), ids=lambda path: path.stem
)
def test_relative_links_have_a_target(path):
    text = path.read_text(encoding="utf-8")
    for target, _, anchor in re.findall(r"\]\(((?!http)[^)#]*)(#([^)]*))?\)", text):
        linked = path.parent / target if target else path
        assert linked.is_file(), target
        headings = re.findall(r"^#+ (.+)$", linked.read_text(encoding="utf-8"), re.M)
        anchors = {
            re.sub(r"[^\w -]", "", each).lower().replace(" ", "-") for each in headings
        }
        assert not anchor or anchor in anchors, anchor


@each_page
def test_equations_have_no_syntax_of_markdown(name):
    """Escapes and emphasis, which GitHub may apply within math."""
    equations = re.findall(r"(\$\$?)(.+?)\1", PAGES[name])
    assert equations
    assert [each for _, each in equations if re.search(r"\\[^\w\s]|\W_|\*", each)] == []
    assert PAGES[name].count("$") % 2 == 0
