"""Page: the HTML file of a report, and of the board, with its style, scripts and data.

The document of the page is JSON, which `page.js` draws. The content security policy
allows the scripts and the style of the page, by their hashes, and nothing from a
network: even a mistake in the scripts could not run code from a run.
"""

import base64
import functools
import hashlib
import importlib.resources
import string
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rlcli.errors import paths_as_typed
from rlcli.quoting import printable, quote_html
from rlcli.registry.libraries import import_library
from rlcli.results.chart import ALL_ENVIRONMENTS
from rlcli.results.comparison_tables import name_groups
from rlcli.results.groups import Group
from rlcli.results.report import origins
from rlcli.results.report.charts import COLORS
from rlcli.results.report.learning import Learning
from rlcli.runs.files import to_json, write_output
from rlcli.runs.run_folder import timestamp

_POLICY = (
    "default-src 'none'; script-src {scripts}; style-src {style}; img-src data:{own}; "
    "base-uri 'none'; form-action 'none'"
)


class Page(NamedTuple):
    """A page as HTML, and its content security policy."""

    html: str
    policy: str


def make_content(
    groups: Sequence[Group],
    center: str,
    notes: Sequence[str],
    learning: Sequence[Learning],
    episodes: Sequence[Any],
    updates: Sequence[Any] = (),
    claims: Sequence[str] = (),
) -> dict[str, Any]:
    """The content of the page on groups, with their recipes and provenance.

    `episodes` and `updates` are of `GroupEpisodes` and `UpdateView`, whose modules
    import JAX; `claims` are sentences.
    """
    members = [member for group in groups for member in group.members]
    labels = [each.label for each in groups]
    environments = [each.environment for each in learning]
    return {
        "title": name_groups(
            labels, [e for e in environments if e != ALL_ENVIRONMENTS]
        ),
        "labels": labels,
        "center": center,
        "notes": [*dict.fromkeys(notes)],
        "learning": learning,
        "episodes": episodes,
        "updates": updates,
        "recipes": origins.describe_recipes(groups),
        "recipe_differences": origins.find_option_differences(groups),
        "machine_differences": origins.find_machine_differences(members),
        "runs": origins.describe_runs(groups),
        "created": timestamp(),
        "claims": claims,
    }


def write_page(path: Path, content: Mapping[str, Any]) -> None:
    """Writes the page; an existing file is replaced at once, and no link followed."""
    title = paths_as_typed(content["title"])
    page = render_page(f"{title} – report", {"page": content})
    write_output(path, page.html.encode())


def render_page(
    title: str, document: Mapping[str, Any], *, is_live: bool = False
) -> Page:
    """The page that draws a document; a live one asks its server for what it shows."""
    library = _library()
    script = _read("page.js") + (_read("board.js") if is_live else "")
    style = _read("page.css")
    policy = _POLICY.format(
        scripts=" ".join(map(_hash, (library, script))),
        style=_hash(style),
        own=" 'self'; connect-src 'self'; media-src 'self'" if is_live else "",
    )
    data = to_json(to_plain({"colors": COLORS, **document}))
    html = string.Template(_read("page.html")).substitute(
        title=quote_html(title),
        policy=policy,
        style=style,
        # No end of the script, and no comment in which a browser would look for one.
        document=data.replace("<", "\\u003c"),
        library=library,
        script=script,
    )
    return Page(html, policy)


def to_plain(value: Any) -> Any:
    """Records as mappings by field, with text that can neither reorder nor hide text.

    The text has no control characters, which HTML does not allow, and paths as typed.
    """
    if isinstance(value, str):
        return printable(paths_as_typed(value))
    if (as_dict := getattr(value, "_asdict", None)) is not None:  # a NamedTuple
        value = as_dict()
    if isinstance(value, Mapping):
        return {printable(str(key)): to_plain(each) for key, each in value.items()}
    return [*map(to_plain, value)] if isinstance(value, list | tuple) else value


@functools.cache
def _library() -> str:
    """Vega, Vega-Lite and Vega-Embed, in one script; it takes two seconds to make."""
    bundle: str = import_library("vl_convert", "report").javascript_bundle()
    # An end of a script would end it also within a string of JavaScript.
    return bundle.replace("</script", "<\\/script").replace("\r", "")


@functools.cache
def _read(name: str) -> str:
    folder = importlib.resources.files("rlcli.results.report") / "page"
    return (folder / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"
