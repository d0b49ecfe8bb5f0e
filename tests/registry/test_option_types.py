"""Option types: what no option may be annotated with, and limits that are combined."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, List, Literal, NewType, TypedDict  # noqa: UP035

import pytest
from annotated_types import Ge, Gt, Interval, Le, Len, Lt, MaxLen, MultipleOf, Predicate

from rlcli import registry
from rlcli.registry.option_types import bounds_of, check_annotation, unwrap

Color = enum.Enum("Color", ["RED"])
Number = NewType("Number", int)


class Tree(TypedDict, total=False):
    size: int
    inner: list[Tree]


class Layer(TypedDict):
    size: Annotated[int, MultipleOf(8)]


@pytest.mark.parametrize(
    ("annotation", "words"),
    [
        (Annotated[int, MultipleOf(2)], "`MultipleOf(multiple_of=2)` is no limit of"),
        (Annotated[float, Predicate(bool)], "is no limit of `float`"),
        (Annotated[list[int], Ge(1)], "`Ge(ge=1)` is no limit of `list[int]`"),
        (Annotated[int, MaxLen(3)], "is no limit of `int`"),
        (Annotated[int, Ge("a")], "`Ge(ge='a')` is no limit"),
        (Annotated[str | None, Lt(3)], "is no limit of"),
        (list[Annotated[int, MultipleOf(2)]], "is no limit"),
        (Mapping[str, Layer], "`MultipleOf(multiple_of=8)` is no limit"),
        (Tree, "contains itself"),
        (Literal["a", b"b"], "no recipe can contain"),
        (Literal[Color.RED], "no recipe can contain"),
        (Number, "is not a type of values"),
        (list["int"], "'int'` is not a type of values"),
        (None, "is not a type of values"),
    ],
)
def test_an_annotation_that_would_be_ignored_is_refused(annotation, words):
    with pytest.raises(TypeError) as error:
        check_annotation(annotation)
    assert words in str(error.value)


@pytest.mark.parametrize(
    "annotation",
    [
        Any,
        Annotated[int | list[int] | None, Ge(1), Len(1, 3)],
        Annotated[float, Interval(gt=0, le=1), "structural", object()],
        Iterable[Literal["a", 1, None]],
        tuple[()],
        List,  # noqa: UP006
        Callable[[int], int],
        Path,
    ],
)
def test_an_annotation_that_is_checked_is_admitted(annotation):
    check_annotation(annotation)


def test_the_annotations_of_all_parts_are_checked():
    for kind in registry.KINDS:
        for name in [each for each in registry.names(kind) if not each.endswith("/")]:
            for option in registry.options(registry.find(kind, name).factory).values():
                check_annotation(option.annotation)


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        ([Ge(5), Ge(1), Le(7), Le(9)], {"ge": 5, "le": 7}),
        ([Ge(1), Gt(1), Le(3), Lt(3)], {"gt": 1, "lt": 3}),
        ([Gt(1), Ge(2), Lt(4), Le(3)], {"ge": 2, "le": 3}),
        (unwrap(Annotated[int, Interval(ge=1, lt=5), Ge(3)])[1], {"ge": 3, "lt": 5}),
        ([], {}),
    ],
)
def test_of_several_bounds_the_tightest_count(metadata, expected):
    assert bounds_of(metadata) == expected
