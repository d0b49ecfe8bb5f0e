"""`rlcli render`: renders episodes as a video."""

from pathlib import Path

import rlcli
from rlcli.cli import completion, options, output
from rlcli.cli.options import BEST, SEED, TRUST, argument, flag, option
from rlcli.runs import thread_layout


def command(
    path: str = argument(
        "CHECKPOINT|RUN|RECIPE|ENVIRONMENT",
        "A policy or checkpoint file, or the folder of a run; or a recipe or "
        "an environment, which is rendered with a random policy.",
        complete=completion.complete_render_argument,
    ),
    best: bool = BEST,
    output_: Path | None = option(
        "--output FILE",
        "A `.gif`, `.mp4` or `.png` file (a png is a film strip). Default: "
        "`render.gif` in the run's folder.",
    ),
    episodes: int = option("--episodes N", "Number of episodes.", default=1, min=1),
    seed: int = SEED,
    fps: float | None = option(
        "--fps N", "Frames per second. Default: 50.", min=1, max=100
    ),
    size: str | None = option("--size WxH", "Width and height in pixels."),
    overlay: bool = flag(
        "--overlay", "Write step, return and action below each frame."
    ),
    trust: bool | None = TRUST,
) -> None:
    """Render episodes as a video; works without a display."""
    pixels = options.parse_size(size)
    from rlcli.evaluation import targets  # here, to keep `--help` fast

    run_path = options.choose_run(path)
    targets.check_rendering(run_path, best=best, output=output_)
    thread_layout.apply_for_policy(run_path)
    file = options.call(rlcli.render, locals(), path=run_path, size=pixels)
    output.print_data(file)
