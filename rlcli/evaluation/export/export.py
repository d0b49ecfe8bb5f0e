"""Export: a trained policy as a file that runs without rlcli."""

import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rlcli.errors import RlcliError
from rlcli.evaluation.export.formats import FORMATS, check_export
from rlcli.evaluation.export.policy_function import (
    PolicyFunction,
    make_policy_function,
    next_name,
)
from rlcli.evaluation.load import load
from rlcli.evaluation.trained_policy import TrainedPolicy
from rlcli.registry.paths import resolves
from rlcli.runs import provenance
from rlcli.runs.files import write_output
from rlcli.spaces import collapse, to_plain


@resolves("run", new=("output",))
def export(
    run: str | Path,
    *,
    format: str,
    output: str | Path | None = None,
    best: bool = False,
    seed: int | None = None,
    trust: bool | None = None,
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
        trust: whether the file's recipe may import code from outside rlcli and
            plug-ins. By default that of your own runs may, see `rlcli.trust`.

    Returns:
        `{"format", "files": […], "bytes"}` and the metadata in the file: `inputs`,
        `outputs`, `state`, …, as docs/formats.md describes.

    Raises:
        RlcliError: if the format cannot express the policy.
    """
    file = check_export(run, format=format, output=output, best=best)
    policy = load(run, best=best, seed=seed, trust=trust)
    if policy.recipe["policy"]["name"] == "random":
        raise RlcliError(
            "policy `random` cannot be exported: all its actions are random",
            "export a run with another policy",
        )
    function = make_policy_function(policy)
    metadata = describe_policy(policy, function)
    writer = importlib.import_module(FORMATS[format][1])
    contents = writer.write_files(function, metadata, file)
    for path, content in contents.items():
        write_output(path, content)
    return {
        "format": format,
        "files": [str(path) for path in contents],
        "bytes": sum(map(len, contents.values())),
        **metadata,
    }


VERSION = 1
BATCH = "batch"


def describe_policy(policy: TrainedPolicy, function: PolicyFunction) -> dict[str, Any]:
    """The metadata that every exported file contains."""
    ports = (*function.observation, *function.action)
    spaces = {port.name: {"space": to_plain(port.space)} for port in ports}

    def describe(name: str, shape: Sequence[int], dtype: Any) -> dict[str, Any]:
        array = {"name": name, "shape": [BATCH, *shape], "dtype": np.dtype(dtype).name}
        return array | spaces.get(name, {})

    outputs = function.graph.outputs
    return {
        "format_version": VERSION,
        "rlcli": provenance.versions()["rlcli"],
        "environment": policy.recipe["environment"]["name"],
        "seed": policy.seed,
        "steps": policy.steps,
        "inputs": [
            describe(name, struct.shape, struct.dtype)
            for name, struct in function.inputs.items()
        ],
        "outputs": [
            describe(name, outputs[name].shape[1:], outputs[name].dtype)
            for name in function.output_names
        ],
        "state": [
            {"input": name, "output": next_name(name), "initial": collapse(leaf)}
            for name, leaf in function.state.items()
        ],
        "recipe": policy.recipe,
    }
