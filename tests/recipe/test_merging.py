"""Merging: a mapping without a name changes the default part, and no more of it."""

from __future__ import annotations

import pytest
from wording import mentions

from rlcli import recipe, registry
from rlcli.errors import RlcliError
from rlcli.recipe.merging import is_by_function, merge_part
from rlcli.schedules import Schedule


def load(updater, *sets, **sections):
    data = {"environment": "CartPole-v1", "updater": updater, **sections}
    return recipe.load_recipe(data, sets)


def refusal(updater, *sets, **sections):
    with pytest.raises(RlcliError) as caught:
        load(updater, *sets, **sections)
    return caught.value


@pytest.mark.parametrize(
    ("base", "change", "merged"),
    [
        ("a", {"x": 1}, {"name": "a", "x": 1}),
        ({"name": "a", "x": 1, "y": 2}, {"x": 3}, {"name": "a", "x": 3, "y": 2}),
        ({"name": "a", "x": 1}, {"name": "a", "y": 2}, {"name": "a", "x": 1, "y": 2}),
        ({"name": "a", "x": 1}, "a", {"name": "a", "x": 1}),
        ({"name": "a", "x": 1}, {"name": "b", "y": 2}, {"name": "b", "y": 2}),
        ({"x": 1}, {"name": "b", "y": 2}, {"name": "b", "y": 2}),
        ({"x": 1}, {"y": 2}, {"x": 1, "y": 2}),
        ({"name": "a", "x": {"from": 1, "to": 0}}, {"x": {"to": 2}}, "whole values"),
        ({"name": "a", "memory": "gru"}, {"memory": {"size": 8}}, "inner parts"),
        ({"name": "a", "memory": "gru"}, {"memory": None}, "none"),
        ({"name": "a"}, None, None),
    ],
)
def test_a_part_changes_by_option_unless_it_gets_another_name(base, change, merged):
    merged = {
        "whole values": {"name": "a", "x": {"to": 2}},
        "inner parts": {"name": "a", "memory": {"name": "gru", "size": 8}},
        "none": {"name": "a", "memory": None},
    }.get(merged if isinstance(merged, str) else "", merged)
    assert merge_part("network", base, change) == merged


def test_a_value_for_all_copies_replaces_those_of_each_copy_and_the_reverse():
    base = {"name": "a", "each": {"x": [1], "y": [2]}}
    merged = merge_part("environment", base, {"x": 5})
    assert merged == {"name": "a", "each": {"y": [2]}, "x": 5}
    each = {"each": {"x": [1]}}
    merged = merge_part("environment", {"name": "a", "x": 5}, each)
    assert merged == {"name": "a", **each}


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, False),
        ("mlp", False),
        ({}, False),
        ({"name": "mlp"}, False),
        ({"layers": [8]}, False),
        ({"activation": "tanh"}, False),
        ({"layer": [8]}, False),
        ({"rate": {"from": 1, "to": 0}}, False),
        ({"policy": "mlp"}, True),
        ({"policy": {}, "value": {"layers": [8]}}, True),
        ({"default": {"layers": [8]}, "layers": "mlp"}, True),
        ({"shared": "mlp"}, True),
    ],
)
def test_a_mapping_is_one_part_if_a_key_is_an_option(value, expected):
    assert is_by_function(value, "network", "mlp") == expected


def test_an_option_without_a_name_changes_the_updaters_default_part():
    read = load(
        "rainbow",
        tracer={"gamma": 0.9},
        replay={"capacity": 100},
        policy={"epsilon": 0.5},
        network={"layers": [8]},
        optimizer={"learning_rate": {"from": 1e-4, "to": 0}},
    )
    assert read.tracer == ("tracer", "n_step", {"n": 3, "gamma": 0.9})
    assert (read.replay.name, read.replay.options["capacity"]) == ("prioritized", 100)
    assert read.replay.options["alpha"] == 0.5  # of Rainbow's default
    assert read.policy == ("policy", "epsilon_greedy", {"epsilon": 0.5})
    network = read.network["default"]
    assert (network.part.name, network.part.options["layers"]) == ("mlp", [8])
    assert network.head["name"] == "categorical" and network.head["noisy"]
    optimizer = read.optimizer["default"]
    assert optimizer.name == "adam"
    assert optimizer.options["learning_rate"] == Schedule("linear", 1e-4, 0.0)
    assert recipe.load_recipe(recipe.resolve(read)) == read


def test_a_named_part_does_not_inherit_from_the_updaters_default():
    read = load("rainbow", tracer={"name": "n_step", "gamma": 0.9})
    assert read.tracer.options == {"n": 1, "gamma": 0.9}


def test_a_setting_changes_the_default_part_of_a_section_that_the_recipe_omits():
    sets = ("tracer.gamma=0.9", "network.layers=[8]", "optimizer.learning_rate=1e-4")
    read = load("ppo", *sets)
    assert read.tracer.options == {"gamma": 0.9, "lambda_": 0.95}
    assert read.network["default"].part.options["layers"] == [8]
    assert read.optimizer["default"].options["learning_rate"] == 1e-4
    resolved = recipe.resolve(read)["tracer"]
    assert resolved == {"name": "lambda_return", "gamma": 0.9, "lambda": 0.95}


def test_an_empty_mapping_is_the_default_part():
    kinds = ("network", "policy", "tracer", "optimizer", "replay")
    assert load("dqn", **{kind: {} for kind in kinds}) == load("dqn")


def test_functions_and_groups_change_the_default_part_too():
    read = load(
        "ppo",
        network={"policy": {"layers": [8]}, "value": {"memory": "gru"}},
        optimizer={"value": {"learning_rate": 1e-2}},
    )
    assert read.network["policy"].part.options["layers"] == [8]
    assert read.network["value"].part == load("ppo").network["default"].part
    assert read.network["value"].memory.name == "gru"
    assert read.optimizer["default"] == load("ppo").optimizer["default"]
    assert read.optimizer["value"].options["learning_rate"] == 1e-2
    shared = load("ppo", network={"shared": {"layers": [8]}, "policy": {}, "value": {}})
    assert shared.network["shared"].part.options["layers"] == [8]


def test_the_recipes_own_default_is_that_of_its_functions_and_groups():
    read = load(
        "ppo",
        network={"default": {"name": "linear"}, "value": {"head": {"noisy": True}}},
        optimizer={
            "default": {"name": "sgd", "clip_norm": 2},
            "value": {"momentum": 0.5},
        },
    )
    assert read.network["value"].part.name == "linear"
    assert read.network["value"].head == {"noisy": True}
    value = read.optimizer["value"]
    assert (value.name, value.options["clip_norm"]) == ("sgd", 2.0)


@pytest.mark.parametrize(
    ("sections", "message", "hint"),
    [
        ({"tracer": {"gama": 1}}, "tracer `n_step` (the default) has no", "`gamma`?"),
        ({"tracer": {"gamma": 2}}, "`gamma` of tracer `n_step` (the default)", ""),
        (
            {"optimizer": {"learning_rat": {"from": 1, "to": 0}}},
            "`learning_rat`",
            "e`?",
        ),
        (
            {"optimizer": {"q": {"rate": 1}}},
            "optimizer `adam` (the default)",
            "ning_ra",
        ),
        ({"network": {"channels": [4]}}, "network `mlp` (the default) has", "`layers`"),
        ({"network": {"preset": "minatar"}}, "network `mlp` (the default) has", ""),
        (
            {"network": {"memory": {"size": 8}}},
            "the memory has no",
            "one of `gru`, `ls",
        ),
        (
            {"replay": {"alpha": 0.5}},
            "`uniform` (the default) has no option `alpha`",
            "",
        ),
    ],
)
def test_an_option_that_the_default_lacks_is_refused_with_the_nearest(
    sections, message, hint
):
    error = refusal("dqn", **sections)
    assert message in error.message and hint in error.hint


def test_without_a_default_the_hint_names_the_parts_with_the_options():
    error = refusal("q_learning", replay={"capacity": 9, "alpha": 0.5})
    assert error.message == "the replay has no `name`"
    assert error.hint == "name one of `prioritized`"
    error = refusal("q_learning", replay={"capacity": 9, "alph": 0.5})
    assert mentions(error.hint, "`dataset`", "`episodes`", "`frames`")
    error = refusal({"target": {"every": 9}})
    assert error.message == "the updater has no `name`"
    assert mentions(error.hint, "`rlcli list updaters`")


def test_an_updater_may_declare_any_default_part(monkeypatch):
    found = registry.find("updater", "q_learning")
    facts = {"network": {"name": "mlp", "layers": [4]}, "optimizer": "sgd"}
    key = ("updater", "q_learning")
    monkeypatch.setitem(registry.parts._BUILT_IN, key, found._replace(facts=facts))
    read = load("q_learning", network={"layer_norm": True}, optimizer={"momentum": 0.1})
    assert read.network["default"].part.options["layers"] == [4]
    assert read.optimizer["default"].name == "sgd"
