"""Annotations: what they make of the values of a recipe, and what they refuse.

An option annotated `float` takes a number or a schedule, unless it is structural; `int`
takes 1e3 too; `Literal`, `list`, `TypedDict`, unions and the rest mean what they say.
Ranges stand in the annotation: `Annotated[float, Ge(0.0), Le(1.0)]`.

Compiled programs compute in 32 bits: a float must be finite and nonzero in float32 as
well, and keep its range when rounded to it. An integer must fit in an int32, unless its
annotation has an upper bound of its own.
"""

from __future__ import annotations

import inspect
import math
import numbers
import operator
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple

import annotated_types
import pydantic
import typing_extensions
from annotated_types import Ge, Gt, Le, Lt
from pydantic_core import PydanticCustomError

from rlcli import schedules
from rlcli.errors import RlcliError, quote, suggest
from rlcli.recipe import documents
from rlcli.recipe.documents import Place
from rlcli.xla.numeric_limits import INT32_MAX, is_float32, to_float32


class MismatchError(ValueError):
    """A value that its annotation does not admit; `place` is where within it."""

    def __init__(self, place: Place, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.place = place
        self.message = message
        self.hint = hint


def convert(annotation: Any, value: Any) -> Any:
    """The value as its annotation wants it; `MismatchError` if it cannot be."""
    try:
        return pydantic.TypeAdapter(_with_validators(annotation)).validate_python(value)
    except pydantic.ValidationError as error:
        wrong = [_Mismatch.from_error(item, value) for item in error.errors()]
    deepest = max(len(mismatch.place) for mismatch in wrong)
    wrong = [mismatch for mismatch in wrong if len(mismatch.place) == deepest]
    # A sentence says more than that another type was possible, too.
    first_message = next((mismatch for mismatch in wrong if mismatch.message), None)
    if first_message is not None:
        raise MismatchError(
            first_message.place, first_message.message, first_message.hint
        )
    alternatives = " or ".join(
        dict.fromkeys(mismatch.expected_type for mismatch in wrong)
    )
    hint = next((mismatch.hint for mismatch in wrong if mismatch.hint), "")
    message = f"expected {alternatives}, got {format_value(wrong[0].value)}"
    raise MismatchError(wrong[0].place, message, hint)


def is_schedulable(annotation: Any) -> bool:
    """Whether an option is a number that may follow a schedule, or vary."""
    base, metadata = _unwrap(annotation)
    return base is float and "structural" not in metadata


def format_value(value: Any) -> str:
    """The value as YAML, cut where it is long."""
    if not isinstance(value, str | int | float | list | dict | None):
        return quote(repr(value))[1:-1]
    try:
        return quote(documents.format_inline(value))
    except (RlcliError, ValueError):  # objects, or an integer of thousands of digits
        return f"a {type(value).__name__}"


class _Mismatch(NamedTuple):
    """One of the things that pydantic found wrong, in our words."""

    place: Place  # within the option's value
    value: Any
    expected_type: str
    message: str
    hint: str

    @classmethod
    def from_error(cls, error: Any, value: Any) -> _Mismatch:
        place: Place = ()
        for step in error["loc"]:  # beside keys, it names the members of unions
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
    "list_type": "a list",
    "tuple_type": "a list",
    "sequence_type": "a list",
    "dict_type": "a mapping",
    "mapping_type": "a mapping",
    "typed_dict_type": "a mapping",
}


def describe_annotation(annotation: Any) -> str:
    """What a recipe may write for an annotation, in words."""
    base, metadata = _unwrap(annotation)
    arguments = typing.get_args(base)
    if base is float:
        schedule = "" if "structural" in metadata else " or a schedule"
        return f"a number{_format_range(metadata)}{schedule}"
    if base is int:
        return f"a whole number{_format_range(metadata)}"
    if base in _EXACT:
        return _EXACT[base]
    if typing.get_origin(base) is Literal:
        return " or ".join(f"`{choice}`" for choice in arguments)
    if typing.get_origin(base) in (typing.Union, types.UnionType):
        return " or ".join(describe_annotation(argument) for argument in arguments)
    if typing_extensions.is_typeddict(base):
        hints = typing_extensions.get_type_hints(base, include_extras=True)
        fields = (
            f"{name}: {describe_annotation(hint)}" for name, hint in hints.items()
        )
        return "{" + ", ".join(fields) + "}"
    if typing.get_origin(base) in (list, tuple, Sequence):
        return f"a list of {describe_annotation(arguments[0])}"
    return "anything" if base is Any else inspect.formatannotation(base)


def _custom_error(expected: str = "", **details: Any) -> PydanticCustomError:
    return PydanticCustomError("recipe", "expected", {"expected": expected, **details})


def _with_validators(annotation: Any) -> Any:
    """The annotation with our own validators in its leaves.

    Floats are numbers or schedules, booleans are no numbers, 1e3 is an integer too, and
    what was expected is said in words.
    """
    base, metadata = _unwrap(annotation)
    if base in (inspect.Parameter.empty, Any):
        return Any
    if base is float:
        return _leaf_validator(_number_validator(metadata))
    if base is int:
        return _leaf_validator(_integer_validator(metadata))
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
    return Annotated[(inner, *metadata)] if metadata else inner


def _unwrap(annotation: Any) -> tuple[Any, tuple]:
    if typing.get_origin(annotation) is Annotated:
        return annotation.__origin__, annotation.__metadata__
    return annotation, ()


def _leaf_validator(convert: Callable[[Any], Any]) -> Any:
    return Annotated[Any, pydantic.PlainValidator(convert)]


_EXACT = {bool: "true or false", str: "text", types.NoneType: "null"}


def _exact_type(exact_type: type) -> Callable[[Any], Any]:
    def convert(value: Any) -> Any:
        if not isinstance(value, exact_type):
            raise _custom_error(_EXACT[exact_type])
        return value

    return convert


def _literal(choices: tuple) -> Callable[[Any], Any]:
    expected = " or ".join(f"`{choice}`" for choice in choices)

    def convert(value: Any) -> Any:
        for choice in choices:
            if value == choice and isinstance(value, bool) == isinstance(choice, bool):
                return choice
        hint = suggest(value, map(str, choices)) if isinstance(value, str) else ""
        raise _custom_error(expected, hint=hint if hint.startswith("did") else "")

    return convert


def _number_validator(metadata: tuple) -> Callable[[Any], Any]:
    structural = "structural" in metadata
    expected = f"a number{_format_range(metadata)}"

    def convert(value: Any) -> float | schedules.Schedule:
        if structural or not isinstance(value, Mapping | schedules.Schedule):
            if not _is_number(value) or not _is_within(value, metadata):
                raise _custom_error(
                    expected if structural else f"{expected} or a schedule"
                )
            if not is_float32(value):
                raise _custom_error(f"{expected} that float32 can represent")
            if not _within_float32(value, metadata):
                raise _custom_error(f"{expected} when rounded to float32")
            return float(value)
        try:
            schedule = (
                schedules.parse_schedule(value) if isinstance(value, Mapping) else value
            )
        except RlcliError as error:
            raise _custom_error(message=error.message, hint=error.hint) from error
        for limit in schedule.limits():
            fits = not is_float32(limit) or _within_float32(limit, metadata)
            if not fits or not _is_within(limit, metadata):
                message = f"expected {expected}, got a schedule that has {limit:g}"
                raise _custom_error(message=message)
        return schedule

    return convert


def _integer_validator(metadata: tuple) -> Callable[[Any], Any]:
    expected = f"a whole number{_format_range(metadata)}"
    bounded = not {"le", "lt"}.isdisjoint(_bounds(metadata))

    def convert(value: Any) -> int:
        if not _is_number(value) or value != int(value):
            raise _custom_error(expected)
        if not _is_within(int(value), metadata):
            raise _custom_error(expected)
        if not bounded and value > INT32_MAX:
            raise _custom_error(
                f"a whole number{_format_range((*metadata, Le(INT32_MAX)))}"
            )
        if value < -INT32_MAX:
            raise _custom_error(
                f"a whole number{_format_range((*metadata, Ge(-INT32_MAX)))}"
            )
        return int(value)

    return convert


def _is_number(value: Any) -> bool:
    """Whether it is a finite real number, but no boolean."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:  # an integer too large for a float
        return False


_COMPARISONS = (
    ("ge", operator.ge, "at least"),
    ("gt", operator.gt, "above"),
    ("le", operator.le, "at most"),
    ("lt", operator.lt, "below"),
)


def _bounds(metadata: tuple) -> dict[str, Any]:
    kinds = Ge | Gt | Le | Lt | annotated_types.Interval
    limits = [item for item in metadata if isinstance(item, kinds)]
    return {
        name: getattr(limit, name)
        for limit in limits
        for name, _, _ in _COMPARISONS
        if getattr(limit, name, None) is not None
    }


def _is_within(value: Any, metadata: tuple) -> bool:
    bounds = _bounds(metadata)
    return all(
        compare(value, bounds[name])
        for name, compare, _ in _COMPARISONS
        if name in bounds
    )


def _within_float32(value: Any, metadata: tuple) -> bool:
    """Whether a number that is in range still is when rounded to float32.

    Bounds are rounded alike, so that each closed range contains its ends.
    """
    bounds, rounded = _bounds(metadata), to_float32(value)
    return all(
        compare(rounded, to_float32(bounds[name]))
        for name, compare, _ in _COMPARISONS
        if name in bounds and is_float32(bounds[name])
    )


def _format_range(metadata: tuple) -> str:
    bounds = _bounds(metadata)
    if set(bounds) == {"ge", "le"}:
        return f" from {_bound(bounds['ge'])} to {_bound(bounds['le'])}"
    words = [
        f"{word} {_bound(bounds[name])}"
        for name, _, word in _COMPARISONS
        if name in bounds
    ]
    if not words:
        return ""
    return (" of " if words[0].startswith("at") else " ") + " and ".join(words)


def _bound(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:,.12g}"


def _typed_dict_validator(typed_dict: Any) -> Any:
    """A mapping with these keys only, whose floats may be schedules, too."""
    hints = typing_extensions.get_type_hints(typed_dict, include_extras=True)
    # `__required_keys__` does not see marks in annotations that are text.
    markers = {key: typing.get_origin(hint) for key, hint in hints.items()}
    required_keys = {
        key
        for key, mark in markers.items()
        if mark is typing.Required
        or (mark is not typing.NotRequired and key in typed_dict.__required_keys__)
    }
    fields: dict[str, Any] = {}
    for key, hint in hints.items():
        if markers[key] in (typing.Required, typing.NotRequired):
            hint = typing.get_args(hint)[0]
        wrap = typing.Required if key in required_keys else typing.NotRequired
        fields[key] = wrap[_with_validators(hint)]
    inner = typing_extensions.TypedDict(typed_dict.__name__, fields)  # type: ignore[misc] # made of the user's

    def check(value: Any) -> Any:
        if isinstance(value, Mapping):
            for key in value:
                if key not in fields:
                    details = {"message": "there is no such option", "below": (key,)}
                    raise _custom_error(**details, hint=suggest(str(key), fields))
            for key in sorted(required_keys):
                if key not in value:
                    raise _custom_error(message=f"it has no `{key}`")
        return value

    return Annotated[inner, pydantic.BeforeValidator(check)]
