"""Figure: PNG, SVG or PDF files drawn by matplotlib; learning curves."""

import io
import textwrap
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

from rlcli.errors import RlcliError
from rlcli.quoting import quote_mathtext
from rlcli.registry.libraries import import_library, install_command, missing_modules
from rlcli.results import overall_panels
from rlcli.results.chart import Data, describe_crossing, describe_curves, split_panels
from rlcli.runs.formatting import format_number_of
from rlcli.runs.metric_labels import label_metric

FORMATS = (".png", ".svg", ".pdf")
WIDTHS = {"column": 3.25, "page": 6.75}  # inches of a column of a paper, and of a page
# Distinguishable with any colour vision: (Okabe & Ito, 2008),
# https://jfly.uni-koeln.de/color/, without yellow, which is pale on white.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
LINE = 0.22  # inches of a line of a legend, or of a group
_COLUMNS = 3  # panels beside each other
_WIDTHS, _HEIGHTS = (8.0, 10.0, 12.0), (4.8, 3.8, 3.4)  # inches, by columns
_HANDLE, _LETTER = 0.5, 0.07  # inches of a legend: a line with its gaps, and a letter
_DATES = {".png": {}, ".svg": {"Date": None}, ".pdf": {"CreationDate": None}}


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


class FigureStyle(NamedTuple):
    """How a figure looks: on a screen, or in a paper, with small letters."""

    width: str | None = None  # one of `WIDTHS`; None: for a screen
    serif: bool = False

    @property
    def parameters(self) -> dict[str, Any]:
        """The parameters of matplotlib that are not its defaults."""
        fonts = {"font.family": "STIXGeneral", "mathtext.fontset": "stix"}
        small = {"font.size": 8, "axes.linewidth": 0.6, "lines.linewidth": 1.2}
        small |= {"xtick.major.width": 0.6, "ytick.major.width": 0.6}
        small |= {"savefig.dpi": 300, "legend.frameon": False}
        return {
            **{"svg.hashsalt": "rlcli", "svg.fonttype": "none", "pdf.fonttype": 42},
            **(fonts if self.serif else {}),
            **(small if self.width else {}),
        }


SCREEN = FigureStyle()


def draw_bytes(result: Data, suffix: str, style: FigureStyle = SCREEN) -> bytes:
    """The curves of `rlcli.plot` as the bytes of a file with this suffix."""
    panels = split_panels(result)
    count = len(panels) + len(overall_panels.list_panels(result.get("overall")))
    columns = min(count, 2 if style.width == "column" else _COLUMNS)
    rows = -(-count // columns)
    entries = _describe_entries(panels)
    width = WIDTHS.get(style.width or "", _WIDTHS[columns - 1])
    *_, lines = lay_out_legend([*entries.values()], width)
    height = _HEIGHTS[columns - 1] * rows + LINE * lines
    if style.width is not None:
        height = (0.35 + 0.65 * width / columns) * rows + 0.15 * lines + 0.2
    return make_bytes(
        suffix,
        lambda canvas: _fill(canvas, result, panels, entries, columns),
        size=(width, height),
        style=style,
    )


def make_bytes(
    suffix: str,
    fill: Callable[[Any], None],
    *,
    size: tuple[float, float] = (8, 5),
    style: FigureStyle = SCREEN,
) -> bytes:
    """The bytes of a figure that `fill` draws on; `size` is in inches."""
    styles = import_library("matplotlib.style", "plot")
    from matplotlib.figure import Figure

    cycler = import_library("cycler", "plot").cycler
    parameters = {"savefig.dpi": 150, **style.parameters}
    parameters["axes.prop_cycle"] = cycler(color=COLORS)
    # Not that of a `matplotlibrc` in the current folder, which can start LaTeX.
    with styles.context(["default", parameters]), warnings.catch_warnings():
        # The font lacks some characters, such as Chinese ones.
        warnings.filterwarnings("ignore", "Glyph", UserWarning)
        figure = Figure(figsize=size, layout="constrained")
        fill(figure)
        fit_layout(figure)
        data = io.BytesIO()
        figure.savefig(data, format=suffix[1:], metadata=_DATES[suffix])
    return data.getvalue()


def _fill(
    canvas: Any,
    result: Data,
    panels: Mapping[str | None, Data],
    entries: Mapping[int, str],
    columns: int,
) -> None:
    """A panel for each environment and summary, and a legend above all of them."""
    summaries = overall_panels.list_panels(result.get("overall"))
    titles = [*panels, *summaries]
    grid = canvas.add_gridspec(-(-len(titles) // columns), columns)
    every_axes = [canvas.add_subplot(grid[index]) for index in range(len(titles))]
    curves, others = every_axes[: len(panels)], every_axes[len(panels) :]
    styles = {label: choose_style(index) for index, label in entries.items()}
    for axes, panel in zip(curves, panels.values(), strict=True):
        _draw_panel(axes, panel)
    for axes, draw in zip(others, summaries.values(), strict=True):
        draw(axes, styles)
    for axes, title in zip(every_axes, titles, strict=True):
        axes.set_title(quote_mathtext(title or ""), fontsize="medium")
    for name in ("x", "y"):
        share_limits(curves, name, if_alike=True)
    canvas.supxlabel(describe_curves(result)[0], fontsize="x-small")
    add_legend(canvas, styles, loc="outside upper center")


def fit_layout(canvas: Any) -> None:
    """Places the axes, and shrinks texts and marks that have too little room there."""
    canvas.draw_without_rendering()
    for axes in canvas.axes:
        _fit_texts(axes, canvas.bbox.width)
    canvas.draw_without_rendering()  # with the room that smaller texts leave
    for axes in canvas.axes:
        if axes.yaxis_inverted():  # rows
            overall_panels.fit_marks(axes)


def _fit_texts(axes: Any, width: float) -> None:
    """Shrinks a title wider than its column, and a label longer than its axis."""
    title, label = axes.title, axes.yaxis.label
    columns = axes.get_subplotspec().get_gridspec().ncols
    center = (axes.bbox.x0 + axes.bbox.x1) / 2
    most = min(width / columns, 2 * center, 2 * (width - center))
    for text, size, room in (
        (title, title.get_window_extent().width, most),
        (label, label.get_window_extent().height, axes.bbox.height),
    ):
        if size > room:
            text.set_fontsize(text.get_fontsize() * room / size)


def _describe_entries(panels: Mapping[str | None, Data]) -> dict[int, str]:
    """The entries of the legend: label, seeds, and when the threshold is crossed.

    Of several panels the labels only, because the rest differs among them.
    """
    entries: dict[int, str] = {}
    for panel in panels.values():
        for curve in panel["curves"]:
            words = [curve["label"]]
            if len(panels) == 1:
                words.append(format_number_of(curve["seeds"], "seed"))
                words += describe_crossing(curve, panel)
            entries[curve["index"]] = ", ".join(words)
    return entries


def choose_style(index: int) -> dict[str, Any]:
    """The line of a group: dashed where its colour is that of another one."""
    dashes = ("-", "--", ":", "-.")[index // len(COLORS) % 4]
    return {"color": f"C{index}", "linestyle": dashes}


def _draw_panel(axes: Any, panel: Data) -> None:
    from matplotlib.ticker import EngFormatter

    for curve in panel["curves"]:
        style = choose_style(curve["index"])
        marker = "o" if len(curve["x"]) == 1 else None
        # Not clipped: a curve at the edge, such as the best return, has its full width.
        axes.plot(curve["x"], curve["y"], marker=marker, clip_on=False, **style)
        if curve["low"] is not None:
            bounds = curve["low"], curve["high"]
            band = {"color": style["color"], "alpha": 0.2, "linewidth": 0}
            axes.fill_between(curve["x"], *bounds, **band)
    if panel["threshold"] is not None:
        axes.axhline(panel["threshold"], color="gray", linestyle="--", linewidth=1)
    axes.set_xlabel(quote_mathtext(panel["x"]))
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))  # 250k
    axes.set_ylabel(quote_mathtext(label_metric(panel["y"])))
    axes.grid(alpha=0.3)
    axes.margins(x=0.01)


def share_limits(
    every_axes: Collection[Any], name: str, *, if_alike: bool = False
) -> None:
    """Gives axes equal limits of `x` or `y`.

    `if_alike`: only if each shows at least half of the common range. So panels of other
    units or lengths keep limits of their own.
    """
    limits = [getattr(axes, f"get_{name}lim")() for axes in every_axes]
    low, high = min(limit[0] for limit in limits), max(limit[1] for limit in limits)
    if not if_alike or all(2 * (end - start) >= high - low for start, end in limits):
        for axes in every_axes:
            getattr(axes, f"set_{name}lim")(low, high)


def add_legend(holder: Any, styles: overall_panels.Styles, **place: Any) -> None:
    """A legend of a figure or of axes, at a place where it covers no curve."""
    from matplotlib.lines import Line2D

    labels, columns, _ = lay_out_legend([*styles], holder.bbox.width / holder.dpi)
    holder.legend(
        [Line2D([], [], linewidth=2, **style) for style in styles.values()],
        [*map(quote_mathtext, labels)],
        ncols=columns,
        fontsize="small",
        **place,
    )


def lay_out_legend(labels: Sequence[str], width: float) -> tuple[list[str], int, int]:
    """The layout of a legend that is at most `width` inches wide.

    Returns the labels, of which long ones have several lines, the number of columns,
    and that of the lines of text below each other.
    """
    longest = int((width - _HANDLE) / _LETTER)
    wrapped = [textwrap.wrap(label, longest) or [label] for label in labels]
    letters = max(len(line) for lines in wrapped for line in lines)
    column = _HANDLE + _LETTER * letters
    columns = max(1, min(3, len(labels), int(width / column)))
    lines = -(-sum(map(len, wrapped)) // columns)
    return ["\n".join(each) for each in wrapped], columns, lines
