"""Options: those that several verbs share, as Typer reads them from annotations."""

from __future__ import annotations

from typing import Annotated

import typer

from rlcli.runs import durations

MAX_SEED = 2**31 - 1  # the greatest seed that a recipe may have, too


def parse_max_time(text: str | None) -> float | None:
    """What `--max-time` says, in seconds; None where it is not given."""
    if text is None:
        return None
    try:
        return durations.parse_duration(text)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--max-time") from error


def parse_size(text: str | None) -> tuple[int, int] | None:
    """What `--size` says, as (width, height); None where it is not given."""
    if text is None:
        return None
    width, _, height = text.lower().partition("x")
    sides = [side for side in (width, height) if side.isascii() and side.isdecimal()]
    if len(sides) < 2 or not all(1 <= int(side) <= 10_000 for side in sides):
        raise typer.BadParameter(
            f"expected width and height such as 600x400, got {text!r}",
            param_hint="--size",
        )
    return int(width), int(height)


Set = Annotated[
    list[str],
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Set an option of the recipe: `train.steps=1000`. May be repeated.",
    ),
]
MaxTime = Annotated[
    str | None,
    typer.Option(
        "--max-time",
        metavar="TIME",
        help="Stop in time, with a checkpoint: `90s`, `10m`, `3h50m` after the start.",
    ),
]
Quiet = Annotated[
    bool, typer.Option("--quiet", help="Say nothing on stderr but what went wrong.")
]
Trust = Annotated[
    bool,
    typer.Option("--trust", help="Import the code that a checkpoint's recipe names."),
]
Best = Annotated[
    bool,
    typer.Option(
        "--best", help="Take each seed's best evaluated policy, not its last."
    ),
]
Seed = Annotated[
    int,
    typer.Option(
        "--seed", metavar="N", min=0, max=MAX_SEED, help="The seed of what is played."
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
