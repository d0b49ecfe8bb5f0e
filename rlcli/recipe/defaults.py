"""Defaults: the parts that a mapping without a name changes, and their options."""

from collections.abc import Collection, Mapping
from typing import Any

from rlcli import registry
from rlcli.recipe.part_index import load_index

# The parts of sections that neither the recipe nor the updater sets.
_PARTS: Mapping[str, str] = {
    "network": "mlp",
    "policy": "random",
    "tracer": "n_step",
    "optimizer": "adam",
}
_MAX_CANDIDATES = 12  # names in a hint


def default_part(kind: str, facts: Mapping[str, Any]) -> Any:
    """The part that a section without a name changes, by the facts of the updater.

    None for the kinds whose part is always named.
    """
    return facts.get(kind, _PARTS.get(kind))


def default_head(facts: Mapping[str, Any], function: str) -> Mapping[str, Any]:
    """The head that a function of the updater has by default, by its facts."""
    return facts.get("heads", {}).get(function, facts.get("head", {}))


def list_candidates(kind: str, keys: Collection[str]) -> str:
    """The hint for a part without a name: built-in parts with these options."""
    parts = load_index()[kind]
    names = [name for name in parts if {*keys} <= parts[name]["options"].keys()]
    names = names or [*parts]
    if len(names) > _MAX_CANDIDATES:
        return f"`rlcli list {registry.KINDS[kind]}` lists the available ones"
    return "name one of " + ", ".join(f"`{name}`" for name in names)
