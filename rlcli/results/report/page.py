"""Page: the HTML file of a report, with its style, script, data and libraries.

The content security policy of the page allows its own two scripts, by their hashes, and
nothing from a network: even a mistake in escaping could not run code from a run.
"""

import base64
import functools
import hashlib
import importlib.resources
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rlcli.quoting import printable, quote_html
from rlcli.registry.libraries import import_library
from rlcli.results.comparison_tables import name_groups
from rlcli.results.groups import Group
from rlcli.results.report import origins
from rlcli.results.report.charts import COLORS, Chart
from rlcli.results.report.learning import Learning
from rlcli.results.report.origins import Difference, RecipeTable, RunFacts
from rlcli.runs.files import to_json, write_output
from rlcli.runs.run_folder import timestamp

_POLICY = (
    "default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; "
    "img-src data:; base-uri 'none'; form-action 'none'"
)


class Content(NamedTuple):
    """The content of a page."""

    title: str
    labels: Sequence[str]  # of the groups
    center: str
    notes: Sequence[str]
    learning: Sequence[Learning]
    episodes: Sequence[Any]  # of `GroupEpisodes`, whose module imports JAX
    recipes: Sequence[RecipeTable]
    recipe_differences: Sequence[Difference]
    machine_differences: Sequence[Difference]
    runs: Sequence[RunFacts]
    updates: Sequence[Any] = ()  # of `UpdateView`, likewise


def make_content(
    groups: Sequence[Group],
    center: str,
    notes: Sequence[str],
    learning: Sequence[Learning],
    episodes: Sequence[Any],
    updates: Sequence[Any] = (),
) -> Content:
    """The content of the page on groups, with their recipes and provenance."""
    members = [member for group in groups for member in group.members]
    labels = [each.label for each in groups]
    environments = [each.environment for each in learning]
    return Content(
        title=name_groups(labels, environments),
        labels=labels,
        center=center,
        notes=[*dict.fromkeys(notes)],
        learning=learning,
        episodes=episodes,
        updates=updates,
        recipes=origins.describe_recipes(groups),
        recipe_differences=origins.find_option_differences(groups),
        machine_differences=origins.find_machine_differences(members),
        runs=origins.describe_runs(groups),
    )


def write_page(path: Path, content: Content) -> None:
    """Writes the page; an existing file is replaced at once, and no link followed."""
    write_output(path, render_page(content).encode())


def render_page(content: Content) -> str:
    """The page as HTML. The template escapes everything but the files of this page."""
    jinja2: Any = import_library("jinja2", "report")
    markup: Any = import_library("markupsafe", "report")
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("rlcli.results.report", "page"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        finalize=_to_text,
    )
    charts: list[dict[str, Any]] = []
    environment.globals |= {
        "color": lambda index: COLORS[index % len(COLORS)],
        "place": functools.partial(_place, charts),
        "charts": charts,
    }
    # JSON has no NaN, with which the page could read none of its data.
    environment.policies["json.dumps_function"] = to_json
    environment.policies["json.dumps_kwargs"] = {}
    environment.filters["prose"] = _mark_code
    library, script = _library(), _read("page.js")
    return environment.get_template("page.html").render(
        content=content,
        created=timestamp(),
        library=markup.Markup(library),
        script=markup.Markup(script),
        style=markup.Markup(_read("page.css")),
        policy=_POLICY.format(hashes=" ".join(map(_hash, (library, script)))),
    )


def _place(charts: list[dict[str, Any]], chart: Chart) -> int:
    """The number of a chart on the page, whose data it stores."""
    charts.append({"spec": _to_labels(chart.spec), "blocks": chart.blocks})
    return len(charts) - 1


def _mark_code(text: str) -> Any:
    """Text in which `` `names` `` are marked as code."""
    markup: Any = import_library("markupsafe", "report")
    parts = [markup.Markup(quote_html(part)) for part in text.split("`")]
    if len(parts) % 2 == 0:  # a backtick without its pair
        return markup.Markup(quote_html(text))
    for index in range(1, len(parts), 2):
        parts[index] = markup.Markup("<code>%s</code>") % parts[index]
    return markup.Markup("").join(parts)


def _to_labels(spec: Any) -> Any:
    """A specification whose names and labels can neither reorder nor hide text."""
    if isinstance(spec, Mapping):
        return {_to_text(key): _to_labels(value) for key, value in spec.items()}
    return (
        [*map(_to_labels, spec)] if isinstance(spec, list | tuple) else _to_text(spec)
    )


def _to_text(value: Any) -> Any:
    """Text without control characters, which HTML does not allow."""
    return printable(value) if type(value) is str else value


@functools.cache
def _library() -> str:
    """Vega, Vega-Lite and Vega-Embed, in one script; it takes two seconds to make."""
    bundle: str = import_library("vl_convert", "report").javascript_bundle()
    # An end of a script would end it also within a string of JavaScript.
    return bundle.replace("</script", "<\\/script").replace("\r", "")


def _read(name: str) -> str:
    folder = importlib.resources.files("rlcli.results.report") / "page"
    return (folder / name).read_text(encoding="utf-8")


def _hash(script: str) -> str:
    digest = hashlib.sha256(script.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"
