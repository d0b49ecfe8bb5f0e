"""Snapshot content: the structure of checkpoint and policy files, and of `init`.

A file may come from elsewhere: its fields are read here only, and checked. Imports no
JAX.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from rlcli.errors import RlcliError
from rlcli.runs import checkpoint, predicates
from rlcli.runs.frozen import load_frozen_seeds
from rlcli.xla.numeric_limits import is_float32

CHECKPOINT, POLICY, LEARNED = "checkpoint", "policy", "learned"
FROZEN = "frozen"  # only in files of runs with frozen seeds
HOOKS = "hooks"  # their states
NUMBERS = "numbers"  # that hooks have set, by their places
_MAX_STEP = 2**53  # integers up to this are exact in a float64
_MAX_SEED = 2**32  # seeds are less than this


def _is_circumstances(value: Any) -> bool:
    """Whether a value records the layout and the versions, as text."""
    return (
        predicates.mapping_of(predicates.is_mapping)(value)
        and value.keys() == {"layout", "versions"}
        and all(isinstance(each, str | None) for each in value["versions"].values())
    )


_is_counts = predicates.list_of(lambda n: type(n) is int and 0 <= n <= _MAX_STEP)
_is_returns = predicates.list_of(predicates.of_types(float))
_is_tree = predicates.mapping_of(lambda leaf: isinstance(leaf, np.ndarray))
_Fields = dict[str, predicates.Predicate]
_START: _Fields = {
    "kind": predicates.is_text,
    "recipe": predicates.is_text,
    "seeds": _is_counts,
}
_FIELDS: Mapping[Any, _Fields] = {  # by the kind of a file
    CHECKPOINT: _START
    | {"circumstances": _is_circumstances, "progress": _is_tree, "metrics": _is_tree},
    POLICY: _START
    | {"steps": _is_counts, "episodes": _is_counts, "returns": _is_returns}
    | {"acting": _is_tree},
    LEARNED: _START | {"steps": _is_counts, "learned": _is_tree},
}
_OPTIONAL: _Fields = {
    FROZEN: predicates.is_mapping,
    HOOKS: _is_tree,
    NUMBERS: predicates.mapping_of(lambda n: type(n) is float and is_float32(n)),
}


def read_content(path: Path, *kinds: str) -> dict[str, Any]:
    """Reads a file of one of these kinds, by default of any; checks its structure."""
    data = checkpoint.read(path)
    kind = data.get("kind") if isinstance(data, dict) else None
    try:
        if not _is_well_formed(data, _FIELDS[kind]):
            raise ValueError("a field is missing, or of another type")
        data[FROZEN] = load_frozen_seeds(data.get(FROZEN, {}), data["seeds"])
    except (KeyError, TypeError, ValueError) as error:
        message = f"`{path}` is neither a checkpoint nor a policy of rlcli"
        raise RlcliError(message) from error
    if kinds and kind not in kinds:
        raise RlcliError(f"`{path}` is a {kind} file: expected a {kinds[0]}")
    return data


def _is_well_formed(data: Mapping[str, Any], fields: _Fields) -> bool:
    seeds, returns = data["seeds"], data.get("returns", [])
    return (
        data.keys() - _OPTIONAL.keys() == fields.keys()
        and all((fields | _OPTIONAL)[name](value) for name, value in data.items())
        and 0 < len(seeds) == len(data.get("steps", seeds))
        and len(seeds) == len(data.get("episodes", seeds))
        and max(seeds) < _MAX_SEED
        and len(returns) in (0, len(seeds))
    )
