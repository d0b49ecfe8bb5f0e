"""`rlcli render`: renders episodes as a video."""

from pathlib import Path

from rlcli.cli import completion, options, output
from rlcli.cli.options import BEST, SEED, TRUST, argument, flag, option


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
    from rlcli.evaluation.targets import check_rendering  # to keep `--help` fast

    file = options.call_for_policy("render", check_rendering, locals(), size=pixels)
    output.print_data(file)
