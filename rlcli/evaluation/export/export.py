"""Export: a trained policy as a file that runs without rlcli."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

from rlcli.evaluation.export.formats import FORMATS, check_export
from rlcli.evaluation.export.policy_function import check_policy, make_policy_function
from rlcli.evaluation.export.signature import describe_policy
from rlcli.evaluation.load import load
from rlcli.registry.paths import resolves
from rlcli.runs.files import write_output


@resolves("run", new=("output",))
def export(
    run: str | Path,
    *,
    format: str,
    output: str | Path | None = None,
    best: bool = False,
    seed: int | None = None,
    trust: bool = False,
) -> dict[str, Any]:
    """Writes the greedy policy of one seed of a run as a file that runs without rlcli.

    The file contains preprocessing, normalization and frame stack. It computes the
    actions of `rlcli.load(run).act`, except that a tie is broken by a fixed choice.

    Args:
        run: what `rlcli.load` takes.
        format: `stablehlo` for JAX, `onnx`, or `numpy`: a Python module with its arrays
            in an `.npz` file beside it.
        output: the file; by default `policy` with the suffix of the format, in the
            run's folder, or in the current one for a policy of the zoo.
        best: exports the policy of the seed's best evaluation instead of the latest.
        seed: a seed of the run; by default the first.
        trust: allows the file's recipe to import code from outside rlcli and plug-ins.

    Returns:
        `{"format", "files": […], "bytes"}` and the metadata in the file: `inputs`,
        `outputs`, `state`, …, as docs/formats.md describes.

    Raises:
        RlcliError: if the format cannot express the policy.
    """
    file = check_export(run, format=format, output=output, best=best)
    policy = load(run, best=best, seed=seed, trust=trust)
    check_policy(policy)
    function = make_policy_function(policy)
    metadata = describe_policy(policy, function)
    writer = importlib.import_module(FORMATS[format].module)
    contents = writer.write_files(function, metadata, file)
    for path, content in contents.items():
        write_output(path, content)
    return {
        "format": format,
        "files": [str(path) for path in contents],
        "bytes": sum(map(len, contents.values())),
        **metadata,
    }
