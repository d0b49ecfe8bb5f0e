"""Recipes: defaults, the fixed point of resolving, and every way to be refused."""

from __future__ import annotations

import dataclasses
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from wording import mentions

from rlcli import recipe, registry
from rlcli.errors import RlcliError
from rlcli.recipe import documents, loading
from rlcli.schedules import Schedule

DQN = """\
environment: {name: CartPole-v1, num_envs: 4}
network:     {name: mlp, layers: [128, 128]}
policy:      {name: epsilon_greedy, epsilon: {from: 1.0, to: 0.02, over: 20%}}
tracer:      {name: n_step, n: 3, gamma: 0.99}
replay:      {name: uniform, capacity: 50_000, batch_size: 64}
updater:     {name: double_q_learning, target: {polyak: 0.005}}
optimizer:   {name: adam, learning_rate: 5e-4, clip_norm: 10}
train:       {steps: 50_000, seeds: 1}
"""
LEAST = {"environment": "CartPole-v1", "updater": "ppo"}
REPLAY = {**LEAST, "updater": "q_learning", "replay": "uniform"}


@pytest.fixture
def adapter(monkeypatch):
    """An adapter `tests/…`, as those of other libraries are registered."""

    def factory(id, num_envs, seeds, time_limit, *, options: dict | None = None):
        raise NotImplementedError

    registry.names("environment")
    key = ("environment", "tests/")
    facts = {"adapter": True, "time_limit": "default"}
    monkeypatch.setitem(
        registry.parts._BUILT_IN, key, registry.RegisteredPart(*key, factory, facts)
    )


@pytest.fixture
def recipe_file(tmp_path):
    def write(text):
        path = tmp_path / "dqn.yaml"
        path.write_text(text)
        return path

    return write


def _refusal(path, *sets, **keywords):
    with pytest.raises(RlcliError) as error:
        recipe.load_recipe(path, sets, **keywords)
    return error.value


def test_the_recipe_of_the_readme_is_read(recipe_file):
    read = recipe.load_recipe(recipe_file(DQN))
    assert read.name == "dqn" and read.source.endswith("dqn.yaml")
    assert read.environment.name == "CartPole-v1"
    assert (read.num_envs, read.time_limit) == (4, 500)
    assert read.network[recipe.DEFAULT].part.options["layers"] == [128, 128]
    epsilon = read.policy.options["epsilon"]
    assert epsilon == Schedule("linear", 1.0, 0.02, 20.0, percent=True)
    assert read.tracer.options == {"n": 3, "gamma": 0.99}
    expected = {"capacity": 50_000, "batch_size": 64, "replacement": True}
    assert read.replay.options == {
        **expected,
        "prefill": None,
        "prefill_fraction": None,
    }
    assert read.updater.options["target"] == {"polyak": 0.005}
    assert read.optimizer[recipe.DEFAULT].options["learning_rate"] == 5e-4
    assert read.train.steps == 50_000 and read.train.unroll == 1
    assert read.document.text == DQN


def test_only_environment_and_updater_are_required():
    read = recipe.load_recipe(LEAST)
    assert read.policy.name == "sampled" and read.tracer.name == "lambda_return"
    assert read.tracer.options == {"gamma": 0.99, "lambda_": 0.95}
    assert read.replay is None and read.train.unroll == 128
    assert read.optimizer[recipe.DEFAULT].options["learning_rate"] == 1e-3
    assert read.train.start == 0 and read.train.log.every == 1_000
    assert read.extra == {}


def test_an_agent_with_a_replay_learns_at_every_step_once_it_has_some():
    train = recipe.load_recipe({**REPLAY, "train": {"steps": 3_000}}).train
    assert (train.unroll, train.start, train.updates) == (1, 300, 1)


def test_a_section_that_is_null_has_its_defaults():
    nothing = dict.fromkeys(
        ["network", "policy", "tracer", "optimizer", "train", "vary", "extra"]
    )
    assert recipe.load_recipe({**LEAST, **nothing}) == recipe.load_recipe(LEAST)


def test_an_adapter_has_a_timeout_and_a_time_limit_of_its_own(adapter):
    environment = {"name": "tests/X-v0", "timeout": 60, "options": {"a": [1]}}
    read = recipe.load_recipe({**LEAST, "environment": environment})
    assert (read.time_limit, read.timeout) == ("default", 60.0)
    assert read.environment.options == {"options": {"a": [1]}}
    assert recipe.load_recipe(recipe.resolve(read)) == read


def test_what_an_updater_prefers_is_the_default(monkeypatch):
    registry.names("updater")
    found = registry.find("updater", "q_learning")
    facts = {**found.facts, "replay": "uniform", "network": "linear"}
    facts["head"] = {"dueling": True}
    key = ("updater", "q_learning")
    monkeypatch.setitem(registry.parts._BUILT_IN, key, found._replace(facts=facts))
    read = recipe.load_recipe({"environment": "CartPole-v1", "updater": "q_learning"})
    assert read.replay.name == "uniform"
    assert read.network["default"].part.name == "linear"
    assert read.network["default"].head == {"dueling": True}
    online = recipe.load_recipe({**LEAST, "updater": "q_learning", "replay": None})
    assert online.replay is None
    assert recipe.load_recipe(recipe.resolve(read)) == read
    assert recipe.load_recipe(recipe.resolve(online)) == online


_schedules = st.sampled_from(
    [
        {"from": 1, "to": 0.1},
        {"from": 1e-3, "to": 5e-4, "over": "12.5%"},
        {"name": "cosine", "from": 0.5, "to": 0.1, "over": 100},
        {"name": "inverse", "from": 0.3, "rate": 1e-3},
        {"name": "exponential", "from": 0.3, "rate": 1e-3, "per": "episode"},
        {"steps": [[0, 0.5], [1_000, 0.1]]},
    ]
)
_numbers = st.one_of(st.floats(1e-9, 1.0), _schedules)
_recipes = st.fixed_dictionaries(
    {
        "environment": st.fixed_dictionaries(
            # At least as many as `each` has values.
            {"name": st.just("CartPole-v1"), "num_envs": st.integers(3, 9)},
            optional={
                "time_limit": st.none() | st.integers(1, 10**9),
                "length": _numbers,
                "each": st.fixed_dictionaries(
                    {"masspole": st.lists(st.floats(0.1, 1), min_size=1, max_size=3)}
                ),
            },
        ),
        "updater": st.sampled_from(
            [
                "q_learning",
                {"name": "double_q_learning", "target": {"every": 10}},
                {"name": "double_q_learning", "target": None, "loss": "mse"},
            ]
        ),
    },
    optional={
        "network": st.sampled_from(
            [
                "table",
                {"name": "mlp", "layers": [3], "head": {"dueling": True}},
                {"q": {"name": "linear"}},
                {"shared": {"name": "mlp"}, "q": {"dueling": False}},
            ]
        ),
        "policy": st.fixed_dictionaries(
            {"name": st.just("epsilon_greedy")}, optional={"epsilon": _numbers}
        ),
        "tracer": st.fixed_dictionaries(
            {"name": st.just("lambda_return")},
            optional={"lambda": _numbers, "gamma": _numbers},
        ),
        "replay": st.none() | st.just({"name": "uniform", "batch_size": 8}),
        "optimizer": st.one_of(
            st.just("sgd"),
            st.fixed_dictionaries(
                {"name": st.just("adam")},
                optional={"learning_rate": _numbers, "clip_norm": _numbers},
            ),
            st.fixed_dictionaries({"q": st.just({"name": "sgd", "nesterov": True})}),
        ),
        "train": st.fixed_dictionaries(
            {"steps": st.integers(1_000, 10**9)},
            optional={
                "unroll": st.integers(1, 20),
                "seed": st.integers(0, 2**31 - 1),
                "seeds": st.integers(1, 20),
                "threads": st.just("auto") | st.integers(1, 4),
                "warmup": st.sampled_from(["policy", "random"]),
                "log": st.sampled_from([None, {"every": 10}, {"every": None}]),
                "evaluate": st.just({"every": 5e3, "episodes": 2}),
                "on_nan": st.sampled_from(["stop", "freeze"]),
            },
        ),
        "extra": st.dictionaries(
            st.text(st.characters(categories=["Ll"]), min_size=1, max_size=5),
            st.one_of(st.text(max_size=5), st.integers(), st.lists(st.booleans())),
            max_size=3,
        ),
    },
)


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given(_recipes)
def test_a_resolved_recipe_is_the_same_recipe(data):
    read = recipe.load_recipe(data)
    again = recipe.resolve(read)
    assert recipe.load_recipe(again) == read
    assert recipe.resolve(recipe.load_recipe(again)) == again
    assert documents.load_document(recipe.dump_recipe(again)).data == again


@settings(max_examples=30, deadline=None)
@given(st.floats(1e-3, 10), st.integers(1, 16), st.integers(1, 8))
def test_updates_per_step_are_the_same_when_resolved(per_step, num_envs, unroll):
    data = {**REPLAY, "environment": {"name": "CartPole-v1", "num_envs": num_envs}}
    data["train"] = {"updates": {"per_step": per_step}, "unroll": unroll}
    read = recipe.load_recipe(data)
    assert recipe.load_recipe(recipe.resolve(read)) == read


@pytest.mark.parametrize("name", recipe.shipped_recipes())
def test_a_shipped_recipe_is_found_by_name_and_stays_the_same_when_resolved(name):
    read = recipe.load_recipe(name)
    assert read.name == name
    assert recipe.load_recipe(recipe.resolve(read)) == read


def test_there_are_shipped_recipes():
    assert "dqn_cartpole" in recipe.shipped_recipes()


def test_a_path_wins_over_a_name(folder):
    (folder / "dqn_cartpole").write_text(DQN.replace("seeds: 1", "seeds: 9"))
    assert recipe.load_recipe("dqn_cartpole").train.seeds == 9
    (folder / "ppo_cartpole").mkdir()
    assert recipe.load_recipe("ppo_cartpole").updater.name == "ppo"


def test_a_name_that_is_not_shipped_is_refused_with_the_nearest():
    error = _refusal("dqn_cartpol")
    assert mentions(error.message, "no recipe", "`dqn_cartpol`")
    assert error.hint == "did you mean `dqn_cartpole`?"


def test_a_path_that_is_not_there_is_refused(tmp_path):
    for path in (tmp_path / "no.yaml", str(tmp_path / "no"), "no.yaml"):
        assert "there is no file" in _refusal(path).message
    assert "is a folder" in _refusal(str(tmp_path)).message


def test_sets_replace_what_the_file_says(recipe_file):
    sets = ["train.steps=2e4", "policy=random", "optimizer.learning_rate=0.1"]
    read = recipe.load_recipe(recipe_file(DQN), sets)
    assert read.train.steps == 20_000 and read.policy.name == "random"
    assert read.optimizer["default"].options["learning_rate"] == 0.1
    assert read.optimizer["default"].options["clip_norm"] == 10.0


def test_a_wrong_set_is_refused_with_itself(recipe_file):
    error = _refusal(recipe_file(DQN), "train.stepps=5")
    expected = "--set train.stepps=5: section `train` has no option `stepps`"
    assert error.message == expected
    assert error.hint == "did you mean `steps`?"


def test_an_error_about_a_value_has_its_line(recipe_file):
    read = recipe.load_recipe(recipe_file(DQN))
    error = read.error(("tracer", "n"), "too long", "shorten it")
    assert error.message == f"{read.source}:4: too long"


def test_a_recipe_cannot_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError):
        recipe.load_recipe(LEAST).num_envs = 3  # type: ignore[misc] # that is the point


def test_importing_recipes_imports_no_jax():
    program = "import sys, rlcli.recipe; sys.exit('jax' in sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.parametrize("file", [".yaml", "..yaml", "...yaml"])
def test_the_name_of_a_recipe_is_never_that_of_a_folder_above(tmp_path, file):
    (tmp_path / file).write_text(DQN)
    name = recipe.load_recipe(tmp_path / file).name
    assert name == loading.check_document(tmp_path / file).name
    assert name not in ("", ".", "..")
