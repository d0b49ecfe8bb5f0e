"""Registry: finds parts, plug-ins, libraries and modules of the user by their names.

Belongs here: what turns a name in a recipe into code, and suggests names.
May import: `types` and `errors`.
"""

from rlcli.registry import parts
from rlcli.registry.parts import (
    CONTRACT,
    KINDS,
    RegisteredPart,
    entry_points,
    find,
    is_plug_in,
    names,
    options,
    parse_kind,
    register,
    register_class_adapter,
)
from rlcli.registry.plugins import call_factory, positional_parameters

__all__ = [
    "CONTRACT",
    "KINDS",
    "RegisteredPart",
    "call_factory",
    "entry_points",
    "find",
    "is_plug_in",
    "names",
    "options",
    "parse_kind",
    "parts",
    "positional_parameters",
    "register",
    "register_class_adapter",
]
