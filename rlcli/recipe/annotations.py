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
from rlcli.errors import RlcliError, nearest, quote
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
        return pydantic.TypeAdapter(_validating(annotation)).validate_python(value)
    except pydantic.ValidationError as error:
        wrong = [_Wrong.of(each, value) for each in error.errors()]
    deepest = max(len(each.place) for each in wrong)
    wrong = [each for each in wrong if len(each.place) == deepest]
    # A sentence says more than that another type was possible, too.
    said = next((each for each in wrong if each.message), None)
    if said is not None:
        raise MismatchError(said.place, said.message, said.hint)
    expected = " or ".join(dict.fromkeys(each.expected for each in wrong))
    hint = next((each.hint for each in wrong if each.hint), "")
    message = f"expected {expected}, got {shown(wrong[0].value)}"
    raise MismatchError(wrong[0].place, message, hint)


def is_schedulable(annotation: Any) -> bool:
    """Whether an option is a number that may follow a schedule, or vary."""
    base, metadata = _unwrapped(annotation)
    return base is float and "structural" not in metadata


def shown(value: Any) -> str:
    """The value as YAML, cut where it is long."""
    if not isinstance(value, str | int | float | list | dict | None):
        return quote(repr(value))[1:-1]
    try:
        return quote(documents.flow(value))
    except (RlcliError, ValueError):  # objects, or an integer of thousands of digits
        return f"a {type(value).__name__}"


class _Wrong(NamedTuple):
    """One of the things that pydantic found wrong, in our words."""

    place: Place  # within the option's value
    value: Any
    expected: str
    message: str
    hint: str

    @classmethod
    def of(cls, error: Any, value: Any) -> _Wrong:
        place: Place = ()
        for step in error["loc"]:  # beside keys, it names the members of unions
            within = isinstance(value, list | tuple) and isinstance(step, int)
            if (within and step < len(value)) or (
                isinstance(value, Mapping) and step in value
            ):
                place, value = (*place, step), value[step]
        said = error.get("ctx", {})
        expected = said.get("expected") or _EXPECTED.get(error["type"], "")
        message = said.get("message", "" if expected else error["msg"])
        place = (*place, *said.get("below", ()))
        return cls(place, value, expected, message, said.get("hint", ""))


_EXPECTED = {
    "list_type": "a list",
    "tuple_type": "a list",
    "sequence_type": "a list",
    "dict_type": "a mapping",
    "mapping_type": "a mapping",
    "typed_dict_type": "a mapping",
}


def expected(annotation: Any) -> str:
    """What a recipe may write for an annotation, in words."""
    base, metadata = _unwrapped(annotation)
    arguments = typing.get_args(base)
    if base is float:
        schedule = "" if "structural" in metadata else " or a schedule"
        return f"a number{_range(metadata)}{schedule}"
    if base is int:
        return f"a whole number{_range(metadata)}"
    if base in _EXACT:
        return _EXACT[base]
    if typing.get_origin(base) is Literal:
        return " or ".join(f"`{each}`" for each in arguments)
    if typing.get_origin(base) in (typing.Union, types.UnionType):
        return " or ".join(expected(each) for each in arguments)
    if typing_extensions.is_typeddict(base):
        hints = typing_extensions.get_type_hints(base, include_extras=True)
        said = (f"{name}: {expected(hint)}" for name, hint in hints.items())
        return "{" + ", ".join(said) + "}"
    if typing.get_origin(base) in (list, tuple, Sequence):
        return f"a list of {expected(arguments[0])}"
    return "anything" if base is Any else inspect.formatannotation(base)


def _custom(expected: str = "", **said: Any) -> PydanticCustomError:
    return PydanticCustomError("recipe", "expected", {"expected": expected, **said})


def _validating(annotation: Any) -> Any:
    """The annotation with our own validators in its leaves.

    Floats are numbers or schedules, booleans are no numbers, 1e3 is an integer too, and
    what was expected is said in words.
    """
    base, metadata = _unwrapped(annotation)
    if base in (inspect.Parameter.empty, Any):
        return Any
    if base is float:
        return _leaf(_number(metadata))
    if base is int:
        return _leaf(_integer(metadata))
    if base in _EXACT:
        return _leaf(_exactly(base))
    origin, arguments = typing.get_origin(base), typing.get_args(base)
    if origin is Literal:
        return _leaf(_one_of(arguments))
    if origin in (typing.Union, types.UnionType):
        members = tuple(map(_validating, arguments))
        field = pydantic.Field(union_mode="left_to_right")
        return Annotated[(typing.Union[members], field, *metadata)]  # noqa: UP007 - a tuple
    if typing_extensions.is_typeddict(base):
        inner: Any = _typed_dict(base)
    elif isinstance(base, type) and base not in (list, tuple, dict, set):
        return pydantic.InstanceOf[base]
    elif origin in (None, Callable):
        return annotation
    else:
        inner = origin[tuple(e if e is ... else _validating(e) for e in arguments)]
    return Annotated[(inner, *metadata)] if metadata else inner


def _unwrapped(annotation: Any) -> tuple[Any, tuple]:
    if typing.get_origin(annotation) is Annotated:
        return annotation.__origin__, annotation.__metadata__
    return annotation, ()


def _leaf(convert: Callable[[Any], Any]) -> Any:
    return Annotated[Any, pydantic.PlainValidator(convert)]


_EXACT = {bool: "true or false", str: "text", types.NoneType: "null"}


def _exactly(wanted: type) -> Callable[[Any], Any]:
    def convert(value: Any) -> Any:
        if not isinstance(value, wanted):
            raise _custom(_EXACT[wanted])
        return value

    return convert


def _one_of(choices: tuple) -> Callable[[Any], Any]:
    expected = " or ".join(f"`{each}`" for each in choices)

    def convert(value: Any) -> Any:
        for each in choices:
            if value == each and isinstance(value, bool) == isinstance(each, bool):
                return each
        hint = nearest(value, map(str, choices)) if isinstance(value, str) else ""
        raise _custom(expected, hint=hint if hint.startswith("did") else "")

    return convert


def _number(metadata: tuple) -> Callable[[Any], Any]:
    structural = "structural" in metadata
    expected = f"a number{_range(metadata)}"

    def convert(value: Any) -> float | schedules.Schedule:
        if structural or not isinstance(value, Mapping | schedules.Schedule):
            if not _is_number(value) or not _within(value, metadata):
                raise _custom(expected if structural else f"{expected} or a schedule")
            if not is_float32(value):
                raise _custom(f"{expected} that float32 can represent")
            if not _within_float32(value, metadata):
                raise _custom(f"{expected} when rounded to float32")
            return float(value)
        try:
            found = schedules.parse(value) if isinstance(value, Mapping) else value
        except RlcliError as error:
            raise _custom(message=error.message, hint=error.hint) from error
        for limit in found.limits():
            fits = not is_float32(limit) or _within_float32(limit, metadata)
            if not fits or not _within(limit, metadata):
                message = f"expected {expected}, got a schedule that has {limit:g}"
                raise _custom(message=message)
        return found

    return convert


def _integer(metadata: tuple) -> Callable[[Any], Any]:
    expected = f"a whole number{_range(metadata)}"
    bounded = not {"le", "lt"}.isdisjoint(_bounds(metadata))

    def convert(value: Any) -> int:
        if not _is_number(value) or value != int(value):
            raise _custom(expected)
        if not _within(int(value), metadata):
            raise _custom(expected)
        if not bounded and value > INT32_MAX:
            raise _custom(f"a whole number{_range((*metadata, Le(INT32_MAX)))}")
        if value < -INT32_MAX:
            raise _custom(f"a whole number{_range((*metadata, Ge(-INT32_MAX)))}")
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


_COMPARED = (
    ("ge", operator.ge, "at least"),
    ("gt", operator.gt, "above"),
    ("le", operator.le, "at most"),
    ("lt", operator.lt, "below"),
)


def _bounds(metadata: tuple) -> dict[str, Any]:
    kinds = Ge | Gt | Le | Lt | annotated_types.Interval
    found = [each for each in metadata if isinstance(each, kinds)]
    return {
        name: getattr(each, name)
        for each in found
        for name, _, _ in _COMPARED
        if getattr(each, name, None) is not None
    }


def _within(value: Any, metadata: tuple) -> bool:
    bounds = _bounds(metadata)
    return all(
        compare(value, bounds[name]) for name, compare, _ in _COMPARED if name in bounds
    )


def _within_float32(value: Any, metadata: tuple) -> bool:
    """Whether a number that is in range still is when rounded to float32.

    Bounds are rounded alike, so that each closed range contains its ends.
    """
    bounds, rounded = _bounds(metadata), to_float32(value)
    return all(
        compare(rounded, to_float32(bounds[name]))
        for name, compare, _ in _COMPARED
        if name in bounds and is_float32(bounds[name])
    )


def _range(metadata: tuple) -> str:
    bounds = _bounds(metadata)
    if set(bounds) == {"ge", "le"}:
        return f" from {_bound(bounds['ge'])} to {_bound(bounds['le'])}"
    words = [
        f"{word} {_bound(bounds[name])}"
        for name, _, word in _COMPARED
        if name in bounds
    ]
    if not words:
        return ""
    return (" of " if words[0].startswith("at") else " ") + " and ".join(words)


def _bound(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:,.12g}"


def _typed_dict(wanted: Any) -> Any:
    """A mapping with these keys only, whose floats may be schedules, too."""
    hints = typing_extensions.get_type_hints(wanted, include_extras=True)
    # `__required_keys__` does not see marks in annotations that are text.
    marked = {key: typing.get_origin(hint) for key, hint in hints.items()}
    required = {
        key
        for key, mark in marked.items()
        if mark is typing.Required
        or (mark is not typing.NotRequired and key in wanted.__required_keys__)
    }
    fields: dict[str, Any] = {}
    for key, hint in hints.items():
        if marked[key] in (typing.Required, typing.NotRequired):
            hint = typing.get_args(hint)[0]
        wrap = typing.Required if key in required else typing.NotRequired
        fields[key] = wrap[_validating(hint)]
    inner = typing_extensions.TypedDict(wanted.__name__, fields)  # type: ignore[misc] # made of the user's

    def check(value: Any) -> Any:
        if isinstance(value, Mapping):
            for key in value:
                if key not in fields:
                    said = {"message": "there is no such option", "below": (key,)}
                    raise _custom(**said, hint=nearest(str(key), fields))
            for key in sorted(required):
                if key not in value:
                    raise _custom(message=f"it has no `{key}`")
        return value

    return Annotated[inner, pydantic.BeforeValidator(check)]
