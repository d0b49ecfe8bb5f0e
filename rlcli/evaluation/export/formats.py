"""Formats: the formats of `rlcli export`, and checks of a request. Imports no JAX."""

import keyword
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rlcli.errors import RlcliError, quote
from rlcli.evaluation.targets import default_output
from rlcli.registry.libraries import require_extra
from rlcli.registry.paths import enter
from rlcli.runs.files import check_output
from rlcli.runs.locate import locate_policy, zoo_name

ARRAYS_SUFFIX = ".npz"  # of the file beside a NumPy module
FORMATS: Mapping[str, tuple[str, str]] = {  # suffix, and the module that writes it
    "stablehlo": (".stablehlo.zip", "rlcli.evaluation.export.stablehlo"),
    "onnx": (".onnx", "rlcli.evaluation.export.onnx_model"),
    "numpy": (".py", "rlcli.evaluation.export.numpy_module"),
}


def check_export(
    run: str | Path,
    *,
    format: str,
    output: str | Path | None = None,
    best: bool = False,
) -> Path:
    """Returns the file to write; refuses, before JAX is imported, what cannot work."""
    if format not in FORMATS:
        names = ", ".join(f"`{name}`" for name in FORMATS)
        raise RlcliError(
            f"there is no export format {quote(format)}", f"choose one of {names}"
        )
    suffix, _ = FORMATS[format]
    if format != "numpy":
        require_extra(format, f"the export format `{format}`")
    if output is None:
        owner, policy = locate_policy(run, best=best)
        name = zoo_name(policy) or "policy"
        output = default_output(owner, policy, f"{name}{suffix}")
    file = enter(output)
    check_output(file, f"a file in the format `{format}`", [suffix])
    if format == "numpy":
        _check_module(file)
    return file


def _check_module(file: Path) -> None:
    """Refuses a NumPy module that cannot be imported, or whose arrays have no file."""
    name = file.stem
    if not name.isidentifier():
        reason = f"`{name}` is not a name of Python"
        hint = "use letters, digits and underscores only"
    elif keyword.iskeyword(name):
        reason, hint = f"`{name}` is a keyword of Python", "choose another name"
    elif name in sys.stdlib_module_names or name == "numpy":
        reason, hint = f"`{name}` is another module's name", "choose another name"
    else:
        arrays = file.with_suffix(ARRAYS_SUFFIX)
        return check_output(arrays, "a file of arrays", [ARRAYS_SUFFIX])
    raise RlcliError(f"`{file}` cannot be imported: {reason}", hint)


def load_hint(result: Mapping[str, Any]) -> str:
    """The Python that loads the files of an export; `result` is that of `export`."""
    file = result["files"][0]
    match result["format"]:
        case "numpy":
            name = Path(file).stem
            return f"import {name}; action, state = {name}.act(observation)"
        case "onnx":
            return f"policy = onnxruntime.InferenceSession({file!r})"
    return (
        f"policy = jax.export.deserialize(bytearray(zipfile.ZipFile({file!r}).read("
        f'"policy.stablehlo")))'
    )
