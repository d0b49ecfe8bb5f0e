"""Option types: the annotations that rlcli understands, and a check of those of others.

`rlcli.recipe.annotations` converts values by them. An annotation that says nothing
about values, or has a limit that is not checked, would be ignored in silence.
"""

import functools
import inspect
import numbers
import types
import typing
from collections.abc import (
    Collection,
    Iterable,
    Iterator,
    Mapping,
    MutableMapping,
    MutableSequence,
    Sequence,
)
from typing import Annotated, Any, Literal

import annotated_types as limits

LISTS = (list, tuple, Sequence, MutableSequence, Collection, Iterable)
MAPPINGS = (dict, Mapping, MutableMapping)
UNIONS = (typing.Union, types.UnionType)
_BOUNDS = {"ge": limits.Ge, "gt": limits.Gt, "le": limits.Le, "lt": limits.Lt}
_UNRESTRICTED = (Any, inspect.Parameter.empty)


def unwrap(annotation: Any) -> tuple[Any, tuple]:
    """The type and the metadata of an annotation; an `Interval` becomes two limits."""
    if typing.get_origin(annotation) is not Annotated:
        return annotation, ()
    metadata: list[Any] = []
    for each in annotation.__metadata__:
        metadata += each if isinstance(each, limits.GroupedMetadata) else [each]
    return annotation.__origin__, tuple(metadata)


def within(annotation: Any) -> Iterator[tuple[Any, tuple]]:
    """The type and the metadata of an annotation, and of all that it contains."""
    base, metadata = unwrap(annotation)
    yield base, metadata
    for each in typing.get_args(base):
        yield from within(each)


def check_annotation(annotation: Any, around: tuple[Any, ...] = ()) -> None:
    """Raises a TypeError for an annotation that rlcli cannot check.

    `around` are the types of mappings that contain it.
    """
    base, metadata = unwrap(annotation)
    origin, arguments = typing.get_origin(base) or base, typing.get_args(base)
    for limit in metadata:
        if isinstance(limit, limits.BaseMetadata) and not _is_checked(limit, base):
            raise TypeError(f"`{limit}` is no limit of `{_format(base)}`")
    if is_typed_dict(base):
        if base in around:
            raise TypeError(f"`{_format(base)}` contains itself")
        for field, _ in typed_dict_fields(base).values():
            check_annotation(field, (*around, base))
    elif origin is Literal:
        if not all(isinstance(each, str | int | float | None) for each in arguments):
            raise TypeError(f"no recipe can contain one of `{_format(base)}`")
    elif origin in (*LISTS, *MAPPINGS, *UNIONS):
        for each in arguments:
            if each is not ...:
                check_annotation(each, around)
    elif base not in _UNRESTRICTED and not isinstance(origin, type):
        raise TypeError(f"`{_format(base)}` is not a type of values")


def _is_checked(limit: limits.BaseMetadata, base: Any) -> bool:
    """Whether a limit is checked for values of a type, or of a member of a union."""
    origin = typing.get_origin(base) or base
    if origin in UNIONS:
        members = (unwrap(each)[0] for each in typing.get_args(base))
        return any(_is_checked(limit, each) for each in members)
    if origin in (int, float):
        bounds = bounds_of([limit]).values()
        return bool(bounds) and all(isinstance(each, numbers.Real) for each in bounds)
    has_length = origin in (str, *LISTS, *MAPPINGS)
    return has_length and isinstance(limit, limits.MinLen | limits.MaxLen)


def members_of(union: Any, metadata: tuple) -> list[Any]:
    """The members of a union, each with the limits of the union."""
    members = typing.get_args(union)
    return [Annotated[(each, *metadata)] if metadata else each for each in members]


def bounds_of(metadata: Sequence[Any]) -> dict[str, Any]:
    """The tightest bounds among limits, by `ge` or `gt`, and by `le` or `lt`."""
    bounds = [
        (getattr(each, name), name)
        for each in metadata
        for name, kind in _BOUNDS.items()
        if isinstance(each, kind)
    ]
    lows = sorted(each for each in bounds if each[1] in ("ge", "gt"))
    # Of equal bounds the one that excludes itself is tighter, here as above.
    highs = [each for each in bounds if each[1] in ("le", "lt")]
    highs.sort(key=lambda each: (each[0], each[1] == "le"))
    return {name: bound for bound, name in (*lows[-1:], *highs[:1])}


def lengths_of(metadata: Sequence[Any]) -> tuple[int, int | None]:
    """The least and the largest length among limits; None if there is no largest."""
    least = [each.min_length for each in metadata if isinstance(each, limits.MinLen)]
    most = [each.max_length for each in metadata if isinstance(each, limits.MaxLen)]
    return max(least, default=0), min(most, default=None)


def _format(annotation: Any) -> str:
    return inspect.formatannotation(annotation)


def is_typed_dict(annotation: Any) -> bool:
    """Whether an annotation is a `TypedDict`, of `typing` or `typing_extensions`."""
    return hasattr(annotation, "__required_keys__")


@functools.cache
def typed_dict_fields(typed_dict: Any) -> dict[str, tuple[Any, bool]]:
    """The annotation of each key, and whether the key is required."""
    hints = typing.get_type_hints(typed_dict, include_extras=True)
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
