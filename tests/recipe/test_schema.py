"""The JSON Schema of recipes: it accepts what rlcli accepts, as editors read it."""

import copy
import json
import re

import pytest

import rlcli
from rlcli import recipe, registry
from rlcli.errors import RlcliError
from rlcli.recipe import documents, grammar

jsonschema = pytest.importorskip("jsonschema")
RECIPES = sorted(recipe.shipped_recipes().items())
BASE = {
    "environment": {"name": "CartPole-v1", "num_envs": 8},
    "network": {"name": "mlp", "layers": [64, 64]},
    "policy": {"name": "epsilon_greedy", "epsilon": {"from": 1.0, "to": 0.1}},
    "replay": {"name": "uniform", "capacity": 1_000},
    "updater": {"name": "q_learning", "target": {"polyak": 0.1}},
    "optimizer": {"name": "adam", "learning_rate": 1e-3},
    "train": {"steps": 5_000, "log": {"every": 100}},
}


@pytest.fixture(scope="module")
def schema():
    return rlcli.schema()


@pytest.fixture(scope="module")
def validator(schema):
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def changed(place, value):
    """The base recipe with one value replaced."""
    data = copy.deepcopy(BASE)
    *parents, last = place.split(".")
    inner = data
    for key in parents:
        inner = inner.setdefault(key, {})
    inner[last] = value
    return data


def is_accepted(data):
    try:
        recipe.load_recipe(data)
    except RlcliError:
        return False
    return True


@pytest.mark.parametrize("path", [p for _, p in RECIPES], ids=[n for n, _ in RECIPES])
def test_a_shipped_recipe_is_valid_as_written_and_with_all_defaults(path, validator):
    validator.validate(documents.load_document(path).data)
    validator.validate(recipe.resolve(recipe.load_recipe(path)))


def test_a_recipe_that_extends_another_one_needs_no_section(validator):
    data = {"extends": "dqn_cartpole", "environment": {"num_envs": 2}, "train": {}}
    validator.validate(data)
    assert is_accepted(data)
    assert not validator.is_valid({"train": {}})


def test_the_sections_are_those_of_the_grammar(schema):
    assert {*schema["properties"]} == {"extends", *grammar.SECTIONS} - {None}


def test_numbers_with_underscores_are_valid_as_editors_read_them(validator):
    data = changed("train.steps", "50_000")  # YAML 1.2 reads a string
    data["policy"]["epsilon"]["over"] = "8_000"
    data["optimizer"]["learning_rate"] = "1_0.5e-3"
    validator.validate(data)
    for text in ("many", "50000", "_1", "5_0 steps"):
        assert not validator.is_valid(changed("train.steps", text)), text


GOOD = [
    ("extends", "dqn_cartpole"),
    ("extends", ["dqn_cartpole", "ppo_cartpole"]),
    ("tracer", {"gamma": 0.9}),
    ("network", {"layers": [8]}),
    ("network", {"q": {"layers": [8]}}),
    ("optimizer", {"learning_rate": 0.1}),
    ("environment", "CartPole-v1"),
    ("environment.length", {"from": 0.5, "to": 1.0, "over": "20%"}),
    ("environment.each", {"length": [0.5, 0.7]}),
    ("environment.each", {"length": {"log_uniform": [0.5, 0.7]}}),
    ("environment.each", {"length": {"choice": [0.5, 0.7, 3]}, "gravity": [9]}),
    (
        "environment",
        {"name": "gymnasium/CartPole-v1", "each": {"low": {"uniform": [-1, 0]}}},
    ),
    ("train.evaluate", {"grid": {"length": [0.5, 0.7]}}),
    ("environment.wrappers", ["previous", {"name": "reward_noise", "scale": 0.5}]),
    ("environment.time_limit", None),
    ("environment", {"name": "gymnasium/CartPole-v1", "vectorization": "async"}),
    ("network", "table"),
    ("network.memory", "gru"),
    ("network.preprocess", ["one_hot"]),
    ("network.head", {"dueling": True}),
    ("network.head", "quantile"),
    ("network", {"q": {"name": "mlp"}}),
    ("network", None),
    ("policy", "epsilon_greedy"),
    ("policy.epsilon", {"steps": [[0, 1.0], [100, 0.1]]}),
    (
        "policy.epsilon",
        {"name": "exponential", "from": 1, "rate": 0.1, "per": "episode"},
    ),
    ("replay", None),
    ("tracer", {"name": "n_step", "n": 1e1}),
    ("train.updates", {"per_step": 0.5}),
    ("train.log", None),
    ("train.stop", None),
    ("normalize", {"reward": True}),
    ("init", "zoo/ppo_cartpole"),
    ("init", {"from": "a", "seed": 3, "parts": {"policy/torso": "q/torso"}}),
    ("init", {"from": "a", "seed": "match", "parts": ["policy"], "keep_head": False}),
    ("freeze", ["policy/torso"]),
    ("freeze", {"policy/torso": 2e4, "value": True}),
    ("extra", {"anything": [1, {"b": None}]}),
    ("optimizer", {"q": {"name": "sgd", "learning_rate": 0.1}}),
]
BAD = [
    ("environments", {}),
    ("environment", None),
    ("environment", {}),
    ("environment", 3),
    ("environment", "CartPole-v9"),
    ("environment.num_env", 8),
    ("environment.num_envs", 0),
    ("environment.num_envs", 1.5),
    ("environment.num_envs", True),
    ("environment.length", "long"),
    ("environment.each", {"lengths": [1]}),
    ("environment.each", {"length": 1}),
    ("environment.each", {"length": {"uniform": [1]}}),
    ("environment.each", {"length": {"uniform": [1, 2], "choice": [1]}}),
    ("environment.each", {"length": {"normal": [1, 2]}}),
    ("environment", {"name": "gymnasium/CartPole-v1", "each": {"low": [1]}}),
    ("train.evaluate", {"grid": {"length": 1}}),
    ("environment.wrappers", ["previus"]),
    ("network.layers", 64),
    ("network.layer", [64]),
    ("network.layers", ["wide"]),
    ("network.memory", "gruu"),
    ("network.head", {"duelling": True}),
    ("network.head", "quantiles"),
    ("policy.epsilon", 1.5),
    ("policy.epsilon", {"from": 1.0}),
    ("policy.epsilon", {"from": 1.0, "to": 0.1, "over": "soon"}),
    ("policy.epsilon", {"name": "linar", "from": 1.0, "to": 0.1}),
    ("policy", "greedy_epsilon"),
    ("replay.capacity", -1),
    ("extends", 3),
    ("tracer", {"gama": 0.9}),
    ("network", {"layer": [8]}),
    ("environment", {"num_envs": 2}),
    ("updater", {"loss": "mse"}),
    ("updater", None),
    ("updater", "q_lerning"),
    ("updater.target", {"poliak": 0.1}),
    ("updater.target", {"polyak": 2}),
    ("updater.loss", "l2"),
    ("optimizer.learning_rat", 0.1),
    ("optimizer", {"name": "addam"}),
    ("train.steps", "many"),
    ("train.step", 1),
    ("train.log", {"evry": 5}),
    ("train.seeds", 0),
    ("train.updates", {"per_steps": 1}),
    ("normalize", {"rewards": True}),
    ("init", {}),
    ("init", {"from": "a", "seed": -1}),
    ("init", {"from": "a", "parts": "policy"}),
    ("freeze", {"policy": 0}),
    ("freeze", {"policy": False}),
    ("plugins", ["a"]),
]


@pytest.mark.parametrize(("place", "value"), GOOD, ids=lambda each: f"{each}"[:40])
def test_a_recipe_that_rlcli_accepts_is_valid(place, value, validator):
    data = changed(place, value)
    validator.validate(data)
    assert is_accepted(data)


@pytest.mark.parametrize(("place", "value"), BAD, ids=lambda each: f"{each}"[:40])
def test_a_recipe_that_rlcli_refuses_is_not_valid(place, value, validator):
    data = changed(place, value)
    assert not validator.is_valid(data)
    assert not is_accepted(data)


@pytest.mark.parametrize("kind", registry.KINDS)
def test_every_part_and_every_option_is_in_the_schema(kind, schema):
    listed = {
        text
        for text in re.findall(r'"const": "([^"]+)"', json.dumps(schema["$defs"][kind]))
    }
    names = {name for name in registry.names(kind) if not name.endswith("/")}
    assert names <= listed
    for name in registry.names(kind):
        definition = schema["$defs"][f"{kind}.{name.rstrip('/').replace('/', '.')}"]
        part = registry.find(kind, f"{name}x" if name.endswith("/") else name)
        assert registry.options(part.factory).keys() < definition["properties"].keys()


@pytest.mark.parametrize("kind", registry.KINDS)
def test_the_defaults_of_every_option_are_valid(kind, schema):
    for name in registry.names(kind):
        definition = schema["$defs"][f"{kind}.{name.rstrip('/').replace('/', '.')}"]
        part = registry.find(kind, f"{name}x" if name.endswith("/") else name)
        for key, parameter in registry.options(part.factory).items():
            if parameter.default is parameter.empty:
                assert key in definition["required"]
                continue
            option = {**definition["properties"][key], "$defs": schema["$defs"]}
            value = grammar.to_plain(parameter.default)
            assert jsonschema.Draft202012Validator(option).is_valid(value), (name, key)


def test_own_parts_are_valid_by_their_import_path(validator):
    validator.validate(changed("updater", {"name": "my.parts:spo", "anything": [1]}))
    validator.validate(changed("environment", "my_env:MyEnv"))


def test_plug_ins_are_in_the_schema_and_broken_ones_have_no_options(
    tmp_path, monkeypatch
):
    (tmp_path / "shaky.py").write_text(
        "from rlcli.networks.torsos import mlp\n"
        "def narrow(*, width: int = 8):\n    return mlp(layers=[width])\n"
    )
    folder = tmp_path / "shaky-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: shaky\n")
    (folder / "entry_points.txt").write_text(
        "[rlcli.v1.networks]\nnarrow = shaky:narrow\nbroken = not_there:x\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    registry.entry_points.cache_clear()
    try:
        validator = jsonschema.Draft202012Validator(rlcli.schema())
    finally:
        registry.entry_points.cache_clear()
    assert validator.is_valid(changed("network", {"name": "narrow", "width": 3}))
    assert not validator.is_valid(changed("network", {"name": "narrow", "widht": 3}))
    assert validator.is_valid(changed("network", {"name": "broken", "any": 3}))


def test_the_schema_is_written_to_a_file(tmp_path, schema):
    written = rlcli.schema(output=tmp_path / "s.json")
    assert json.loads((tmp_path / "s.json").read_text(encoding="utf-8")) == schema
    assert written == schema
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    with pytest.raises(RlcliError, match="cannot be written"):
        rlcli.schema(output=tmp_path / "no" / "s.json")
