"""Grammar: options by signature, sections by dataclass."""

from __future__ import annotations

import dataclasses
from fractions import Fraction

import pytest
from wording import mentions

from rlcli import registry, schedules
from rlcli.errors import RlcliError
from rlcli.recipe import grammar
from rlcli.types import Count, NonNegative, Probability


def factory(
    window: int,
    *,
    size: Count,
    gamma: Probability = 0.99,
    lambda_: Probability = 0.95,
    layers: tuple[int, ...] = (64, 64),
    rate: NonNegative = None,  # type: ignore[assignment] # as libraries write it
) -> None:
    """A part."""


OPTIONS = registry.options(factory)


def _fail(place, message, hint):
    raise RlcliError(f"{'.'.join(map(str, place))}: {message}", hint)


def _reader(label="tracer `x`", place=("tracer",)):
    return grammar.Reader(label, place, _fail)


def _refusal(given, known=OPTIONS):
    with pytest.raises(RlcliError) as error:
        _reader().options(known, given)
    return error.value


def test_options_come_by_their_python_names_with_defaults_filled_in():
    assert _reader().options(OPTIONS, {"size": 1e1, "lambda": 1}) == {
        "size": 10,
        "gamma": 0.99,
        "lambda_": 1.0,
        "layers": (64, 64),
        "rate": None,
    }


def test_an_option_that_is_not_there_is_refused_with_the_nearest():
    error = _refusal({"size": 1, "gama": 0.9})
    assert mentions(error.message, "tracer.gama: ", "`x`", "no option")
    assert error.hint == "did you mean `gamma`?"


def test_parts_that_build_supplies_are_no_options():
    assert "has no option `window`" in _refusal({"size": 1, "window": 3}).message


def test_an_option_without_default_is_needed():
    assert mentions(_refusal({}).message, "tracer: ", "`x`", "needs", "`size`")


def test_a_wrong_option_is_refused_with_its_place():
    error = _refusal({"size": 1, "layers": [1, "x"]})
    expected = "`layers.1` of tracer `x`: expected int, got `x`"
    assert error.message == f"tracer.layers.1: {expected}"


def test_a_subsection_is_read_like_a_section():
    known = registry.options(grammar.Train)
    reader = grammar.Reader("section `train`", ("train",), _fail)
    given = {"unroll": 1, "updates": Fraction(1), "start": 0}
    read = reader.options(known, given | {"evaluate": {"every": 1e3}})
    assert read["evaluate"] == grammar.Evaluate(every=1_000, episodes=20)
    assert reader.options(known, given | {"log": None})["log"].every is None
    assert reader.options(known, given | {"stop": None})["stop"] is None
    stop = reader.options(known, given | {"stop": {"return": 475}})["stop"]
    assert stop == {"return": 475.0}
    with pytest.raises(RlcliError) as error:
        reader.options(known, given | {"evaluate": {"evry": 3}})
    expected = "`evaluate` of section `train` has no option `evry`"
    assert error.value.message == f"train.evaluate.evry: {expected}"
    with pytest.raises(RlcliError, match="expected a mapping"):
        reader.options(known, given | {"log": 1_000})


def test_plain_options_are_as_a_recipe_writes_them():
    schedule = schedules.parse_schedule({"from": 1, "to": 0})
    value = {"a": schedule, "b": (1, 2), "c": [{"d": grammar.LogPeriod(every=3)}]}
    assert grammar.to_plain(value) == {
        "a": {"name": "linear", "from": 1, "to": 0, "over": "100%", "per": "step"},
        "b": [1, 2],
        "c": [{"d": {"every": 3}}],
    }


TRAIN = grammar.Train(unroll=1, updates=Fraction(1), start=0)


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"start": 50_000}, "start"),
        ({"unroll": 50_000}, "steps"),
        ({"updates": Fraction(2)}, "updates"),
        ({"stop": {"return": 475.0}}, "stop"),
    ],
)
def test_a_section_that_contradicts_itself_is_found_out(changes, key):
    train = dataclasses.replace(TRAIN, **changes)
    found = list(grammar.contradictions(train, num_envs=2, has_replay=False))
    assert [place for place, _, _ in found] == [("train", key)]


def test_a_section_of_defaults_contradicts_nothing():
    assert not list(grammar.contradictions(TRAIN, num_envs=1, has_replay=False))
