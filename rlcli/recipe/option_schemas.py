"""Option schemas: JSON Schemas of the options of a factory, from its annotations."""

import dataclasses
import inspect
import types
import typing
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any, Literal

from rlcli import registry, schedules
from rlcli.recipe import grammar
from rlcli.recipe.annotations import LONGEST_LIST, describe_annotation, is_schedulable
from rlcli.recipe.varied_options import CHOICE, RANGES
from rlcli.registry.option_types import (
    LISTS,
    MAPPINGS,
    UNIONS,
    bounds_of,
    is_typed_dict,
    lengths_of,
    members_of,
    typed_dict_fields,
    unwrap,
)
from rlcli.xla.numeric_limits import INT32_MAX

Schema = dict[str, Any]
NUMBER_TEXT: Schema = {"$ref": "#/$defs/number_with_underscores"}
SCHEDULE: Schema = {"$ref": "#/$defs/schedule"}
_KEYWORDS = {  # of a bound
    "ge": "minimum",
    "gt": "exclusiveMinimum",
    "le": "maximum",
    "lt": "exclusiveMaximum",
}
_PLAIN = {bool: "boolean", str: "string", types.NoneType: "null"}


def shared_definitions() -> dict[str, Schema]:
    """The definitions that the schemas of options refer to."""
    number = _number()
    percent = {"type": "string", "pattern": r"^[0-9.]+ *%$"}
    milestone = {"type": "array", "items": number, "minItems": 2, "maxItems": 2}
    when = {"metric": {"type": "string"}, "above": number, "step": number}
    special = {
        "over": {"anyOf": [number, percent]},
        "steps": {"type": "array", "items": milestone},
        "when": _object(when, [*when]),
    }
    forms: list[Schema] = []
    for name, keys in schedules.KEYS.items():
        per = {} if name == "success" else {"per": {"enum": ["step", "episode"]}}
        values = {key: special.get(key, number) for key in keys}
        required = [key for key in keys if key != "over"]
        if name not in ("linear", "steps", "success"):  # known by their keys
            required.append("name")
        form = {"properties": {"name": {"const": name}, **per, **values}}
        forms.append({**form, "required": required, "additionalProperties": False})
    return {
        "number_with_underscores": {
            "description": "YAML 1.2 reads 50_000 as a string; rlcli reads a number",
            "type": "string",
            "pattern": r"^[-+]?[0-9]+_[0-9_]*(\.[0-9_]*)?([eE][-+]?[0-9]+)?$",
        },
        "schedule": {
            "description": "a number that changes during the run",
            "type": "object",
            "anyOf": forms,
        },
    }


def options_schemas(parameters: Mapping[str, inspect.Parameter]) -> dict[str, Schema]:
    """The schema of each option, with its type and its default as description."""
    return {key: _option_schema(item) for key, item in parameters.items()}


def section_schema(section: Any) -> Schema:
    """The schema of a dataclass of the grammar."""
    parameters = registry.options(section)
    return {
        "type": "object",
        "description": inspect.getdoc(section) or "",
        "properties": options_schemas(parameters),
        "additionalProperties": False,
    }


def each_schema(parameters: Mapping[str, inspect.Parameter], takes_any: bool) -> Schema:
    """The schema of `environment.each`: of each numeric option a list of numbers.

    Or the distribution from which every episode draws one; with `takes_any` that alone,
    of any name.
    """
    numbers = {
        key: _number(unwrap(item.annotation)[1])
        for key, item in parameters.items()
        if is_schedulable(item.annotation)
    }
    return {
        "type": "object",
        "description": "a number for each environment, which takes i mod n, or the "
        "distribution from which every episode draws one",
        "properties": {
            key: any_of([_list_of(number), *_distributions(number)])
            for key, number in numbers.items()
            if not takes_any
        },
        "additionalProperties": takes_any and any_of(_distributions(_number())),
    }


def _list_of(number: Schema) -> Schema:
    return {"type": "array", "items": number, "minItems": 1}


def _distributions(number: Schema) -> list[Schema]:
    bounds = _list_of(number) | {"minItems": 2, "maxItems": 2}
    kinds = {**dict.fromkeys(RANGES, bounds), CHOICE: _list_of(number)}
    return [_object({kind: content}, [kind]) for kind, content in kinds.items()]


def _object(properties: Schema, required: Sequence[str]) -> Schema:
    """The schema of a mapping that has these keys only."""
    return {
        "type": "object",
        "properties": properties,
        "required": [*required],
        "additionalProperties": False,
    }


def _option_schema(parameter: inspect.Parameter) -> Schema:
    schema = dict(annotation_schema(parameter.annotation))
    schema["description"] = describe_annotation(parameter.annotation)
    if parameter.default is not parameter.empty:
        default = grammar.format_default(parameter.default)
        schema["description"] += f" (default: {default})"
    return schema


def annotation_schema(annotation: Any) -> Schema:
    """The schema of the values that an annotation accepts."""
    base, metadata = unwrap(annotation)
    origin, arguments = typing.get_origin(base) or base, typing.get_args(base)
    if base is float:
        number = _number(metadata)
        return any_of([number, SCHEDULE]) if is_schedulable(annotation) else number
    if base is int:
        return _integer(metadata)
    if base is Fraction:  # `train.updates`
        per_step = annotation_schema(grammar.PerStep)
        return any_of([annotation_schema(grammar.PositiveInt), per_step])
    if base in _PLAIN:
        lengths = _lengths(metadata, "Length") if base is str else {}
        return {"type": _PLAIN[base], **lengths}
    if origin is Literal:
        return {"enum": [*arguments]}
    if origin in UNIONS:
        return any_of([*map(annotation_schema, members_of(base, metadata))])
    if is_typed_dict(base):
        fields = typed_dict_fields(base)
        schemas = {key: annotation_schema(hint) for key, (hint, _) in fields.items()}
        return _object(
            schemas, [key for key, (_, is_needed) in fields.items() if is_needed]
        )
    if dataclasses.is_dataclass(base):
        section = section_schema(base)
        has_period = "every" in section["properties"]  # `null` disables it
        return any_of([section, {"type": "null"}]) if has_period else section
    if origin in LISTS:
        item = arguments[0] if arguments else Any
        is_bounded = origin is list and item is not Any
        limit = {"maxItems": LONGEST_LIST} if is_bounded else {}
        array = {"type": "array", "items": annotation_schema(item)}
        return array | limit | _lengths(metadata, "Items")
    if origin in MAPPINGS:
        item = annotation_schema(arguments[1] if arguments else Any)
        lengths = _lengths(metadata, "Properties")
        return {"type": "object", "additionalProperties": item, **lengths}
    return {}


def _lengths(metadata: tuple, of: str) -> Schema:
    least, most = lengths_of(metadata)
    lowest = {f"min{of}": least} if least else {}
    return lowest if most is None else lowest | {f"max{of}": most}


def _bounds(metadata: tuple) -> dict[str, Any]:
    return {_KEYWORDS[key]: value for key, value in bounds_of(metadata).items()}


def _number(metadata: tuple = ()) -> Schema:
    return {"anyOf": [{"type": "number", **_bounds(metadata)}, NUMBER_TEXT]}


def _integer(metadata: tuple) -> Schema:
    bounds = _bounds(metadata)
    if not {"maximum", "exclusiveMaximum"} & bounds.keys():
        bounds["maximum"] = INT32_MAX
    if not {"minimum", "exclusiveMinimum"} & bounds.keys():
        bounds["minimum"] = -INT32_MAX
    return {"anyOf": [{"type": "integer", **bounds}, NUMBER_TEXT]}


def any_of(schemas: Sequence[Schema]) -> Schema:
    """A schema that accepts what one of the schemas accepts; without nesting."""
    members: list[Schema] = []
    for schema in schemas:
        members += schema["anyOf"] if set(schema) == {"anyOf"} else [schema]
    unique = [item for index, item in enumerate(members) if item not in members[:index]]
    return unique[0] if len(unique) == 1 else {"anyOf": unique}
