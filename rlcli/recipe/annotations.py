"""Annotations: convert and validate the values of a recipe by their type annotations.

An option annotated `float` takes a number or a schedule, unless it is structural. An
`int` also takes 1e3. `Literal`, `list`, `TypedDict` and unions mean what they usually
mean. Ranges stand in the annotation: `Annotated[float, Ge(0.0), Le(1.0)]`.

Compiled programs compute in 32 bits: a float must be finite and nonzero in float32 as
well, and stay in its range when rounded to float32. An integer must fit in an int32,
unless its annotation has an upper bound of its own.
"""

from __future__ import annotations

import dataclasses
import inspect
import json
import math
import numbers
import operator
import types
import typing
from collections.abc import Mapping, Sequence, Sized
from typing import Any, Literal

from annotated_types import Ge, Le

from rlcli import schedules
from rlcli.errors import RlcliError, quote, suggest, suggest_similar
from rlcli.recipe import documents
from rlcli.recipe.documents import Place
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
    within,
)
from rlcli.xla.numeric_limits import INT32_MAX, is_float32, to_float32

LONGEST_LIST = 1_000  # of an option, such as the layers of a network
_EXACT = {bool: "bool", str: "str", types.NoneType: "null"}


@dataclasses.dataclass(eq=False)
class MismatchError(ValueError):
    """A value does not match its annotation; `place` is the path within the value.

    Either `expected` is the type of the `value` there, or a `message` says more.
    """

    expected: str = ""
    value: Any = None
    hint: str = ""
    message: str = ""
    place: Place = ()

    def __post_init__(self) -> None:
        got = f"expected {self.expected}, got {quote_value(self.value)}"
        self.message = self.message or got

    def __str__(self) -> str:
        return self.message


def convert(annotation: Any, value: Any) -> Any:
    """Returns the value converted to its annotation, or raises `MismatchError`."""
    base, metadata = unwrap(annotation)
    origin = typing.get_origin(base) or base
    if base is float:
        return _convert_float(value, metadata)
    if base is int:
        return _convert_integer(value, metadata)
    if origin is Literal:
        return _convert_literal(typing.get_args(base), value)
    if origin in UNIONS:
        return _convert_union(base, metadata, value)
    if is_typed_dict(base):
        return _convert_typed_dict(base, value)
    if origin in LISTS:
        return _convert_list(base, metadata, value)
    if origin in MAPPINGS:
        return _convert_mapping(base, metadata, value)
    if base not in (Any, inspect.Parameter.empty) and isinstance(origin, type):
        return _convert_instance(origin, metadata, value)
    return value


def _convert_instance(kind: type, metadata: tuple, value: Any) -> Any:
    if isinstance(value, kind):
        if kind is str:
            _check_length("str", "characters", metadata, value)
        return value
    if kind in _EXACT:
        raise MismatchError(_EXACT[kind], value)
    raise MismatchError(f"an instance of {kind.__name__}", value)


def _check_length(kind: str, of: str, metadata: tuple, value: Sized) -> None:
    """Refuses a text, a list or a mapping of another length."""
    least, most = lengths_of(metadata)
    if most is not None and len(value) > most:
        raise MismatchError(f"{kind} of at most {most} {of}", value)
    if len(value) < least:
        raise MismatchError(f"{kind} of {least} or more {of}", value)


def _convert_below(annotation: Any, value: Any, key: str | int) -> Any:
    """A value within another one, whose place begins with `key`."""
    try:
        return convert(annotation, value)
    except MismatchError as error:
        error.place = (key, *error.place)
        raise


def _convert_union(base: Any, metadata: tuple, value: Any) -> Any:
    """The value as the first member that admits it; else the deepest errors count."""
    errors: list[MismatchError] = []
    for member in members_of(base, metadata):
        try:
            return convert(member, value)
        except MismatchError as error:
            errors.append(error)
    depth = max(len(error.place) for error in errors)
    errors = [error for error in errors if len(error.place) == depth]
    # A specific message is more useful than the list of possible types.
    if specific := next((error for error in errors if not error.expected), None):
        raise specific
    expected = _join_types([error.expected for error in errors])
    hint = next((error.hint for error in errors if error.hint), "")
    raise MismatchError(expected, errors[0].value, hint, place=errors[0].place)


def _convert_literal(choices: tuple, value: Any) -> Any:
    for choice in choices:
        if value == choice and isinstance(value, bool) == isinstance(choice, bool):
            return choice
    hint = suggest_similar(value, map(str, choices)) if isinstance(value, str) else ""
    raise MismatchError(_format_choices(choices), value, hint)


def _convert_typed_dict(base: Any, value: Any) -> dict[str, Any]:
    """A mapping with these keys only, in the order of the annotation."""
    if not isinstance(value, Mapping):
        raise MismatchError("mapping", value)
    fields = typed_dict_fields(base)
    for key in value:
        if key not in fields:
            hint = suggest(str(key), fields)
            raise MismatchError(message="unknown option", hint=hint, place=(key,))
    for key, (_, is_required) in sorted(fields.items()):
        if is_required and key not in value:
            raise MismatchError(message=f"`{key}` is missing")
    return {
        key: _convert_below(annotation, value[key], key)
        for key, (annotation, _) in fields.items()
        if key in value
    }


def _convert_list(base: Any, metadata: tuple, value: Any) -> list[Any] | tuple:
    if not isinstance(value, list | tuple):
        is_entry = isinstance(value, str | int | float)
        hint = f"with one entry: {quote_value([value])}" if is_entry else ""
        raise MismatchError("list", value, hint)
    kinds = typing.get_args(base) or (Any, ...)
    is_tuple = (typing.get_origin(base) or base) is tuple
    if not is_tuple or kinds[-1] is ...:
        kinds = (kinds[0],) * len(value)
    _check_length("list", "entries", metadata, value)
    if len(value) != len(kinds):
        raise MismatchError(message=f"expected {len(kinds)} entries, got {len(value)}")
    items = [
        _convert_below(kind, item, index)
        for index, (kind, item) in enumerate(zip(kinds, value, strict=True))
    ]
    if is_tuple:
        return tuple(items)
    # Each entry would be compiled separately, for hours.
    if len(items) > LONGEST_LIST and kinds[0] is not Any:
        message = f"a list of {len(items):,} entries: at most {LONGEST_LIST:,}"
        raise MismatchError(message=message)
    return items


def _convert_mapping(base: Any, metadata: tuple, value: Any) -> dict[Any, Any]:
    if not isinstance(value, Mapping):
        raise MismatchError("mapping", value)
    _check_length("mapping", "entries", metadata, value)
    of_key, of_item = typing.get_args(base) or (Any, Any)
    return {
        _convert_below(of_key, key, key): _convert_below(of_item, item, key)
        for key, item in value.items()
    }


def _convert_float(value: Any, metadata: tuple) -> float | schedules.Schedule:
    """A number or, unless it is structural, a schedule."""
    structural, bounds = "structural" in metadata, bounds_of(metadata)
    expected = format_number_type("float", metadata)
    if structural or not isinstance(value, Mapping | schedules.Schedule):
        if not _is_number(value) or not _is_within(value, bounds):
            whole = expected if structural else f"{expected}, or a schedule"
            is_named = isinstance(value, str) or callable(value)  # as elsewhere
            hint = "a schedule is a mapping, such as `{from: 1e-3, to: 0}`"
            raise MismatchError(
                whole, value, hint if is_named and not structural else ""
            )
        if not is_float32(value):
            raise MismatchError(f"{expected} that float32 can represent", value)
        if not _is_within_float32(value, bounds):
            raise MismatchError(f"{expected} when rounded to float32", value)
        return float(value)
    try:
        is_written = isinstance(value, Mapping)
        schedule = schedules.parse_schedule(value) if is_written else value
    except RlcliError as error:
        raise MismatchError(message=error.message, hint=error.hint) from error
    for limit in schedule.limits():
        fits = not is_float32(limit) or _is_within_float32(limit, bounds)
        if not fits or not _is_within(limit, bounds):
            message = f"expected {expected}, got a schedule that reaches {limit:g}"
            raise MismatchError(message=message)
    return schedule


def _convert_integer(value: Any, metadata: tuple) -> int:
    """An integer, which may be written as 1e3."""
    bounds = bounds_of(metadata)
    if _is_number(value) and value == int(value) and _is_within(int(value), bounds):
        if value > INT32_MAX and not {"le", "lt"} & bounds.keys():
            metadata = (*metadata, Le(INT32_MAX))
        elif value < -INT32_MAX:
            metadata = (*metadata, Ge(-INT32_MAX))
        else:
            return int(value)
    raise MismatchError(format_number_type("int", metadata), value)


def _is_number(value: Any) -> bool:
    """Whether a value is a finite real number and not a boolean."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:  # an integer too large for a float
        return False


def _is_within(value: Any, bounds: Mapping[str, Any]) -> bool:
    return all(getattr(operator, name)(value, each) for name, each in bounds.items())


def _is_within_float32(value: Any, bounds: Mapping[str, Any]) -> bool:
    """Whether a number is in range after rounding it to float32.

    Bounds are rounded as well, so that a closed range contains its ends.
    """
    limits = {
        name: to_float32(each) for name, each in bounds.items() if is_float32(each)
    }
    return _is_within(to_float32(value), limits)


def format_number_type(name: str, metadata: tuple) -> str:
    """The name of a type with its range: `int ≥ 1`, `0 ≤ float < 1`."""
    # Underscores, as in YAML and Python: a comma would end the type in a message.
    bounds = {
        key: f"{bound:_}" if isinstance(bound, int) else f"{bound:.12g}"
        for key, bound in bounds_of(metadata).items()
    }
    lower = next((key for key in ("ge", "gt") if key in bounds), None)
    upper = next((key for key in ("le", "lt") if key in bounds), None)
    if lower and upper:
        before = f"{bounds[lower]} {_SYMBOLS[lower].translate(_MIRRORED)} "
        return f"{before}{name} {_SYMBOLS[upper]} {bounds[upper]}"
    bound = lower or upper
    return f"{name} {_SYMBOLS[bound]} {bounds[bound]}" if bound else name


_SYMBOLS = {"ge": "≥", "gt": ">", "le": "≤", "lt": "<"}  # also names in `operator`
_MIRRORED = str.maketrans("≥>", "≤<")


def is_schedulable(annotation: Any) -> bool:
    """Whether an option is a float that may follow a schedule or vary over copies."""
    base, metadata = unwrap(annotation)
    return base is float and "structural" not in metadata


def has_mark(annotation: Any, *marks: str) -> bool:
    """Whether an annotation has one of these words, anywhere within it.

    A `file`, the id of a data set of `minari` and an `import path` are texts that name
    them. `divided` is a count that devices divide, see `rlcli.types.Divided`.
    """
    items = (item for _, metadata in within(annotation) for item in metadata)
    return any(isinstance(item, str) and item in marks for item in items)


def quote_value(value: Any) -> str:
    """Formats a value as YAML for a message; long values are truncated."""
    if not isinstance(value, str | int | float | list | dict | None):
        return quote(repr(value))[1:-1]
    try:
        return quote(documents.format_inline(value))
    except (RlcliError, ValueError):  # objects, or an integer of thousands of digits
        return f"a {type(value).__name__}"


def describe_annotation(annotation: Any, *, is_nested: bool = False) -> str:
    """Formats an annotation as a type: `int ≥ 1`, `"relu" | "tanh"`, `list[str]`.

    A schedulable float is `float, or a schedule`, and `float | schedule` inside
    brackets. A `TypedDict` is `{key, optional_key?}`: see `describe_fields`.
    """
    base, metadata = unwrap(annotation)
    arguments = typing.get_args(base)
    origin = typing.get_origin(base) or base
    if base is float and "structural" not in metadata:
        schedule = " | schedule" if is_nested else ", or a schedule"
        return format_number_type("float", metadata) + schedule
    if base in (int, float):
        return format_number_type(base.__name__, metadata)
    if base in _EXACT:
        return _EXACT[base]
    if origin is Literal:
        return _format_choices(arguments)
    if origin in UNIONS:
        members = members_of(base, metadata)
        return _join_types(
            [describe_annotation(each, is_nested=is_nested) for each in members]
        )
    if is_typed_dict(base):
        fields = (
            f"{key}{'' if is_required else '?'}"
            for key, (_, is_required) in typed_dict_fields(base).items()
        )
        return "{" + ", ".join(fields) + "}"
    if origin in LISTS:
        item = arguments[0] if arguments else Any
        return f"list[{describe_annotation(item, is_nested=True)}]"
    if origin in MAPPINGS:
        pair = arguments or (Any, Any)
        key, item = (describe_annotation(each, is_nested=True) for each in pair)
        return f"mapping[{key}, {item}]"
    if base in (inspect.Parameter.empty, Any):
        return "any"
    return inspect.formatannotation(base)


def describe_fields(annotation: Any) -> dict[str, str]:
    """The keys and types of the `TypedDict` in an annotation; {} if it has none."""
    types = (base for base, _ in within(annotation) if is_typed_dict(base))
    if (base := next(types, None)) is None:
        return {}
    return {
        key: describe_annotation(hint) + ("" if is_required else ", optional")
        for key, (hint, is_required) in typed_dict_fields(base).items()
    }


def _join_types(alternatives: Sequence[str]) -> str:
    names = list(dict.fromkeys(alternatives))
    return (", or " if any(", or" in name for name in names) else " | ").join(names)


def _format_choices(choices: Sequence[Any]) -> str:
    return " | ".join(json.dumps(choice, ensure_ascii=False) for choice in choices)
