"""Predicates of plain data that may come from elsewhere.

`bool` is no `int` here, and a number may be infinite.
"""

from collections.abc import Callable
from typing import Any

Predicate = Callable[[Any], bool]


def of_types(*kinds: type) -> Predicate:
    """Whether a value has exactly one of these types."""
    return lambda value: type(value) in kinds


is_flag, is_int, is_number = of_types(bool), of_types(int), of_types(int, float)
is_text, is_mapping = of_types(str), of_types(dict)


def is_word(value: Any) -> bool:
    """Whether a value can be an argument of a process, or a path."""
    return is_text(value) and "\0" not in value


def or_none(is_sound: Predicate) -> Predicate:
    """Whether a value is sound, or null."""
    return lambda value: value is None or is_sound(value)


def list_of(is_sound: Predicate, size: int | None = None) -> Predicate:
    """Whether a value is a list, of this size, whose items are sound."""
    return lambda value: (
        isinstance(value, list)
        and size in (None, len(value))
        and all(map(is_sound, value))
    )


def mapping_of(is_sound: Predicate) -> Predicate:
    """Whether a value is a mapping whose values are sound."""
    return lambda value: isinstance(value, dict) and all(map(is_sound, value.values()))
