"""Figures: draws the pictures of the README and of the documentation.

    python -m benchmarks.figures

Trains the two runs of the tutorial in a temporary folder, and writes the panel of the
first run, as a terminal shows it at two thirds of the run, and the learning curves of
both. Takes about a minute, and requires the extra `plot`.
"""

from __future__ import annotations

import io
import re
import tempfile
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.terminal_theme import MONOKAI

import rlcli
from rlcli.monitor.lines import group_by_point
from rlcli.monitor.panel import RunPanel
from rlcli.runs.formatting import parse_time
from rlcli.runs.metrics import MetricsReader
from rlcli.runs.run_folder import Run

FOLDER = Path(__file__).parents[1] / "docs" / "images"
FONT_FACE = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)


def train_pair(runs: Path) -> Path:
    """Trains DQN with eight-step and with one-step returns; returns the first run."""
    recipe = runs / "one_step.yaml"
    recipe.write_text("extends: dqn_cartpole\ntracer: {n: 1}\n", encoding="utf-8")
    keywords: dict[str, Any] = {"seeds": 5, "quiet": True}
    first = rlcli.train("dqn_cartpole", run=runs / "eight_steps", **keywords)
    rlcli.train(recipe, run=runs / "one_step", **keywords)
    return first


def restore_panel(folder: Path, fraction: float) -> RunPanel:
    """The panel of a finished run, as it was when a fraction of its steps was done."""
    info = Run(folder).read_info()
    panel = RunPanel(
        info["total_steps"],
        info["seeds"],
        info["recipe"],
        start_time=parse_time(info["created"]),
    )
    panel.phase = "running"
    for point in group_by_point(MetricsReader(folder).read() or []):
        if point[0]["T"] > fraction * info["total_steps"]:
            break
        logged = [row for row in point if "evaluation" not in row]
        evaluation = [row for row in point if "evaluation" in row]
        panel.add(logged, point[0]["T"], evaluation)
        panel.end_time = max((row["time"] for row in logged), default=panel.end_time)
    return panel


def export_panel(panel: RunPanel, file: Path) -> None:
    """Writes a panel as an SVG that refers to no font of another site."""
    console = Console(
        file=io.StringIO(),
        width=100,
        height=24,
        record=True,
        force_terminal=True,
        color_system="truecolor",
    )
    console.print(panel.draw(console))
    svg = console.export_svg(title="rlcli train dqn_cartpole --seeds 5", theme=MONOKAI)
    file.write_text(FONT_FACE.sub("", svg), encoding="utf-8")


def main() -> None:
    """Writes all figures."""
    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        first = train_pair(Path(name))
        export_panel(restore_panel(first, 2 / 3), FOLDER / "panel.svg")
        runs = [first, first.with_name("one_step")]
        rlcli.plot(runs, threshold=475, output=FOLDER / "comparison.svg")
    for file in sorted(FOLDER.iterdir()):
        print(f"{file}  {file.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
