"""Options shared by several commands, as annotations for Typer."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rlcli.cli import completion, output
from rlcli.quoting import quote_shell
from rlcli.runs import durations

MAX_SEED = 2**31 - 1  # also the largest seed of a recipe


def parse_max_time(text: str | None) -> float | None:
    """Parses `--max-time` to seconds; None if it is not given."""
    if text is None:
        return None
    try:
        return durations.parse_duration(text)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--max-time") from error


def parse_deadline(text: str | None) -> durations.Deadline | None:
    """The end of `--max-time`, counted from the start of the process."""
    return durations.deadline_of(parse_max_time(text), durations.START_TIME)


def choose_run(
    path: str | Path, *, quiet: bool = False, keep_variants: bool = False
) -> str | Path:
    """The path, or one of several runs in it, which a message names.

    `keep_variants`: the path itself if it is the folder of runs with varied options.
    """
    from rlcli.runs.locate import choose_among  # here, to keep `--help` fast
    from rlcli.runs.variants import find_variants

    if keep_variants and find_variants(path):
        return path
    choice = choose_among(Path(path))
    if choice is None or choice.count < 2:
        return path
    if not quiet:
        output.print_message(
            f"using `{choice.run}`, {choice.reason} of {choice.count} runs; to use "
            f"another, pass its folder: `rlcli runs {quote_shell(path)}` lists "
            "all runs"
        )
    return choice.run


def parse_size(text: str | None) -> tuple[int, int] | None:
    """Parses `--size` to (width, height); None if it is not given."""
    if text is None:
        return None
    width, _, height = text.lower().partition("x")
    sides = [side for side in (width, height) if side.isascii() and side.isdecimal()]
    if len(sides) < 2 or not all(1 <= int(side) <= 10_000 for side in sides):
        raise typer.BadParameter(
            f"expected a width and a height such as 600x400, got {text!r}",
            param_hint="--size",
        )
    return int(width), int(height)


Set = Annotated[
    list[str],
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        autocompletion=completion.complete_setting,
        help="Override an option of the recipe: `train.steps=1000`. Can be repeated.",
    ),
]
Seeds = Annotated[
    int | None,
    typer.Option(
        "--seeds",
        min=1,
        metavar="N",
        help="Train N consecutive seeds in one program.",
    ),
]
Jobs = Annotated[
    int | None,
    typer.Option(
        "--jobs",
        min=1,
        metavar="N",
        help="Train in at most N processes at once. Default: one per core.",
        show_default=False,
    ),
]
Smoke = Annotated[
    bool, typer.Option("--smoke", help="Test the whole pipeline with a tiny budget.")
]
SweepRun = Annotated[
    Path | None,
    typer.Option("--run", metavar="DIR", help="Create the sweep in exactly DIR."),
]
SweepName = Annotated[
    str | None,
    typer.Option("--name", metavar="NAME", help="Name the folder of the sweep."),
]
MaxTime = Annotated[
    str | None,
    typer.Option(
        "--max-time",
        metavar="TIME",
        help="Save a checkpoint and stop after this time: `90s`, `10m`, `3h50m`.",
    ),
]
Quiet = Annotated[
    bool, typer.Option("--quiet", help="Print only warnings and errors to stderr.")
]
Trust = Annotated[
    bool,
    typer.Option(
        "--trust", help="Allow the checkpoint's recipe to import code outside rlcli."
    ),
]
TrustRecipe = Annotated[
    bool,
    typer.Option(
        "--trust/--no-trust",
        help="Whether the recipe may import code outside rlcli, and have trackers that "
        "contact a host. `--no-trust`: for a recipe from elsewhere.",
    ),
]
Coordinator = Annotated[
    str | None,
    typer.Option(
        "--coordinator",
        metavar="HOST:PORT",
        help="Train one agent in several processes: the address of process 0, or "
        "`auto` to read it from SLURM, Open MPI or torchrun.",
    ),
]
Process = Annotated[
    str | None,
    typer.Option(
        "--process",
        metavar="I/N",
        help="With `--coordinator`: this is process I of N, numbered from 0.",
    ),
]
RunFolder = Annotated[
    Path,
    typer.Argument(
        metavar="RUN",
        autocompletion=completion.complete_run,
        help="The folder of a run.",
        show_default=False,
    ),
]
PolicyPath = Annotated[
    Path,
    typer.Argument(
        metavar="CHECKPOINT|RUN",
        autocompletion=completion.complete_policy,
        help="A policy or checkpoint file, the folder of a run, or a policy of the "
        "zoo, such as `zoo/ppo_cartpole`.",
        show_default=False,
    ),
]
Best = Annotated[
    bool,
    typer.Option(
        "--best",
        help="Use the policy of each seed's best evaluation, not the latest one.",
    ),
]
Seed = Annotated[
    int,
    typer.Option(
        "--seed", metavar="N", min=0, max=MAX_SEED, help="Random seed of the episodes."
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Runs = Annotated[
    list[str],
    typer.Argument(
        metavar="RUN...",
        autocompletion=completion.complete_run,
        help="Run folders, or folders that contain runs.",
        show_default=False,
    ),
]
Group = Annotated[
    str,
    typer.Option(
        "--group",
        metavar="KEY",
        help="Group runs by `recipe` (with all its options), by `name`, or by an "
        "option such as `updater.name`. `run`: one group per run.",
    ),
]
Metric = Annotated[
    str | None,
    typer.Option(
        "--y",
        metavar="METRIC",
        help="A metric, such as `loss`. Default: `evaluation.mean`, or without "
        "evaluations `avg_G`.",
        show_default=False,
    ),
]
Center = Annotated[
    str,
    typer.Option(
        "--center",
        metavar="NAME",
        autocompletion=completion.complete_word("mean", "iqm"),
        help="Aggregate seeds by `mean` or `iqm` (interquartile mean).",
    ),
]
Threshold = Annotated[
    float | None,
    typer.Option(
        "--threshold",
        metavar="VALUE",
        help="Report when a curve or a seed first reaches this value, such as 475.",
        show_default=False,
    ),
]
