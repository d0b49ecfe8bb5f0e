"""Common names: hints for the names that other libraries and papers use.

Belongs here: tables of names, and their lookup.
May import: errors.

`HINTS` has, for each kind of name, groups of names with one hint. Names are compared
without case, spaces and punctuation: `TD3+BC` is `td3_bc`. Each recipe's YAML in a hint
is valid, and each command works: tests run them.
"""

import re
from collections.abc import Iterable

from rlcli.errors import suggest
from rlcli.registry.common_names.environment_names import suggest_environment
from rlcli.registry.common_names.hints import HINTS as HINTS


def normalize_name(name: str) -> str:
    """A name without case, spaces and punctuation."""
    return re.sub(r"[\W_]+", "", name.lower())


def find_hint(kind: str, name: str) -> str:
    """The hint for a common name that rlcli does not have; "" if there is none."""
    wanted = normalize_name(name)
    for names, hint in HINTS.get(kind, {}).items():
        if wanted in map(normalize_name, names.split()):
            return hint
    return ""


def suggest_name(kind: str, name: str, known_names: Iterable[str]) -> str:
    """The hint for an unknown name: what it is in rlcli, else the most similar name."""
    if kind == "environment":
        return suggest_environment(name, known_names)
    return find_hint(kind, name) or suggest(name, known_names)
