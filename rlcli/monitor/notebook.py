"""Notebook: the live panel in the output of a cell of a Jupyter notebook."""

import io
import sys
from typing import Any

from rich.console import Console, RenderableType

WIDTH, HEIGHT = 100, 40  # of the panel, in characters
_FORMAT = '<pre style="line-height: 1.2; white-space: pre">{code}</pre>'


def is_notebook() -> bool:
    """Whether this process is the kernel of a notebook, whose cells show HTML."""
    interactive = sys.modules.get("IPython")  # imported by every kernel
    shell = interactive.get_ipython() if interactive else None
    return type(shell).__name__ == "ZMQInteractiveShell"


class NotebookDisplay:
    """Shows a panel in a cell, and replaces it; used like `rich.live.Live`.

    Unlike Rich's display it needs no ipywidgets.
    """

    def __init__(self, renderable: RenderableType) -> None:
        self.transient = False  # whether the panel disappears at the end
        # Draws into memory, as a terminal that has all colours.
        self.console = Console(
            file=io.StringIO(),
            record=True,
            width=WIDTH,
            height=HEIGHT,
            force_terminal=True,
            force_jupyter=False,
            color_system="truecolor",
        )
        self._renderable = renderable
        self._handle: Any = None

    # IPython is imported here: only kernels have it.

    def start(self, refresh: bool = True) -> None:
        """Shows the panel in the cell that is running."""
        from IPython.display import display  # pyright: ignore

        self._handle = display(self._html(), display_id=True)

    def update(self, renderable: RenderableType, *, refresh: bool = True) -> None:
        """Replaces the panel."""
        self._renderable = renderable
        if self._handle is not None:
            self._handle.update(self._html())

    def stop(self) -> None:
        """Leaves the last panel in the cell, or removes it."""
        if self.transient and self._handle is not None:
            self._renderable = ""
            self._handle.update(self._html())
        self._handle = None

    def _html(self) -> Any:
        from IPython.display import HTML  # pyright: ignore

        self.console.print(self._renderable)
        self.console.file = io.StringIO()  # only what is recorded counts
        return HTML(self.console.export_html(inline_styles=True, code_format=_FORMAT))
