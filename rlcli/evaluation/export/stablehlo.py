"""StableHLO: a policy as a program for `jax.export.deserialize`, in a zip file."""

import io
import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
from jax import export

from rlcli.evaluation.export.graph import add_batch
from rlcli.evaluation.export.policy_function import PolicyFunction

PROGRAM, METADATA = "policy.stablehlo", "metadata.json"
PLATFORMS = ("cpu", "cuda", "tpu")
# Of the files in the archive, so that equal policies have equal bytes.
_TIME = (1980, 1, 1, 0, 0, 0)


def write_files(
    function: PolicyFunction, metadata: Mapping[str, Any], file: Path
) -> dict[Path, bytes]:
    """The contents of the archive."""
    exported = export.export(jax.jit(function.compute), platforms=PLATFORMS)(
        add_batch(function.inputs)
    )
    entries = {**metadata, "platforms": list(exported.platforms)}
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as files:
        for name, content in (
            (METADATA, json.dumps(entries, indent=1, allow_nan=False).encode()),
            (PROGRAM, bytes(exported.serialize())),
        ):
            information = zipfile.ZipInfo(name, _TIME)
            information.compress_type = zipfile.ZIP_DEFLATED
            files.writestr(information, content)
    return {file: archive.getvalue()}
