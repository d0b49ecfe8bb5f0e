"""`rlcli export`: writes a trained policy as a file that runs without rlcli."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import rlcli
from rlcli.cli import completion, options, output
from rlcli.cli.options import MAX_SEED, Best, Json, PolicyPath, Trust
from rlcli.runs import thread_layout


def command(
    path: PolicyPath,
    format: Annotated[
        str,
        typer.Option(
            "--format",
            metavar="FORMAT",
            autocompletion=completion.complete_word("stablehlo", "onnx", "numpy"),
            help="`stablehlo` for JAX, `onnx`, or `numpy`: a Python file that needs "
            "NumPy only.",
            show_default=False,
        ),
    ],
    output_: Annotated[
        Path | None,
        typer.Option(
            "--output",
            metavar="FILE",
            help="The file. Default: `policy.stablehlo.zip`, `policy.onnx` or "
            "`policy.py` in the run's folder. `numpy` writes its arrays beside it, to "
            "an `.npz` file of the same name.",
        ),
    ] = None,
    best: Best = False,
    seed: Annotated[
        int | None,
        typer.Option(
            "--seed",
            metavar="N",
            min=0,
            max=MAX_SEED,
            help="A seed of the run. Default: the first.",
            show_default=False,
        ),
    ] = None,
    json: Json = False,
    trust: Trust = False,
) -> None:
    """Export a seed's greedy policy to a file that needs no rlcli.

    The file contains preprocessing and normalization. Prints the files that it writes.
    """
    from rlcli.evaluation.export.formats import (  # to keep `--help` fast
        check_export,
        load_hint,
    )

    run_path = options.choose_run(path)
    check_export(run_path, format=format, output=output_, best=best)
    thread_layout.apply_for_policy(run_path)
    result = rlcli.export(
        run_path, format=format, output=output_, best=best, seed=seed, trust=trust
    )
    if json:
        output.print_data(output.as_json(result))
        return
    for file in result["files"]:
        output.print_data(file)
    output.print_message(f"next: {load_hint(result)}")
