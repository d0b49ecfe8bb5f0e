"""`rlcli render`: renders episodes as a video."""

from pathlib import Path

from rlcli.cli import completion, options, output


def command(
    path: str = options.argument(
        "CHECKPOINT|RUN|RECIPE|ENVIRONMENT",
        "A policy or checkpoint file, or the folder of a run; or a recipe or "
        "an environment, which is rendered with a random policy.",
        complete=completion.complete_render_argument,
    ),
    best: bool = options.BEST,
    output_: Path | None = options.option(
        "--output FILE",
        "A `.gif`, `.mp4` or `.png` file (a png is a film strip). Default: "
        "`render.gif` in the run's folder.",
    ),
    episodes: int = options.option(
        "--episodes N", "Number of episodes.", default=1, min=1
    ),
    seed: int = options.SEED,
    fps: float | None = options.option(
        "--fps N", "Frames per second. Default: 50.", min=1, max=100
    ),
    size: str | None = options.option("--size WxH", "Width and height in pixels."),
    overlay: bool = options.flag(
        "--overlay", "Write step, return and action below each frame."
    ),
    trust: bool | None = options.TRUST,
) -> None:
    """Render episodes as a video; works without a display."""
    pixels = options.parse_size(size)
    from rlcli.evaluation.targets import check_rendering  # to keep `--help` fast

    file = options.call_for_policy("render", check_rendering, locals(), size=pixels)
    output.print_data(file)
