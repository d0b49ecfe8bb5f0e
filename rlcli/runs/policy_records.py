"""Policy records: what a policy file contains, without its arrays. Imports no JAX."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any, TypedDict

from rlcli.errors import RlcliError
from rlcli.recipe import documents
from rlcli.runs import checkpoint
from rlcli.runs.locate import complete_path, owning_run
from rlcli.runs.zoo import find_shipped_policy


class PolicyRecord(TypedDict):
    """A policy or checkpoint file."""

    file: str
    kind: str  # `policy` or `checkpoint`
    seeds: list[int]
    steps: list[int] | None  # of each seed when its policy was saved
    bytes: int
    sha256: str
    resolved: dict[str, Any]  # the recipe


def find_policy_file(path: str | Path) -> Path | None:
    """The policy or checkpoint file of this name, unless it belongs to a run."""
    file = find_shipped_policy(complete_path(path))
    return file if file.is_file() and owning_run(file) is None else None


def read_policy_record(file: Path) -> PolicyRecord:
    """Reads a policy or checkpoint file."""
    content = checkpoint.read(file)
    try:
        recipe = documents.load_document(content["recipe"], source=str(file)).data
        return PolicyRecord(
            file=str(file),
            kind=str(content["kind"]),
            seeds=[*map(int, content["seeds"])],
            steps=[*map(int, content["steps"])] if "steps" in content else None,
            bytes=file.stat().st_size,
            sha256=hashlib.sha256(file.read_bytes()).hexdigest(),
            resolved=dict(recipe),
        )
    except (KeyError, TypeError, ValueError) as error:
        message = f"`{file}` is neither a checkpoint nor a policy of rlcli"
        raise RlcliError(message) from error
