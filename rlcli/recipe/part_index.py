"""Part index: names and options of the built-in parts, without importing the parts.

Importing the parts imports JAX, which takes longer than a shell waits for a completion,
and JAX may not be imported before a recipe has chosen its threads. So `part_index.json`
lists them; `make generate` writes it again after parts have changed, and a test
compares the two.
"""

import functools
import inspect
import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from rlcli import registry
from rlcli.errors import RlcliError
from rlcli.recipe import documents, grammar

FILE = Path(__file__).with_name("part_index.json")
SECTIONS = "sections"  # the key of options that belong to no part
# The values of an option as text, the default first; or the options within it, with the
# key "" if it may also be a plain value.
Field = list[str] | dict[str, Any]
_PLAIN = re.compile(r"[\w.+%-]+")  # texts that no shell changes


@functools.cache
def load_index() -> Mapping[str, Any]:
    """Reads the index: `{kind: {name: {"options": …, "defaults": …}}, "sections": …}`.

    `options` maps the names of options to fields. `defaults` are the updater's for
    other sections.
    """
    return json.loads(FILE.read_text(encoding="utf-8"))


def part_names(kind: str) -> list[str]:
    """The names of the parts of a kind, with plug-ins; adapters end with a slash."""
    return [*dict.fromkeys([*load_index()[kind], *registry.entry_points(kind)])]


@functools.cache
def built_in_options(kind: str) -> frozenset[str]:
    """The options of all built-in parts of a kind."""
    return frozenset(
        key for part in load_index()[kind].values() for key in part["options"]
    )


def build_index() -> dict[str, Any]:
    """Builds the index from the registered parts. Imports JAX."""
    parts = {kind: dict(_index_kind(kind)) for kind in registry.KINDS}
    sections = {key: _fields(item) for key, item in grammar.FIELDS.items()}
    return {**parts, SECTIONS: sections}


def format_index(index: Mapping[str, Any]) -> str:
    """Formats an index as JSON with one part per line, for readable differences."""
    kinds = [
        f"{json.dumps(kind)}: {{\n"
        + ",\n".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in parts.items())
        + "\n}"
        for kind, parts in index.items()
    ]
    return "{\n" + ",\n".join(kinds) + "\n}\n"


def format_values(values: Iterable[Any]) -> list[str]:
    """Formats values as YAML, each once; leaves out those that shells would change."""
    texts = []
    for value in values:
        try:
            texts.append(documents.format_inline(grammar.to_plain(value)))
        except RlcliError:  # an object that no recipe can write
            continue
    return [text for text in dict.fromkeys(texts) if _PLAIN.fullmatch(text)]


def _index_kind(kind: str) -> Iterable[tuple[str, Any]]:
    for name in registry.names(kind):
        if registry.is_plug_in(kind, name):
            continue
        # The id of an adapter does not matter for its options.
        part = registry.find(kind, f"{name}ID" if name.endswith("/") else name)
        entry = {"options": _fields(part.factory)}
        kinds = (*registry.KINDS, "heads")
        defaults = {key: part.facts[key] for key in kinds if key in part.facts}
        yield name, entry | ({"defaults": defaults} if kind == "updater" else {})


def _fields(factory: Any) -> dict[str, Field]:
    from rlcli.recipe.option_schemas import annotation_schema  # here: imports NumPy

    return {
        key: _field(annotation_schema(parameter.annotation), parameter.default)
        for key, parameter in registry.options(factory).items()
    }


def _field(schema: Mapping[str, Any], default: Any = inspect.Parameter.empty) -> Field:
    """The field of an option with this JSON Schema."""
    forms = schema.get("anyOf", [schema])
    sections = [form for form in forms if "properties" in form]
    values = [] if default is inspect.Parameter.empty else [default]
    for form in forms:
        values += form.get("enum", [])
        values += {"boolean": [False, True], "null": [None]}.get(form.get("type"), [])
    if not sections:
        return format_values(values)
    plain = grammar.to_plain(default)
    defaults = plain if isinstance(plain, Mapping) else {}
    inner = {
        key: _field(item, defaults.get(key, inspect.Parameter.empty))
        for form in sections
        for key, item in form["properties"].items()
    }
    return inner if len(sections) == len(forms) else {"": format_values(values)} | inner
