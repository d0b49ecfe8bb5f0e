"""Results: dicts, lists and text whose fields are attributes, and their tables.

Tables are for terminals, pages and notebooks. Imports no JAX.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from rlcli.quoting import quote_html
from rlcli.runs.formatting import format_number, format_value


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


class Result(dict[str, Any]):
    """A result: a dict whose fields are attributes, too.

        result["return"]["mean"] == result.return_.mean

    A field that is a word of Python, or a method of dicts, has an underscore behind it
    as an attribute: `return_`, `values_`. `describe` makes its tables in a notebook, by
    default one of its fields.
    """

    __slots__ = ("_describe",)

    def __init__(
        self,
        data: Mapping[str, Any],
        describe: Callable[[Mapping[str, Any]], Iterable[Table]] | None = None,
    ) -> None:
        super().__init__(data)
        self._describe = describe or _describe_fields

    def __getattr__(self, name: str) -> Any:
        key = name if name in self else name.removesuffix("_")
        if key not in self:
            fields = ", ".join(f"`{each}`" for each in self)
            raise AttributeError(f"there is no field `{name}`: there are {fields}")
        return _wrap(self[key])

    def __dir__(self) -> Iterator[str]:
        taken = dir(dict)
        names = (f"{key}_" if key in (*taken, "return") else key for key in self)
        yield from (*super().__dir__(), *filter(str.isidentifier, names))

    def __reduce__(self) -> Any:
        return Result, (dict(self),)

    def _repr_html_(self) -> str:
        return _tables_html(self._describe(self))


class Records(list[Any]):
    """A list of results, which a notebook shows as one table."""

    def __init__(
        self, rows: Iterable[Mapping[str, Any]], table: Callable[[Sequence], Table]
    ) -> None:
        super().__init__(map(_wrap, rows))
        self._table = table

    def __reduce__(self) -> Any:
        return list, ([*self],)

    def _repr_html_(self) -> str:
        return _tables_html([self._table(self)])


class Text(str):
    """Text, which a notebook shows with its lines."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        return f"<pre>{quote_html(self)}</pre>"


def _wrap(value: Any) -> Any:
    if isinstance(value, dict):
        return value if isinstance(value, Result) else Result(value)
    return [*map(_wrap, value)] if isinstance(value, list) else value


def _tables_html(tables: Iterable[Table]) -> str:
    lines: list[str] = []
    for table in tables:
        lines += [f"<p>{quote_html(table.title)}</p>"] if table.title else []
        lines += html_lines(table)
    return "\n".join(lines)


def _describe_fields(data: Mapping[str, Any]) -> Iterator[Table]:
    rows = [(name, _cell(value)) for name, value in data.items()]
    yield Table("", ["field", "value"], rows)


def _cell(value: Any) -> str:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return format_number(value) if is_number else format_value(value, 80)
