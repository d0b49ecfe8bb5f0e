"""Figure: PNG, SVG or PDF files drawn by matplotlib; learning curves."""

import io
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from rlcli.errors import RlcliError
from rlcli.quoting import quote_mathtext
from rlcli.registry.libraries import import_library, install_command, missing_modules
from rlcli.results.chart import describe_crossing
from rlcli.runs.files import check_output, write_output

FORMATS = (".png", ".svg", ".pdf")
_DATES = {".png": {}, ".svg": {"Date": None}, ".pdf": {"CreationDate": None}}


def check_figure(path: Path) -> None:
    """An error if a figure cannot be written: before any file is read."""
    check_output(path, "a figure", FORMATS)
    check_library()


def check_library() -> None:
    """An error if matplotlib is not installed."""
    if not has_library():
        raise RlcliError(
            "figures require matplotlib, which is not installed",
            f"{install_command('plot')}; without `--output` the result is shown in the "
            "terminal",
        )


def has_library() -> bool:
    """Whether matplotlib is installed."""
    return not missing_modules("plot")


def draw(result: Mapping[str, Any], path: Path) -> None:
    """Writes the curves of `rlcli.plot`; equal curves give equal bytes."""
    write_output(path, draw_bytes(result, path.suffix.lower()))


def draw_bytes(result: Mapping[str, Any], suffix: str) -> bytes:
    """The curves of `rlcli.plot` as the bytes of a file with this suffix."""
    return make_bytes(suffix, lambda canvas: _fill(canvas.add_subplot(), result))


def save(
    path: Path, fill: Callable[[Any], None], *, size: tuple[float, float] = (8, 5)
) -> None:
    """Writes a figure that `fill` draws on; `size` is in inches."""
    write_output(path, make_bytes(path.suffix.lower(), fill, size=size))


def make_bytes(
    suffix: str, fill: Callable[[Any], None], *, size: tuple[float, float] = (8, 5)
) -> bytes:
    """The bytes of a figure that `fill` draws on; `size` is in inches."""
    styles = import_library("matplotlib.style", "plot")
    from matplotlib.figure import Figure

    style = {"svg.hashsalt": "rlcli", "svg.fonttype": "none", "pdf.fonttype": 42}
    # Not that of a `matplotlibrc` in the current folder, which can start LaTeX.
    with styles.context(["default", style]):
        figure = Figure(figsize=size, layout="constrained")
        fill(figure)
        data = io.BytesIO()
        figure.savefig(data, format=suffix[1:], dpi=150, metadata=_DATES[suffix])
    return data.getvalue()


def _fill(axes: Any, result: Mapping[str, Any]) -> None:
    from matplotlib.ticker import EngFormatter

    for curve in result["curves"]:
        seeds = "1 seed" if curve["seeds"] == 1 else f"{curve['seeds']} seeds"
        label = ", ".join([curve["label"], seeds, *describe_crossing(curve, result)])
        marker = "o" if len(curve["x"]) == 1 else None
        (line,) = axes.plot(
            curve["x"], curve["y"], marker=marker, label=quote_mathtext(label)
        )
        if curve["low"] is not None:
            axes.fill_between(
                curve["x"],
                curve["low"],
                curve["high"],
                color=line.get_color(),
                alpha=0.2,
                linewidth=0,
            )
    if result["threshold"] is not None:
        axes.axhline(result["threshold"], color="gray", linestyle="--", linewidth=1)
    center = {"mean": "mean", "iqm": "IQM"}[result["center"]]
    axes.set_xlabel(quote_mathtext(result["x"]))
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))  # 250k
    axes.set_ylabel(quote_mathtext(f"{result['y']} ({center} over seeds)"))
    axes.grid(alpha=0.3)
    axes.margins(x=0.01)
    axes.legend(fontsize="small")
