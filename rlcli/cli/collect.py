"""`rlcli collect`: writes the steps of a trained policy as a data set."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import rlcli
from rlcli.cli import options, output
from rlcli.cli.options import Best, Json, PolicyPath, Seed, Trust
from rlcli.runs import thread_layout


def command(
    path: PolicyPath,
    episodes: Annotated[
        int | None,
        typer.Option(
            "--episodes",
            metavar="N",
            min=1,
            help="Whole episodes, of all seeds together. Default: 100.",
            show_default=False,
        ),
    ] = None,
    steps: Annotated[
        int | None,
        typer.Option(
            "--steps",
            metavar="N",
            min=1,
            help="Steps instead of episodes; the last episode is truncated.",
            show_default=False,
        ),
    ] = None,
    output_: Annotated[
        Path | None,
        typer.Option(
            "--output",
            metavar="FILE",
            help="The file, `.npz`. Default: `dataset.npz` in the run's folder, for a "
            "policy of the zoo in the current one.",
            show_default=False,
        ),
    ] = None,
    best: Best = False,
    explore: Annotated[
        bool,
        typer.Option("--explore", help="Explore as in training, instead of greedily."),
    ] = False,
    random: Annotated[
        bool, typer.Option("--random", help="Act at random, instead of greedily.")
    ] = False,
    seed: Seed = 0,
    json: Json = False,
    trust: Trust = False,
) -> None:
    """Write the steps of a trained policy as a data set.

    A recipe with this file learns from it offline. The policies of all seeds contribute
    equally. Prints the file.
    """
    from rlcli.evaluation.collection import check_collection  # to keep `--help` fast
    from rlcli.recipe.documents import format_inline

    run_path = options.choose_run(path)
    check_collection(
        run_path,
        output=output_,
        best=best,
        episodes=episodes,
        steps=steps,
        modes={"explore": explore, "random": random},
    )
    thread_layout.apply_for_policy(run_path)
    result = rlcli.collect(
        run_path,
        output=output_,
        episodes=episodes,
        steps=steps,
        best=best,
        explore=explore,
        random=random,
        seed=seed,
        trust=trust,
    )
    if json:
        output.print_data(output.as_json(result))
        return
    output.print_data(result["file"])
    returns = result["return"]
    output.print_message(
        f"{result['steps']:,} steps of {result['episodes']:,} episodes on "
        f"{result['environment']}: return {returns['mean']:.2f} ± {returns['std']:.2f}"
    )
    section = format_inline({"name": "dataset", "path": result["file"]})
    output.print_message(f"next: `replay: {section}`")
