"""Names: how recipes name data sets, and where shipped files are. Imports no JAX."""

from pathlib import Path
from typing import Annotated

from rlcli.registry.paths import shipped_path

# Options that name a data set. A file is relative to the recipe's file. Recipes of runs
# add the SHA-256 of the content, as in `expert.npz#sha256=…`.
DataFile = Annotated[str, "file"]
MinariId = Annotated[str, "minari"]
HASH = "#sha256="
POLICY_SUFFIX = ".pkl.lz4"  # of checkpoints and trained policies


def shipped_folder() -> Path:
    """The folder of the recipes that come with rlcli.

    Their data sets are in its `data`, trained policies in its `zoo`.
    """
    return shipped_path("recipes")
