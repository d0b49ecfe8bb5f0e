"""Schema: the JSON Schema of recipes, for editors.

Generated from the grammar and from the signatures of all registered parts, with those
of installed plug-ins.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rlcli import registry
from rlcli.errors import RlcliError
from rlcli.recipe import extending, grammar
from rlcli.recipe.merging import SHARED
from rlcli.recipe.option_schemas import (
    Schema,
    annotation_schema,
    any_of,
    each_schema,
    options_schemas,
    section_schema,
    shared_definitions,
)

FILE = "rlcli.schema.json"
_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_IMPORT_PATH = r"^[\w.]+:[\w.]+$"
_NULL: Schema = {"type": "null"}
# Kinds that have no default part: those in lists, and the intrinsic reward.
_ALWAYS_NAMED = ("wrapper", "preprocess", "tracker", "hook", "intrinsic_reward")


def schema(*, output: str | Path | None = None) -> dict[str, Any]:
    """Returns the JSON Schema (draft 2020-12) of recipes, for editors.

    It contains every part that is installed, with its options.

    Args:
        output: a file that is written as well.
    """
    builder = _Builder()
    named = {"anyOf": [{"type": "string"}, {"required": ["name"]}]}
    complete = {
        "required": ["environment", "updater"],
        "properties": {"environment": named, "updater": named},
    }
    result = {
        "$schema": _DIALECT,
        "title": "rlcli recipe",
        "type": "object",
        "properties": builder.sections(),
        "anyOf": [{"required": [extending.KEY]}, complete],
        "additionalProperties": False,
        "$defs": {**shared_definitions(), **builder.definitions},
    }
    if output is None:
        return result
    try:
        text = json.dumps(result, ensure_ascii=False)
        Path(output).write_text(f"{text}\n", encoding="utf-8")
    except OSError as error:
        message = f"`{output}` cannot be written: {error.strerror}"
        raise RlcliError(message, "choose another file with `--output`") from error
    return result


class _Builder:
    """Builds the schemas of parts, each once, as definitions."""

    def __init__(self) -> None:
        self.definitions: dict[str, Schema] = {}

    def sections(self) -> dict[str, Schema]:
        """The schema of each section of a recipe."""
        vector = options_schemas(registry.options(grammar.Vector))
        vector["wrappers"] = {"type": "array", "items": self.part("wrapper")}
        names = {"type": "array", "items": {"type": "string"}}
        init = {**section_schema(grammar.Init), "required": ["from"]}
        return {
            extending.KEY: {
                "description": "recipes that this one builds on: names or paths",
                "anyOf": [{"type": "string"}, names],
            },
            "environment": self.part("environment", vector),
            "network": _or_null(self.network()),
            "policy": _or_null(self.part("policy")),
            "tracer": _or_null(self.part("tracer")),
            "replay": _or_null(self.part("replay")),
            "updater": self.part("updater"),
            "intrinsic_reward": _or_null(self.part("intrinsic_reward")),
            "normalize": _or_null(section_schema(grammar.Normalize)),
            "optimizer": _or_null(_single_or_many(self.part("optimizer"))),
            "freeze": _or_null(annotation_schema(grammar.Freeze)),
            "init": any_of([{"type": "string"}, init, _NULL]),
            "train": _or_null(self.train()),
            "extra": {"type": ["object", "null"], "description": "your own data"},
            "vary": {
                "description": "runs with different options: a grid of lists, or a "
                "list of combinations",
                "anyOf": [
                    {"type": ["object"], "additionalProperties": {"type": "array"}},
                    {"type": "array", "items": {"type": "object"}},
                    {"type": "null"},
                ],
            },
        }

    def train(self) -> Schema:
        """The section `train`, whose trackers and hooks are parts."""
        train = section_schema(grammar.Train)
        train["properties"]["trackers"] |= {"items": self.part("tracker")}
        train["properties"]["hooks"] |= {"items": self.part("hook")}
        return train

    def network(self) -> Schema:
        """One network, one for each function, or heads on a shared network."""
        common = {
            "head": _or_null(self.part("head")),
            "memory": _or_null(self.part("memory")),
            "preprocess": {"type": ["array", "null"], "items": self.part("preprocess")},
        }
        network = self.part("network", common)
        shared = {
            "type": "object",
            "properties": {SHARED: network},
            "required": [SHARED],
            "additionalProperties": common["head"],
        }
        return any_of([_single_or_many(network), shared])

    def part(self, kind: str, common: Mapping[str, Schema] | None = None) -> Schema:
        """A reference to the schema of a kind of parts: a name, or a mapping.

        `common` are the options that all parts of the kind have in a recipe.
        """
        if kind not in self.definitions:
            common = {} if common is None else common
            self.definitions |= {f"common.{key}": item for key, item in common.items()}
            self.definitions[kind] = self._kind(kind, [*common])
        return {"$ref": f"#/$defs/{kind}"}

    def _kind(self, kind: str, common: Sequence[str]) -> Schema:
        """The forms of a part: its name, a mapping with it, or options of a default."""
        tests = {  # of a name, by the name of the part
            name: {"pattern": f"^{name}."} if name.endswith("/") else {"const": name}
            for name in registry.names(kind)
        }
        adapters = [test["pattern"] for test in tests.values() if "pattern" in test]
        patterns = [_IMPORT_PATH, *adapters]
        name_schema = any_of(
            [
                {"enum": [name for name in tests if not name.endswith("/")]},
                *({"type": "string", "pattern": pattern} for pattern in patterns),
            ]
        )
        parts = {name: self._define(kind, name, common) for name in tests}
        cases = [
            {"if": {"properties": {"name": tests[name]}}, "then": reference}
            for name, reference in parts.items()
            if reference
        ]
        mapping = {
            "type": "object",
            "properties": {"name": name_schema},
            "required": ["name"],
            **({"allOf": cases} if cases else {}),
        }
        forms = [{"type": "string", **name_schema}, mapping]
        if kind not in _ALWAYS_NAMED:
            forms.append(self._nameless(kind, common))
        return {"anyOf": forms}

    def _define(self, kind: str, name: str, common: Sequence[str]) -> Schema | None:
        """Defines the schema of a part's mapping; None for a broken plug-in."""
        try:
            # The id of an adapter does not matter for its options.
            part = registry.find(kind, f"{name}ID" if name.endswith("/") else name)
        except RlcliError:
            return None
        parameters = registry.options(part.factory)
        shared = {key: {"$ref": f"#/$defs/common.{key}"} for key in common}
        if "each" in common:
            shared["each"] = each_schema(parameters, part.takes("random_numbers"))
        documentation = getattr(part.factory, "func", part.factory).__doc__ or ""
        key = f"{kind}.{name.rstrip('/').replace('/', '.')}"
        self.definitions[key] = {
            "description": documentation.strip().partition("\n")[0],
            "properties": {"name": {}, **shared, **options_schemas(parameters)},
            "required": [
                k for k, item in parameters.items() if item.default is item.empty
            ],
            "additionalProperties": False,
        }
        return {"$ref": f"#/$defs/{key}"}

    def _nameless(self, kind: str, common: Sequence[str]) -> Schema:
        """Options of the part that the updater or an extended recipe names."""
        variants: dict[str, list[Schema]] = {}
        for key, definition in self.definitions.items():
            if key.startswith(f"{kind}."):
                for option, item in definition["properties"].items():
                    plain = {k: v for k, v in item.items() if k != "description"}
                    variants.setdefault(option, []).append(plain)
        variants.pop("name", None)
        if "each" in common:
            variants["each"] = [{"type": "object"}]
        return {
            "type": "object",
            "properties": {key: any_of(items) for key, items in variants.items()},
            "additionalProperties": False,
        }


def _or_null(content: Schema) -> Schema:
    return any_of([content, _NULL])


def _single_or_many(part: Schema) -> Schema:
    """One part, or a mapping of names to parts."""
    many = {
        "type": "object",
        "not": {"required": ["name"]},
        "additionalProperties": _or_null(part),
        "minProperties": 1,
    }
    return any_of([part, many])
