"""Annotations: what they admit, what they convert, and how they refuse."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Annotated, Any, List, Literal, NotRequired, TypedDict  # noqa: UP035

import numpy as np
import pytest
from annotated_types import Ge, Le, Len, Lt, MaxLen, MinLen

from rlcli.recipe.annotations import (
    MismatchError,
    convert,
    describe_annotation,
    describe_fields,
    is_schedulable,
)
from rlcli.recipe.option_schemas import annotation_schema
from rlcli.schedules import Schedule
from rlcli.types import Count, NonNegative, Positive, Probability, Structural

LINEAR = {"from": 1.0, "to": 0.5}


class Target(TypedDict, total=False):
    polyak: Probability
    every: Count


class Regularizer(TypedDict):
    name: Literal["entropy", "l2"]
    weight: NonNegative
    decay: NotRequired[float]


@pytest.mark.parametrize(
    ("annotation", "value", "expected"),
    [
        (float, 1, 1.0),
        (float, np.float32(0.5), 0.5),
        (Probability, 0, 0.0),
        (Structural, 2.5, 2.5),
        (int, 1e3, 1_000),
        (Count, 7, 7),
        (bool, False, False),
        (str, "relu", "relu"),
        (Any, {"a": 1}, {"a": 1}),
        (Positive | None, None, None),
        (Positive | None, 3, 3.0),
        (int | Literal["auto"], "auto", "auto"),
        (int | Literal["auto"], 4, 4),
        (list[Count], [64, 64.0], [64, 64]),
        (tuple[int, ...], [1, 2], (1, 2)),
        (tuple[int, str], [1, "x"], (1, "x")),
        (Sequence[int], [1, 2], [1, 2]),
        (Mapping[str, float], {"a": 1}, {"a": 1.0}),
        (dict[str, list[int]], {"a": [1]}, {"a": [1]}),
        (Target, {"polyak": 1}, {"polyak": 1.0}),
        (Target | None, None, None),
        (
            list[Regularizer],
            [{"name": "l2", "weight": 0}],
            [{"name": "l2", "weight": 0.0}],
        ),
    ],
)
def test_a_value_becomes_what_its_annotation_says(annotation, value, expected):
    found = convert(annotation, value)
    assert found == expected and type(found) is type(expected)


@pytest.mark.parametrize(
    ("annotation", "value", "message"),
    [
        (float, 1e39, "expected float that float32 can represent, got `1.0e+39`"),
        (float, -1e39, "expected float that float32 can represent, got"),
        (NonNegative, 1e-50, "expected float ≥ 0 that float32 can"),
        (Positive, 1e-40, "expected float > 0 that float32 can represent"),
        (Structural, 1e300, "expected float that float32 can represent"),
        (
            Annotated[float, Lt(1.0)],
            1 - 1e-12,
            "expected float < 1 when rounded",
        ),
        (
            float,
            {"from": 1e39, "to": 0},
            "`from` of a schedule must be a number that float",
        ),
        (
            float,
            {"from": 1, "to": 0, "over": 1e-40},
            "`over` of a schedule must be > 0",
        ),
        (int, 2**31, "expected int ≤ 2_147_483_647, got"),
        (int, -(2**31), "expected int ≥ -2_147_483_647, got"),
        (Count, 2**31, "expected 1 ≤ int ≤ 2_147_483_647, got"),
        (int | None, 10**400, "expected int | null, got `1000"),
        (int, 10**5_000, "expected int, got a int"),
        (float, 10**400, "expected float, or a schedule, got `1000"),
        (
            Annotated[int, Le(2**40)],
            2**41,
            "expected int ≤ 1_099_5",
        ),
    ],
    ids=lambda each: str(each)[:30] if not isinstance(each, int) else "number",
)
def test_a_number_that_32_bits_cannot_hold_is_refused(annotation, value, message):
    with pytest.raises(MismatchError) as error:
        convert(annotation, value)
    assert error.value.message.startswith(message)
    assert len(error.value.message) < 200


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (float, 3.4e38),
        (Positive, 1.2e-38),
        (NonNegative, 0.0),
        (Annotated[float, Le(0.1)], 0.1),  # which float32 rounds up
        (Annotated[int, Le(2**40)], 2**40),
        (int, 2**31 - 1),
    ],
)
def test_a_number_at_the_end_of_its_range_is_admitted(annotation, value):
    assert convert(annotation, value) == value


def test_what_has_no_annotation_we_know_is_left_alone():
    assert convert(Callable[[int], int], abs) is abs


@pytest.mark.parametrize(
    ("annotation", "value", "message"),
    [
        (float, "x", "expected float, or a schedule, got `x`"),
        (float, True, "expected float, or a schedule, got `true`"),
        (float, float("nan"), "expected float, or a schedule, got `.nan`"),
        (float, float("inf"), "expected float, or a schedule, got `.inf`"),
        (Probability, 1.5, "expected 0 ≤ float ≤ 1, or a schedule, got `1.5`"),
        (Positive, 0, "expected float > 0, or a schedule, got `0`"),
        (NonNegative, -1, "expected float ≥ 0, or a schedule, got `-1`"),
        (Structural, LINEAR, "expected float, got `{from: 1.0, to: 0.5}`"),
        (int, 1.5, "expected int, got `1.5`"),
        (int, True, "expected int, got `true`"),
        (int, float("inf"), "expected int, got `.inf`"),
        (int, LINEAR, "expected int, got `{from: 1.0, to: 0.5}`"),
        (Count, 0, "expected int ≥ 1, got `0`"),
        (
            Annotated[int, Ge(0), Lt(10)],
            10,
            "expected 0 ≤ int < 10, got `10`",
        ),
        (bool, 1, "expected bool, got `1`"),
        (bool, "true", "expected bool, got `'true'`"),
        (str, 3, "expected str, got `3`"),
        (Literal["mse", "huber"], "hubr", 'expected "mse" | "huber", got `hubr`'),
        (Literal[1, 2], True, "expected 1 | 2, got `true`"),
        (Positive | None, "x", "expected float > 0, or a schedule, or null, got"),
        (int | Literal["auto"], "all", 'expected int | "auto", got `all`'),
        (list[int], 3, "expected list, got `3`"),
        (list[int], "ab", "expected list, got `ab`"),
        (tuple[int, ...], 3, "expected list, got `3`"),
        (Mapping[str, int], 3, "expected mapping, got `3`"),
        (Target, 3, "expected mapping, got `3`"),
        (
            Annotated[list[int], MinLen(1)],
            [],
            "expected list of 1 or more entries, got `[]`",
        ),
        (
            Annotated[list[int] | None, Len(1, 2)],
            [1, 2, 3],
            "expected list of at most 2 entries | null, got `[1, 2, 3]`",
        ),
        (Annotated[str, MinLen(2)], "a", "expected str of 2 or more characters, got"),
        (
            Annotated[Mapping[str, int], MaxLen(0)],
            {"a": 1},
            "expected mapping of at most 0 entries, got `{a: 1}`",
        ),
        (Annotated[int, Ge(5), Ge(1)], 2, "expected int ≥ 5, got `2`"),
        (Iterable[int], "ab", "expected list, got `ab`"),
    ],
)
def test_a_value_that_does_not_fit_is_refused_with_what_was_expected(
    annotation, value, message
):
    with pytest.raises(MismatchError) as error:
        convert(annotation, value)
    assert error.value.message.startswith(message) and error.value.place == ()


@pytest.mark.parametrize(
    ("annotation", "value", "place", "message"),
    [
        (list[int], [1, "x"], (1,), "expected int, got `x`"),
        (Target | None, {"polyk": 1}, ("polyk",), "unknown option"),
        (Target | None, {"polyak": 2}, ("polyak",), "expected 0 ≤ float ≤ 1"),
        (list[Regularizer], [{"name": "l2"}], (0,), "`weight` is missing"),
        (
            list[Regularizer],
            [{"name": "l2", "weight": {"from": 1}}],
            (0, "weight"),
            "schedule `linear` has no `to`",
        ),
        (Mapping[str, int], {"a": 1, "b": "x"}, ("b",), "expected int"),
    ],
)
def test_a_refusal_says_where_within_the_value(annotation, value, place, message):
    with pytest.raises(MismatchError) as error:
        convert(annotation, value)
    assert error.value.place == place
    assert error.value.message.startswith(message)


def test_a_misspelt_word_is_hinted_at():
    with pytest.raises(MismatchError) as error:
        convert(Literal["mse", "huber"], "hubr")
    assert error.value.hint == "did you mean `huber`?"
    with pytest.raises(MismatchError) as error:
        convert(Target, {"polyk": 1})
    assert error.value.hint == "did you mean `polyak`?"


def test_floats_may_be_schedules_wherever_they_are():
    assert isinstance(convert(float, LINEAR), Schedule)
    assert isinstance(convert(Positive | None, LINEAR), Schedule)
    assert isinstance(convert(Target, {"polyak": LINEAR})["polyak"], Schedule)
    inner = convert(list[Regularizer], [{"name": "l2", "weight": LINEAR}])
    assert isinstance(inner[0]["weight"], Schedule)


@pytest.mark.parametrize(
    "schedule",
    [
        {"from": 1.0, "to": 1.5},
        {"steps": [[0, 0.5], [10, -0.1]]},
        {"name": "inverse", "from": 2.0, "rate": 0.1},
    ],
)
def test_a_schedule_that_leaves_the_range_is_refused(schedule):
    with pytest.raises(MismatchError, match="got a schedule that reaches"):
        convert(Probability, schedule)


def test_a_schedule_that_only_comes_near_to_zero_is_positive():
    assert convert(Positive, {"name": "exponential", "from": 1, "rate": 0.1})
    with pytest.raises(MismatchError):
        convert(Positive, {"from": 1, "to": 0})


def test_only_floats_that_shape_nothing_may_follow_a_schedule():
    assert is_schedulable(float) and is_schedulable(Probability)
    assert not is_schedulable(Structural) and not is_schedulable(Count)


def test_a_typed_dict_is_described_by_its_keys_and_their_types():
    assert describe_annotation(Target | None) == "{polyak?, every?} | null"
    assert describe_annotation(list[Regularizer]) == "list[{name, weight, decay?}]"
    assert describe_fields(list[Regularizer]) == {
        "name": '"entropy" | "l2"',
        "weight": "float ≥ 0, or a schedule",
        "decay": "float, or a schedule, optional",
    }
    assert describe_fields(int | None) == {}


@pytest.mark.parametrize(
    ("annotation", "text", "schema"),
    [
        (
            *(Annotated[list[str] | None, Len(1, 2)], "list[str] | null"),
            {
                "anyOf": [
                    {
                        **{"type": "array", "items": {"type": "string"}},
                        **{"minItems": 1, "maxItems": 2},
                    },
                    {"type": "null"},
                ]
            },
        ),
        (List, "list[any]", {"type": "array", "items": {}}),  # noqa: UP006
        (tuple[()], "list[any]", {"type": "array", "items": {}}),
        (
            Annotated[dict, MinLen(1)],
            "mapping[any, any]",
            {"type": "object", "additionalProperties": {}, "minProperties": 1},
        ),
    ],
)
def test_lists_and_mappings_of_anything_are_described(annotation, text, schema):
    assert describe_annotation(annotation) == text
    assert annotation_schema(annotation) == schema


@pytest.mark.parametrize("annotation", [Any, inspect.Parameter.empty])
def test_an_option_of_any_type_is_described_as_such(annotation):
    assert describe_annotation(annotation) == "any"
