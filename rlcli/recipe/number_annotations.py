"""Number annotations: convert and validate the numbers of a recipe.

Compiled programs compute in 32 bits: a float must be finite and nonzero in float32 as
well, and stay in its range when rounded to float32. An integer must fit in an int32,
unless its annotation has an upper bound of its own.
"""

import math
import numbers
import operator
from collections.abc import Callable, Mapping
from typing import Any

import annotated_types
from annotated_types import Ge, Gt, Le, Lt
from pydantic_core import PydanticCustomError

from rlcli import schedules
from rlcli.errors import RlcliError
from rlcli.xla.numeric_limits import INT32_MAX, is_float32, to_float32


def expectation_error(expected: str = "", **details: Any) -> PydanticCustomError:
    """The error of a validator, with the type that it expects."""
    return PydanticCustomError("recipe", "expected", {"expected": expected, **details})


def number_converter(metadata: tuple) -> Callable[[Any], Any]:
    """Returns the conversion of a `float`: a number, or a schedule."""
    structural = "structural" in metadata
    expected = format_number_type("float", metadata)

    def convert(value: Any) -> float | schedules.Schedule:
        if structural or not isinstance(value, Mapping | schedules.Schedule):
            if not _is_number(value) or not _is_within(value, metadata):
                raise expectation_error(
                    expected if structural else f"{expected}, or a schedule"
                )
            if not is_float32(value):
                raise expectation_error(f"{expected} that float32 can represent")
            if not _within_float32(value, metadata):
                raise expectation_error(f"{expected} when rounded to float32")
            return float(value)
        try:
            schedule = (
                schedules.parse_schedule(value) if isinstance(value, Mapping) else value
            )
        except RlcliError as error:
            raise expectation_error(message=error.message, hint=error.hint) from error
        for limit in schedule.limits():
            fits = not is_float32(limit) or _within_float32(limit, metadata)
            if not fits or not _is_within(limit, metadata):
                message = f"expected {expected}, got a schedule that reaches {limit:g}"
                raise expectation_error(message=message)
        return schedule

    return convert


def integer_converter(metadata: tuple) -> Callable[[Any], Any]:
    """Returns the conversion of an `int`, which may be written as 1e3."""
    expected = format_number_type("int", metadata)
    bounded = not {"le", "lt"}.isdisjoint(bounds_of(metadata))

    def convert(value: Any) -> int:
        if not _is_number(value) or value != int(value):
            raise expectation_error(expected)
        if not _is_within(int(value), metadata):
            raise expectation_error(expected)
        if not bounded and value > INT32_MAX:
            limits = (*metadata, Le(INT32_MAX))
            raise expectation_error(format_number_type("int", limits))
        if value < -INT32_MAX:
            limits = (*metadata, Ge(-INT32_MAX))
            raise expectation_error(format_number_type("int", limits))
        return int(value)

    return convert


def _is_number(value: Any) -> bool:
    """Whether a value is a finite real number and not a boolean."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:  # an integer too large for a float
        return False


_COMPARISONS = (
    ("ge", operator.ge, "≥"),
    ("gt", operator.gt, ">"),
    ("le", operator.le, "≤"),
    ("lt", operator.lt, "<"),
)


def bounds_of(metadata: tuple) -> dict[str, Any]:
    """The bounds in the metadata of an annotation, by `ge`, `gt`, `le` and `lt`."""
    kinds = Ge | Gt | Le | Lt | annotated_types.Interval
    limits = [item for item in metadata if isinstance(item, kinds)]
    return {
        name: getattr(limit, name)
        for limit in limits
        for name, _, _ in _COMPARISONS
        if getattr(limit, name, None) is not None
    }


def _is_within(value: Any, metadata: tuple) -> bool:
    bounds = bounds_of(metadata)
    return all(
        compare(value, bounds[name])
        for name, compare, _ in _COMPARISONS
        if name in bounds
    )


def _within_float32(value: Any, metadata: tuple) -> bool:
    """Whether a number is in range after rounding it to float32.

    Bounds are rounded as well, so that a closed range contains its ends.
    """
    bounds, rounded = bounds_of(metadata), to_float32(value)
    return all(
        compare(rounded, to_float32(bounds[name]))
        for name, compare, _ in _COMPARISONS
        if name in bounds and is_float32(bounds[name])
    )


def format_number_type(name: str, metadata: tuple) -> str:
    """The name of a type with its range: `int ≥ 1`, `0 ≤ float < 1`."""
    bounds = {key: _format_bound(value) for key, value in bounds_of(metadata).items()}
    lower = next((key for key in ("ge", "gt") if key in bounds), None)
    upper = next((key for key in ("le", "lt") if key in bounds), None)
    symbols = {key: symbol for key, _, symbol in _COMPARISONS}
    if lower and upper:
        before = f"{bounds[lower]} {symbols[lower].translate(_MIRRORED)} "
        return f"{before}{name} {symbols[upper]} {bounds[upper]}"
    bound = lower or upper
    return f"{name} {symbols[bound]} {bounds[bound]}" if bound else name


_MIRRORED = str.maketrans("≥>", "≤<")


def _format_bound(value: float) -> str:
    # Underscores, as in YAML and Python: a comma would end the type in a message.
    return f"{value:_}" if isinstance(value, int) else f"{value:.12g}"
