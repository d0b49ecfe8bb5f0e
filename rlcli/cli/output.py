"""Output: prints data to stdout and messages to stderr.

While a command runs, stdout is for its data only: what an environment, a library in C
or another process prints there goes to stderr (`reserve_stdout`).
"""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import logging
import os
import sys
import warnings
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rlcli.errors import RlcliError, as_typed, paths_as_typed
from rlcli.quoting import printable, printable_json, quote_rich

if TYPE_CHECKING:
    from typing import TextIO

    from rich.console import Console
    from rich.table import Table as RichTable

    from rlcli.runs.result import Table as ResultTable
else:
    TextIO = io.TextIOBase  # typing's has no instances, which checks of types refuse

PIPE_WIDTH = 160  # characters of a line of a table in a pipe or file
_reserved: TextIO | None = None  # stdout, while `sys.stdout` is another stream


def open_standard_streams() -> None:
    """Redirects closed standard streams to the null device; others escape characters.

    Otherwise the next opened file would get the descriptor of stderr, and with it
    everything that libraries write to stderr. A stream that is not UTF-8 gets escapes
    for the characters that it cannot encode.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest free descriptor
        if getattr(sys, name) is None:
            mode = "r" if name == "stdin" else "w"
            setattr(sys, name, os.fdopen(os.dup(number), mode))
        stream = getattr(sys, name)
        if name != "stdin" and isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


@contextlib.contextmanager
def print_warnings() -> Iterator[None]:
    """Prints warnings and log messages of Python and libraries as our messages.

    They may quote a file, whose characters could steer the terminal.
    """
    with warnings.catch_warnings():
        warnings.showwarning = _print_warning
        last_resort, logging.lastResort = logging.lastResort, _LogMessages()
        try:
            yield
        finally:
            logging.lastResort = last_resort


def _print_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    text = warnings.formatwarning(message, category, filename, lineno, line).rstrip()
    if file is None:
        print_message(text)
    else:
        file.write(f"{text}\n")


class _LogMessages(logging.Handler):
    """Prints what loggers without a handler of their own report."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)

    def emit(self, record: logging.LogRecord) -> None:
        print_message(self.format(record))


@contextlib.contextmanager
def reserve_stdout() -> Iterator[None]:
    """Context in which only the functions of this module print to stdout.

    `sys.stdout` and the descriptor 1, which libraries in C and child processes use,
    lead to stderr. A stream that has replaced `sys.stdout` gets the data instead.
    """
    import ctypes  # here, to keep `--help` fast

    global _reserved
    if _reserved is not None:
        yield
        return
    replaced = sys.stdout
    replaced.flush()
    stdout = os.dup(1)
    try:
        if _descriptor_of(replaced) == 1:
            _reserved = _open_like(replaced, stdout)
        else:
            _reserved = replaced
        redirect_stdout()
        yield
    finally:
        ctypes.CDLL(None).fflush(None)  # the buffers of libraries in C
        if _reserved is not None:
            flush(_reserved)
        os.dup2(stdout, 1)
        os.close(stdout)
        sys.stdout, _reserved = replaced, None


def redirect_stdout() -> None:
    """Lets all that is printed to stdout from now on go to stderr."""
    os.dup2(2, 1)
    sys.stdout = sys.stderr


def _open_like(stream: TextIO, descriptor: int) -> TextIO:
    """A stream on another descriptor, which stays open when the stream is closed."""
    return open(
        descriptor,
        "w",
        buffering=1 if getattr(stream, "line_buffering", False) else -1,
        encoding=stream.encoding,
        errors=stream.errors,
        closefd=False,
    )


def data_stream() -> TextIO:
    """The stream of the data of a command: stdout."""
    return _reserved or sys.stdout


def data_descriptor() -> int:
    """The descriptor of stdout."""
    descriptor = _descriptor_of(data_stream())
    return 1 if descriptor is None else descriptor


def _descriptor_of(stream: TextIO) -> int | None:
    with contextlib.suppress(OSError, AttributeError):  # a stream in memory
        return stream.fileno()
    return None


def flush(stream: TextIO) -> None:
    """Flushes a stream, and silences it if it is closed or its device is full."""
    try:
        stream.flush()
    except OSError:
        silence(stream)


def print_data(text: object) -> None:
    """Prints the result of a command to stdout, with control characters escaped.

    Stops silently when the reader, for example `head`, has closed the pipe.
    """
    try:
        print(printable(as_typed(str(text))), file=data_stream(), flush=True)
    except BrokenPipeError:
        silence(data_stream())


def print_message(text: str) -> None:
    """Prints a message to stderr, with control characters escaped."""
    if sys.stderr is None:  # `print` would use stdout
        return
    try:
        print(printable(paths_as_typed(text)), file=sys.stderr)
    except OSError:  # a closed pipe, or a terminal that is gone
        silence(sys.stderr)


def print_error(error: RlcliError) -> None:
    """Prints an error to stderr, after its traceback if `RLCLI_TRACEBACK` is set."""
    if os.environ.get("RLCLI_TRACEBACK"):
        import traceback  # here, to keep `--help` fast

        print_message("".join(traceback.format_exception(error)).rstrip())
    print_message(f"error: {error}")


def table_console() -> Console:
    """A console for wide tables: long lines where stdout is not a terminal."""
    result = console()
    if not result.is_terminal and "COLUMNS" not in os.environ:
        result.width = PIPE_WIDTH
    return result


def console(*, stderr: bool = False) -> Console:
    """A Rich console, for tables; a closed pipe silences it."""
    from rich.console import Console  # here, to keep `--help` fast

    class Stream(Console):
        def on_broken_pipe(self) -> None:  # Rich would exit the process
            silence(sys.stderr if stderr else data_stream())

    return Stream(
        file=None if stderr else data_stream(), stderr=stderr, highlight=False
    )


def print_notes(notes: Sequence[str]) -> None:
    """Prints notes about a result to stderr."""
    for note in notes:
        print_message(f"note: {note}")


def print_table(table: ResultTable, screen: Console) -> None:
    """Prints a table of results with its title; lines that are too long are not cut."""
    from rlcli.runs.result import width_of  # here, to keep `--help` fast

    screen.print(quote_rich(table.title), soft_wrap=True)
    text, has_rule = table.header[:1], screen.is_terminal
    shown = make_table(table.header, text=text, has_rule=has_rule, pad_edge=False)
    for number, row in enumerate(table.rows):
        is_best = [(number, column) in table.best for column in range(len(row))]
        styles = ["bold" if each else "" for each in is_best]
        shown.add_row(*map(quote_rich, row, styles))
    screen.print(shown, width=max(screen.width, width_of(table)), crop=False)


def make_table(
    header: Sequence[str],
    rows: Iterable[Sequence[str]] = (),
    *,
    text: Collection[str] = (),
    has_rule: bool = True,
    **style: Any,
) -> RichTable:
    """A table of Rich; the columns `text` are left-aligned, others are numbers."""
    from rich import box  # here, to keep `--help` fast
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD if has_rule else None, **style)
    for name in header:
        table.add_column(quote_rich(name), justify="left" if name in text else "right")
    for row in rows:
        table.add_row(*map(quote_rich, row))
    return table


def silence(stream: TextIO) -> None:
    """Redirects a stream to the null device.

    Otherwise Python would fail again when it flushes the buffer at exit.
    """
    descriptor = os.open(os.devnull, os.O_WRONLY)
    os.dup2(descriptor, stream.fileno())
    os.close(descriptor)


def print_json(value: Any) -> None:
    """Prints the result of a command as JSON."""
    print_data(as_json(value))


def print_rows(rows: Sequence[Sequence[str]]) -> None:
    """Prints rows as data, with aligned columns; rows may have fewer than others."""
    columns = itertools.zip_longest(*rows, fillvalue="")
    widths = [max(map(len, column)) for column in columns]
    for row in rows:
        cells = map(str.ljust, row, widths)
        print_data(f"  {'  '.join(cells)}".rstrip())


def as_json(value: Any) -> str:
    """Formats a value as JSON; NaN and infinity become null."""
    from rlcli.runs.files import to_json  # here, to keep `--help` fast

    text = printable_json(to_json(_show_paths(value), indent=2))
    try:
        text.encode(getattr(data_stream(), "encoding", None) or "utf-8")
    except UnicodeEncodeError:  # the escapes of the stream would be no JSON
        return json.dumps(json.loads(text), indent=2)
    return text


def _show_paths(value: Any) -> Any:
    """Data with its paths as the user has typed them."""
    if isinstance(value, str):
        return as_typed(value)
    if isinstance(value, Mapping):
        return {key: _show_paths(each) for key, each in value.items()}
    return [*map(_show_paths, value)] if isinstance(value, list | tuple) else value


def describe_differences(result: Mapping[str, Any]) -> list[str]:
    """The first difference in the metrics of two runs, and those in their state."""
    lines = []
    if metrics := result["metrics"]:
        field = f"`{metrics['field']}`" if metrics["field"] else "a row"
        place = f"at step {metrics['step']:,}, seed {metrics['seed']}"
        values = " → ".join(map(str, metrics["values"]))
        lines.append(f"  first in {field} {place}" + (f": {values}" if values else ""))
    if state := result["state"]:
        more = f" and {len(state) - 3} more" if len(state) > 3 else ""
        step = f"{result['step']:,}"
        lines.append(f"  in the state at step {step}: {', '.join(state[:3])}{more}")
    return lines
