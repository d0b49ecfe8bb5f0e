"""`rlcli export`: writes a trained policy as a file that runs without rlcli."""

from pathlib import Path

from rlcli.cli import options, output
from rlcli.cli.options import BEST, JSON, POLICY_PATH, TRUST, option, seed_option


def command(
    path: Path = POLICY_PATH,
    format: str = option(
        "--format FORMAT",
        "`stablehlo` for JAX, `onnx`, or `numpy`: a Python file that needs NumPy only.",
        default=...,
        words=("stablehlo", "onnx", "numpy"),
    ),
    output_: Path | None = option(
        "--output FILE",
        "The file. Default: `policy.stablehlo.zip`, `policy.onnx` or "
        "`policy.py` in the run's folder. `numpy` writes its arrays beside it, to "
        "an `.npz` file of the same name.",
    ),
    best: bool = BEST,
    seed: int | None = seed_option("A seed of the run. Default: the first."),
    json: bool = JSON,
    trust: bool | None = TRUST,
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
