"""Key hints: the right section for a key that a recipe writes as a section."""

import re
from collections.abc import Mapping
from typing import Any

from rlcli import registry
from rlcli.errors import suggest, suggest_similar
from rlcli.quoting import quote_shell
from rlcli.recipe import documents, grammar
from rlcli.recipe.merging import is_option
from rlcli.registry.common_names import find_hint

# Kinds of parts whose options may be written as sections by mistake.
_KINDS = ("tracer", "replay", "network", "optimizer", "policy")


def find_owner(key: str, value: Any, *, is_setting: bool) -> str:
    """The hint for an unknown section: often an option, or its name elsewhere.

    `is_setting`: the key was written as `--set key=value`, not in a file.
    """
    hint = find_hint("key", key)
    if hint:
        return re.sub("`(.+?)`", _format_as_setting, hint) if is_setting else hint
    names = [name for name in grammar.SECTIONS if name not in ("extra", "vary")]
    similar = suggest_similar(key, names)
    sections = grammar.FIELDS.items()  # and their options
    owner = next((name for name, each in sections if key in registry.options(each)), "")
    if similar and not owner:
        return similar
    owners = (kind for kind in _KINDS if is_option(kind, key))
    owner = owner or next(owners, "")
    if not owner:
        return suggest(key, grammar.SECTIONS)
    if is_setting:
        return f"`{_format_setting([owner, key], value)}`"
    return f"`{key}` is an option of `{owner}`"


def _format_as_setting(code: re.Match[str]) -> str:
    """A recipe's YAML in backticks as the option `--set` that does the same."""
    data = documents.parse(code[1], "").data
    if not isinstance(data, Mapping):
        return code[0]
    ((section, value),) = data.items()
    keys = [section]
    if section in ("environment", "updater") and isinstance(value, Mapping):
        value = {key: item for key, item in value.items() if key != "name"}  # examples
    while isinstance(value, Mapping) and len(value) == 1:
        ((key, value),) = value.items()
        keys.append(key)
    return f"`{_format_setting(keys, value)}`"


def _format_setting(keys: list[str], value: Any) -> str:
    setting = f"{'.'.join(keys)}={documents.format_inline(value)}"
    return f"--set {quote_shell(setting)}"
