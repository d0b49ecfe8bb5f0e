"""Zoo: the trained policies that come with rlcli, `zoo/<recipe>`. Imports no JAX."""

import difflib
from pathlib import Path

from rlcli.errors import RlcliError
from rlcli.replays.datasets.names import shipped_folder
from rlcli.runs.run_folder import SUFFIX

FOLDER = "zoo"


def shipped_policies() -> dict[str, Path]:
    """The policy files that come with rlcli, by the name of their recipe."""
    files = sorted((shipped_folder() / FOLDER).glob(f"*{SUFFIX}"))
    return {file.name.removesuffix(SUFFIX): file for file in files}


def find_shipped_policy(path: str | Path) -> Path:
    """The file of a policy `zoo/<recipe>`; any other path, and any that exists, as is.

    Raises an `RlcliError` for a name that the zoo does not have.
    """
    path = Path(path)
    if path.parts[:1] != (FOLDER,) or len(path.parts) != 2 or path.exists():
        return path
    policies = shipped_policies()
    name = path.name.removesuffix(SUFFIX)
    if name in policies:
        return policies[name]
    close = difflib.get_close_matches(name, policies, n=1)
    names = ", ".join(policies)
    raise RlcliError(
        f"there is no policy `{path}` in the zoo",
        (f"did you mean `{FOLDER}/{close[0]}`? " if close else "")
        + f"it has policies of these recipes: {names}",
    )


def zoo_name(file: Path) -> str:
    """The name of the recipe of a shipped policy's file; "" for any other file."""
    name = file.name.removesuffix(SUFFIX)
    return name if shipped_policies().get(name) == file else ""
