"""`rlcli export`: writes a trained policy as a file that runs without rlcli."""

from pathlib import Path

from rlcli.cli import options, output


def command(
    path: Path = options.POLICY_PATH,
    format: str = options.option(
        "--format FORMAT",
        "`stablehlo` for JAX, `onnx`, or `numpy`: a Python file that needs NumPy only.",
        default=...,
        words=("stablehlo", "onnx", "numpy"),
    ),
    output_: Path | None = options.option(
        "--output FILE",
        "The file. Default: `policy.stablehlo.zip`, `policy.onnx` or "
        "`policy.py` in the run's folder. `numpy` writes its arrays beside it, to "
        "an `.npz` file of the same name.",
    ),
    best: bool = options.BEST,
    seed: int | None = options.SEED_OF_RUN,
    json: bool = options.JSON,
    trust: bool | None = options.TRUST,
) -> None:
    """Export a seed's greedy policy to a file that needs no rlcli.

    The file contains preprocessing and normalization. Prints the files that it writes.
    """
    # Here, to keep `--help` fast.
    from rlcli.evaluation.export.formats import check_export, load_hint

    result = options.call_for_policy("export", check_export, locals())
    if json:
        output.print_json(result)
        return
    for file in result["files"]:
        output.print_data(file)
    output.print_message(f"next: {load_hint(result)}")
