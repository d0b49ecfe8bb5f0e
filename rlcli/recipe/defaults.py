"""Defaults: the parts that a mapping without a name changes, and their options."""

import contextlib
import functools
from collections.abc import Callable, Collection, Mapping
from typing import Any

from rlcli import registry
from rlcli.errors import RlcliError
from rlcli.recipe.merging import INNER, as_mapping

NETWORK_KEYS = (*INNER["network"], "preprocess")  # of every network
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


def option_checker(kind: str, part: Any) -> Callable[[str], bool]:
    """A function: whether a key is an option of the part, or of a built-in one."""

    @functools.cache
    def keys() -> set[str]:
        result = {*NETWORK_KEYS} if kind == "network" else set()
        data = as_mapping(part)
        own = data.get("name") if isinstance(data, Mapping) else None
        for name in [*_built_in(kind), own]:
            # Reading the part reports the error. Import paths may not be trusted.
            with contextlib.suppress(RlcliError):
                if isinstance(name, str) and name and ":" not in name:
                    result |= _options(kind, name)
        return result

    return lambda key: key in keys()


def _built_in(kind: str) -> list[str]:
    """The names of the parts of a kind, without those of plug-ins."""
    return [
        name for name in registry.names(kind) if not registry.is_plug_in(kind, name)
    ]


def _options(kind: str, name: str) -> set[str]:
    return {*registry.options(registry.find(kind, name).factory)}


def list_candidates(kind: str, keys: Collection[str]) -> str:
    """The hint for a part without a name: built-in parts with these options."""
    names = _built_in(kind)
    names = [name for name in names if {*keys} <= _options(kind, name)] or names
    if len(names) > _MAX_CANDIDATES:
        return f"`rlcli list {registry.KINDS[kind]}` lists the available ones"
    return "name one of " + ", ".join(f"`{name}`" for name in names)
