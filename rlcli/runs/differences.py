"""Differences: the options in which two resolved recipes, or any mappings, differ."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

Differences = dict[str, tuple[Any, Any]]  # by dotted key; None where a key is missing


def find_differences(first: Any, second: Any) -> Differences:
    """The differing values of two nested mappings, by dotted key.

    >>> find_differences({"a": {"b": 1, "c": 2}}, {"a": {"b": 1, "c": 3}, "d": 4})
    {'a.c': (2, 3), 'd': (None, 4)}
    """
    return dict(_walk(first, second, ""))


def _walk(first: Any, second: Any, place: str) -> Iterator[tuple[str, tuple[Any, Any]]]:
    if not (isinstance(first, Mapping) and isinstance(second, Mapping)):
        if first != second:
            yield place, (first, second)
        return
    for key in {**first, **second}:
        below = f"{place}.{key}" if place else str(key)
        yield from _walk(first.get(key), second.get(key), below)


def continue_differences(
    before: Mapping[str, Sequence[Any]], later: Differences
) -> Differences:
    """The differences after further changes: `later` are relative to the new values.

    `before` may be that of a file, with lists for pairs.
    """
    result: Differences = {key: (old, new) for key, (old, new) in before.items()}
    for key, (old, new) in later.items():
        first = before[key][0] if key in before else old
        result[key] = (first, new)
    return {key: pair for key, pair in result.items() if pair[0] != pair[1]}
