"""Annotations: convert and validate the values of a recipe by their type annotations.

An option annotated `float` takes a number or a schedule, unless it is structural. An
`int` also takes 1e3. `Literal`, `list`, `TypedDict` and unions mean what they usually
mean. Ranges stand in the annotation: `Annotated[float, Ge(0.0), Le(1.0)]`.
"""

from __future__ import annotations

import functools
import inspect
import json
import types
import typing
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple

import pydantic
import typing_extensions

from rlcli.errors import RlcliError, quote, suggest
from rlcli.recipe import documents
from rlcli.recipe.documents import Place
from rlcli.recipe.number_annotations import (
    expectation_error,
    format_number_type,
    integer_converter,
    number_converter,
)

LONGEST_LIST = 1_000  # of an option, such as the layers of a network


class MismatchError(ValueError):
    """A value does not match its annotation; `place` is the path within the value."""

    def __init__(self, place: Place, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.place = place
        self.message = message
        self.hint = hint


def convert(annotation: Any, value: Any) -> Any:
    """Returns the value converted to its annotation, or raises `MismatchError`."""
    try:
        return _adapter(annotation).validate_python(value)
    except pydantic.ValidationError as error:
        mismatches = [_Mismatch.from_error(item, value) for item in error.errors()]
    depth = max(len(mismatch.place) for mismatch in mismatches)
    mismatches = [mismatch for mismatch in mismatches if len(mismatch.place) == depth]
    # A specific message is more useful than the list of possible types.
    first_message = next(
        (mismatch for mismatch in mismatches if mismatch.message), None
    )
    if first_message is not None:
        raise MismatchError(
            first_message.place, first_message.message, first_message.hint
        )
    expected = _join_types([mismatch.expected_type for mismatch in mismatches])
    hint = next((mismatch.hint for mismatch in mismatches if mismatch.hint), "")
    message = f"expected {expected}, got {quote_value(mismatches[0].value)}"
    raise MismatchError(mismatches[0].place, message, hint)


def _adapter(annotation: Any) -> pydantic.TypeAdapter:
    """The validator of an annotation, which is slow to make."""
    try:
        hash(annotation)
    except TypeError:  # for example with a list in its metadata
        return pydantic.TypeAdapter(_with_validators(annotation))
    return _hashable_adapter(annotation, repr(annotation))


@functools.lru_cache(maxsize=1_000)
def _hashable_adapter(annotation: Any, text: str) -> pydantic.TypeAdapter:
    """As `_adapter`; `text` distinguishes unions that differ in their order."""
    return pydantic.TypeAdapter(_with_validators(annotation))


def is_schedulable(annotation: Any) -> bool:
    """Whether an option is a float that may follow a schedule or vary over copies."""
    base, metadata = unwrap(annotation)
    return base is float and "structural" not in metadata


def names_data(annotation: Any, kinds: Collection[str] = ("file", "minari")) -> bool:
    """Whether an option names data of `kinds`: a file, the id of a data set, …"""
    base, metadata = unwrap(annotation)
    is_named = any(isinstance(item, str) and item in kinds for item in metadata)
    return is_named or any(
        names_data(member, kinds) for member in typing.get_args(base)
    )


def is_divided(annotation: Any) -> bool:
    """Whether an option is a count that devices divide, see `rlcli.types.Divided`."""
    base, metadata = unwrap(annotation)
    return "divided" in metadata or any(map(is_divided, typing.get_args(base)))


def quote_value(value: Any) -> str:
    """Formats a value as YAML for a message; long values are truncated."""
    if not isinstance(value, str | int | float | list | dict | None):
        return quote(repr(value))[1:-1]
    try:
        return quote(documents.format_inline(value))
    except (RlcliError, ValueError):  # objects, or an integer of thousands of digits
        return f"a {type(value).__name__}"


class _Mismatch(NamedTuple):
    """One error of pydantic, with the type that rlcli expects."""

    place: Place  # within the option's value
    value: Any
    expected_type: str
    message: str
    hint: str

    @classmethod
    def from_error(cls, error: Any, value: Any) -> _Mismatch:
        place: Place = ()
        for step in error["loc"]:  # contains keys, and the names of union members
            is_index = isinstance(value, list | tuple) and isinstance(step, int)
            if (is_index and step < len(value)) or (
                isinstance(value, Mapping) and step in value
            ):
                place, value = (*place, step), value[step]
        context = error.get("ctx", {})
        expected_type = context.get("expected") or _TYPE_NAMES.get(error["type"], "")
        message = context.get("message", "" if expected_type else error["msg"])
        place = (*place, *context.get("below", ()))
        return cls(place, value, expected_type, message, context.get("hint", ""))


_TYPE_NAMES = {
    "list_type": "list",
    "tuple_type": "list",
    "sequence_type": "list",
    "dict_type": "mapping",
    "mapping_type": "mapping",
    "typed_dict_type": "mapping",
}


def describe_annotation(annotation: Any, *, is_nested: bool = False) -> str:
    """Formats an annotation as a type: `int ≥ 1`, `"relu" | "tanh"`, `list[str]`.

    A schedulable float is `float, or a schedule`, and `float | schedule` inside
    brackets. A `TypedDict` is `{key, optional_key?}`: see `describe_fields`.
    """
    base, metadata = unwrap(annotation)
    arguments = typing.get_args(base)
    origin = typing.get_origin(base)
    if base is float and "structural" not in metadata:
        schedule = " | schedule" if is_nested else ", or a schedule"
        return format_number_type("float", metadata) + schedule
    if base in (int, float):
        return format_number_type(base.__name__, metadata)
    if base in _EXACT:
        return _EXACT[base]
    if origin is Literal:
        return _format_choices(arguments)
    if origin in (typing.Union, types.UnionType):
        members = [describe_annotation(a, is_nested=is_nested) for a in arguments]
        return _join_types(members)
    if typing_extensions.is_typeddict(base):
        fields = (
            f"{key}{'' if is_required else '?'}"
            for key, (_, is_required) in typed_dict_fields(base).items()
        )
        return "{" + ", ".join(fields) + "}"
    if origin in (list, tuple, Sequence):
        return f"list[{describe_annotation(arguments[0], is_nested=True)}]"
    if origin in (dict, Mapping):
        key, item = (describe_annotation(a, is_nested=True) for a in arguments)
        return f"mapping[{key}, {item}]"
    if base in (inspect.Parameter.empty, Any):
        return "any"
    return inspect.formatannotation(base)


def describe_fields(annotation: Any) -> dict[str, str]:
    """The keys and types of the `TypedDict` in an annotation; {} if it has none."""
    base, _ = unwrap(annotation)
    if typing_extensions.is_typeddict(base):
        return {
            key: describe_annotation(hint) + ("" if is_required else ", optional")
            for key, (hint, is_required) in typed_dict_fields(base).items()
        }
    fields = (describe_fields(argument) for argument in typing.get_args(base))
    return next(filter(None, fields), {})


def _join_types(alternatives: Sequence[str]) -> str:
    names = list(dict.fromkeys(alternatives))
    return (", or " if any(", or" in name for name in names) else " | ").join(names)


def _format_choices(choices: Sequence[Any]) -> str:
    return " | ".join(json.dumps(choice, ensure_ascii=False) for choice in choices)


def _with_validators(annotation: Any) -> Any:
    """Replaces the leaves of an annotation by rlcli's validators.

    They accept schedules for floats and 1e3 for integers, refuse booleans as numbers,
    and name the expected type in errors.
    """
    base, metadata = unwrap(annotation)
    if base in (inspect.Parameter.empty, Any):
        return Any
    if base is float:
        return _leaf_validator(number_converter(metadata))
    if base is int:
        return _leaf_validator(integer_converter(metadata))
    if base in _EXACT:
        return _leaf_validator(_exact_type(base))
    origin, arguments = typing.get_origin(base), typing.get_args(base)
    if origin is Literal:
        return _leaf_validator(_literal(arguments))
    if origin in (typing.Union, types.UnionType):
        members = tuple(map(_with_validators, arguments))
        field = pydantic.Field(union_mode="left_to_right")
        return Annotated[(typing.Union[members], field, *metadata)]  # noqa: UP007 - a tuple
    if typing_extensions.is_typeddict(base):
        inner: Any = _typed_dict_validator(base)
    elif isinstance(base, type) and base not in (list, tuple, dict, set):
        return pydantic.InstanceOf[base]
    elif origin in (None, Callable):
        return annotation
    else:
        inner = origin[tuple(e if e is ... else _with_validators(e) for e in arguments)]
        if origin is list and arguments != (Any,):
            metadata = (*metadata, pydantic.AfterValidator(_refuse_long_list))
    return Annotated[(inner, *metadata)] if metadata else inner


def _refuse_long_list(values: list[Any]) -> list[Any]:
    """Refuses a list of which each entry would be compiled separately, for hours."""
    if len(values) > LONGEST_LIST:
        message = f"a list of {len(values):,} entries: at most {LONGEST_LIST:,}"
        raise expectation_error(message=message)
    return values


def unwrap(annotation: Any) -> tuple[Any, tuple]:
    """The type and the metadata of an annotation."""
    if typing.get_origin(annotation) is Annotated:
        return annotation.__origin__, annotation.__metadata__
    return annotation, ()


def _leaf_validator(convert: Callable[[Any], Any]) -> Any:
    return Annotated[Any, pydantic.PlainValidator(convert)]


_EXACT = {bool: "bool", str: "str", types.NoneType: "null"}


def _exact_type(exact_type: type) -> Callable[[Any], Any]:
    def convert(value: Any) -> Any:
        if not isinstance(value, exact_type):
            raise expectation_error(_EXACT[exact_type])
        return value

    return convert


def _literal(choices: tuple) -> Callable[[Any], Any]:
    expected = _format_choices(choices)

    def convert(value: Any) -> Any:
        for choice in choices:
            if value == choice and isinstance(value, bool) == isinstance(choice, bool):
                return choice
        hint = suggest(value, map(str, choices)) if isinstance(value, str) else ""
        raise expectation_error(expected, hint=hint if hint.startswith("did") else "")

    return convert


def _typed_dict_validator(typed_dict: Any) -> Any:
    """A mapping with these keys only, whose floats may also be schedules."""
    described = typed_dict_fields(typed_dict)
    required_keys = {key for key, (_, is_required) in described.items() if is_required}
    fields: dict[str, Any] = {}
    for key, (hint, is_required) in described.items():
        wrap = typing.Required if is_required else typing.NotRequired
        fields[key] = wrap[_with_validators(hint)]
    inner = typing_extensions.TypedDict(typed_dict.__name__, fields)  # type: ignore[misc] # built at run time

    def check(value: Any) -> Any:
        if isinstance(value, Mapping):
            for key in value:
                if key not in fields:
                    details = {"message": "unknown option", "below": (key,)}
                    raise expectation_error(**details, hint=suggest(str(key), fields))
            for key in sorted(required_keys):
                if key not in value:
                    raise expectation_error(message=f"`{key}` is missing")
        return value

    return Annotated[inner, pydantic.BeforeValidator(check)]


def typed_dict_fields(typed_dict: Any) -> dict[str, tuple[Any, bool]]:
    """The annotation of each key, and whether the key is required."""
    hints = typing_extensions.get_type_hints(typed_dict, include_extras=True)
    fields: dict[str, tuple[Any, bool]] = {}
    for key, hint in hints.items():
        # `__required_keys__` misses marks in annotations written as strings.
        mark = typing.get_origin(hint)
        is_required = mark is typing.Required or (
            mark is not typing.NotRequired and key in typed_dict.__required_keys__
        )
        if mark in (typing.Required, typing.NotRequired):
            hint = typing.get_args(hint)[0]
        fields[key] = hint, is_required
    return fields
