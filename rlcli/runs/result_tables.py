"""Tables of results, for terminals and pages. Imports no JAX."""

from collections.abc import Sequence
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


def html_lines(table: Table) -> list[str]:
    """The lines of a table in HTML, without its title."""
    header, *rows = (
        "".join(f"<{tag}>{quote_html(cell)}</{tag}>" for cell in cells)
        for tag, cells in (("th", table.header), *(("td", row) for row in table.rows))
    )
    return ["<table>", *(f"<tr>{row}</tr>" for row in (header, *rows)), "</table>"]
