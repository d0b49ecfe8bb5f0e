"""`rlcli render`: renders episodes as a video."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import rlcli
from rlcli.cli import completion, options, output
from rlcli.cli.options import Best, Seed, Trust
from rlcli.runs import thread_layout


def command(
    path: Annotated[
        str,
        typer.Argument(
            metavar="CHECKPOINT|RUN|RECIPE|ENVIRONMENT",
            autocompletion=completion.complete_render_argument,
            help="A policy or checkpoint file, or the folder of a run; or a recipe or "
            "an environment, which is rendered with a random policy.",
            show_default=False,
        ),
    ],
    best: Best = False,
    output_: Annotated[
        Path | None,
        typer.Option(
            "--output",
            metavar="FILE",
            help="A `.gif`, `.mp4` or `.png` file (a png is a film strip). Default: "
            "`render.gif` in the run's folder.",
        ),
    ] = None,
    episodes: Annotated[
        int, typer.Option("--episodes", metavar="N", min=1, help="Number of episodes.")
    ] = 1,
    seed: Seed = 0,
    fps: Annotated[
        float | None,
        typer.Option(
            "--fps",
            metavar="N",
            min=1,
            max=100,
            help="Frames per second. Default: 50.",
        ),
    ] = None,
    size: Annotated[
        str | None,
        typer.Option("--size", metavar="WxH", help="Width and height in pixels."),
    ] = None,
    overlay: Annotated[
        bool,
        typer.Option(
            "--overlay", help="Write step, return and action below each frame."
        ),
    ] = False,
    trust: Trust = False,
) -> None:
    """Render episodes as a video; works without a display."""
    pixels = options.parse_size(size)
    from rlcli.evaluation import targets  # here, to keep `--help` fast

    run_path = options.choose_run(path)
    targets.check_rendering(run_path, best=best, output=output_)
    thread_layout.apply_for_policy(run_path)
    file = rlcli.render(
        run_path,
        best=best,
        output=output_,
        episodes=episodes,
        seed=seed,
        fps=fps,
        size=pixels,
        overlay=overlay,
        trust=trust,
    )
    output.print_data(file)
