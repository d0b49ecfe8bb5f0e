"""Tables of results, for terminals and pages. Imports no JAX."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from rlcli.quoting import quote_html


class Table(NamedTuple):
    """A table with a title; the first column is text, the others are numbers."""

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    best: Sequence[tuple[int, int]] = ()  # row and column of the best estimates


def width_of(table: Table) -> int:
    """The characters of a line in a terminal, with three for each gap."""
    columns = zip(table.header, *table.rows, strict=True)
    widths = [
        max(len(line) for cell in column for line in cell.splitlines() or [""])
        for column in columns
    ]
    return sum(width + 3 for width in widths)


def text_lines(table: Table) -> list[str]:
    """The lines of a table as text, without its title."""
    columns = zip(table.header, *table.rows, strict=True)
    widths = [max(map(len, column)) for column in columns]
    return [
        "  ".join(
            cell.rjust(width) if index else cell.ljust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in (table.header, *table.rows)
    ]


def quote_rows(
    table: Table, quote: Callable[[str], str], strong: str
) -> list[list[str]]:
    """The header and the rows in another language; `strong` formats the best cells."""
    header, *rows = ([*map(quote, row)] for row in (table.header, *table.rows))
    for row, column in table.best:
        rows[row][column] = strong % rows[row][column]
    return [header, *rows]


def html_lines(table: Table) -> list[str]:
    """The lines of a table in HTML, without its title."""
    rows = quote_rows(table, quote_html, "<b>%s</b>")
    tags = ["th", *["td"] * len(table.rows)]
    header, *rows = (
        "".join(f"<{tag}>{cell}</{tag}>" for cell in cells)
        for tag, cells in zip(tags, rows, strict=True)
    )
    return ["<table>", *(f"<tr>{row}</tr>" for row in (header, *rows)), "</table>"]
