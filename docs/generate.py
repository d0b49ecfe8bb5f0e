"""Writes the parts of the documentation that follow from other files: `make generate`.

    docs/options.md              the options of all parts, from their signatures
    docs/algorithms/index.md     a row per page, from the comment at its top
    docs/glossary.md             the entries of algorithms, from the same comments
    docs/recipes.md              the shipped recipes, by the family of their page
    rlcli/recipe/part_index.json the options of built-in parts, to read without JAX

A test compares them with what this module would write (`tests/test_generated.py`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from rlcli import recipe, registry
from rlcli.recipe import part_index
from rlcli.recipe.catalog import describe_options

DOCS = Path(__file__).parent
FAMILIES = [
    "Values (temporal differences)",
    "Policy gradients",
    "Off-policy actor-critic",
    "Intrinsic rewards",
    "Models and planning",
    "Offline",
    "Evolution",
]
OPTIONS = """# Options of all parts

For each part its options, their types and defaults, as `rlcli show KIND NAME` prints
them with their meaning. [Recipes](recipes.md) describes how they work together. This
page is generated from the signatures; plug-ins and parts of your own have options in
the same way.
"""


class Page(NamedTuple):
    """A page of an algorithm; the fields are those of the comment below its title."""

    name: str
    title: str
    family: str
    part: str
    paper: str  # links, or ""
    glossary: list[str]  # rows: term | definition | reference | file
    recipes: list[str]


def files() -> dict[Path, str]:
    """All files of this module with the text that they should have."""
    pages = [*read_pages()]
    algorithms, glossary, recipes = (
        DOCS / name for name in ("algorithms/index.md", "glossary.md", "recipes.md")
    )
    return {
        DOCS / "options.md": "\n".join([OPTIONS, *option_sections()]),
        algorithms: replace_rows(
            algorithms, "| algorithm |", [index_row(page) for page in pages]
        ),
        glossary: replace_rows(glossary, "| term |", glossary_rows(glossary, pages)),
        recipes: replace_rows(recipes, "| family | recipes |", [*recipe_rows(pages)]),
        part_index.FILE: part_index.format_index(part_index.build_index()),
    }


def read_pages() -> Iterator[Page]:
    """All pages, by family, then by the year of their first paper."""
    pages = []
    for path in sorted((DOCS / "algorithms").glob("*.md")):
        if path.stem == "index":
            continue
        text = path.read_text(encoding="utf-8")
        head = re.match(r"# (.+)\n\n<!--\n(.*?)\n-->\n", text, re.DOTALL)
        if head is None:
            raise ValueError(f"{path}: no comment with `family:` below the title")
        fields: dict[str, list[str]] = {}
        for line in head[2].splitlines():
            key, _, value = line.partition(":")
            fields.setdefault(key, []).append(value.strip())
        shipped = re.search(r"^Shipped recipe.*$", text, re.MULTILINE)
        named = re.split(r"\bas in\b", shipped[0])[0] if shipped else ""
        words = re.findall(r"`(\w+)`", named)
        pages.append(
            Page(
                path.stem,
                head[1],
                *(fields[key][0] for key in ("family", "part", "paper")),
                glossary=fields["glossary"],
                recipes=[word for word in words if word in recipe.shipped_recipes()],
            )
        )

    def place(page: Page) -> tuple[int, str, str]:
        year = re.search(r"\d{4}", page.paper)
        return FAMILIES.index(page.family), year[0] if year else "9", page.title.lower()

    yield from sorted(pages, key=place)


def index_row(page: Page) -> str:
    """The row of a page in the index of algorithms."""
    shown = [f"`{name}`" for name in page.recipes[:3]]
    more = [f"{len(page.recipes) - 3} more"] if len(page.recipes) > 3 else []
    return table_row(
        f"[{page.title}]({page.name}.md)",
        page.family,
        page.part,
        ", ".join(shown + more),
        page.paper,
    )


def glossary_rows(path: Path, pages: Iterable[Page]) -> list[str]:
    """The rows of the glossary: those written by hand, and those of pages, in order."""
    text = path.read_text(encoding="utf-8")
    body = text.partition("\n|---|---|---|---|\n")[2].partition("\n\n")[0]
    rows = [row for row in body.splitlines() if not row.startswith("| [")]
    for page in pages:
        for entry in page.glossary:
            term, rest = entry.split(" | ", 1)
            rows.append(f"| [{term}](algorithms/{page.name}.md) | {rest} |")
    return sorted(rows, key=alphabetical)


def alphabetical(row: str) -> str:
    """The term of a row as it is sorted: without link, in small letters."""
    term = row.partition(" | ")[0].strip("| [").lower()
    return term.replace("ε", "e").replace("λ", "l")


def recipe_rows(pages: Iterable[Page]) -> Iterator[str]:
    """A row per family, with the recipes that its pages name first."""
    rest = dict.fromkeys(recipe.shipped_recipes())
    for family in FAMILIES:
        names = [
            name
            for page in pages
            if page.family == family
            for name in page.recipes
            if rest.pop(name, name) is None
        ]
        yield table_row(family, ", ".join(f"`{name}`" for name in names))
    if rest:
        yield table_row("others", ", ".join(f"`{name}`" for name in rest))


def option_sections() -> Iterator[str]:
    """A section per kind, and in it a table per part with options of its own."""
    for kind in registry.KINDS:
        yield f"## {kind}\n"
        plain = []
        for name in registry.names(kind):
            if registry.is_plug_in(kind, name):
                continue
            part = registry.find(kind, f"{name}ID" if name.endswith("/") else name)
            rows = [
                table_row(f"`{'.'.join(path)}`", code_cell(hint), code_cell(default))
                for path, hint, default in describe_options(part)
            ]
            if not rows:
                plain.append(f"`{name}`")
                continue
            yield f"### {kind} {name}\n"
            yield "\n".join(["| option | type | default |", "|---|---|---|", *rows, ""])
        if plain:
            yield f"Without options: {', '.join(plain)}.\n"


def code_cell(text: str | None) -> str:
    """Text as code in a cell of a table; None is an empty cell."""
    return "" if text is None else "`" + text.replace("|", "\\|") + "`"


def replace_rows(path: Path, header: str, rows: Iterable[str]) -> str:
    """The text of a page in which the table with this header has other rows."""
    text = path.read_text(encoding="utf-8")
    pattern = rf"(?m)^({re.escape(header)}.*\n\|[-:| ]+\|\n)(?:\|.*\n)*"
    table = "".join(f"{row}\n" for row in rows)
    new, count = re.subn(pattern, lambda found: f"{found[1]}{table}", text, count=1)
    if not count:
        raise ValueError(f"{path}: no table that begins with {header!r}")
    return new


def table_row(*cells: str) -> str:
    """A row of a table in Markdown."""
    return f"| {' | '.join(cells)} |".replace("  ", " ")


if __name__ == "__main__":
    for file, content in files().items():
        file.write_text(content, encoding="utf-8")
