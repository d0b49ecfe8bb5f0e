"""Sections: what each of them means, and every way to be refused."""

from __future__ import annotations

from fractions import Fraction

import pytest
from wording import mentions

from rlcli import recipe
from rlcli.errors import RlcliError
from rlcli.recipe import documents

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


def test_updates_may_be_said_per_environment_step():
    data = {**REPLAY, "environment": {"name": "CartPole-v1", "num_envs": 3}}
    data["train"] = {"updates": {"per_step": 0.1}, "unroll": 5}
    read = recipe.load_recipe(data)
    assert read.train.updates == Fraction(3, 2)
    assert recipe.resolve(read)["train"]["updates"] == {"per_step": 0.1}


def test_a_time_limit_is_the_environments_own_unless_it_is_given():
    def limit(**more):
        environment = {"name": "CartPole-v1", **more}
        return recipe.load_recipe({**LEAST, "environment": environment}).time_limit

    assert limit() == 500
    assert limit(time_limit=None) is None
    assert limit(time_limit=7) == 7


def test_each_environment_may_have_a_value_of_its_own():
    each = {"masspole": [0.1, 1]}
    environment = {"name": "CartPole-v1", "num_envs": 2, "each": each}
    read = recipe.load_recipe({**LEAST, "environment": environment})
    assert read.each == {"masspole": [0.1, 1.0]}


def test_networks_are_one_for_all_or_one_by_one_or_shared():
    def networks(value):
        return recipe.load_recipe({**LEAST, "network": value}).network

    assert set(networks("linear")) == {recipe.DEFAULT}
    one_by_one = networks({"policy": "linear", "value": {"name": "mlp"}})
    assert one_by_one["policy"].part.name == "linear"
    assert one_by_one["value"].part.name == "mlp"
    shared = networks({"shared": "mlp", "q": {"dueling": True}, "value": "scalar"})
    assert shared[recipe.SHARED].part.name == "mlp"
    assert shared["q"] == (None, {"dueling": True}, None, ())
    assert shared["value"] == (None, {}, None, ())
    headed = networks({"name": "mlp", "head": {"name": "scalar", "dueling": True}})
    assert headed[recipe.DEFAULT].head == {"dueling": True}


def test_a_head_with_a_name_is_written_with_all_its_options():
    head = {"name": "categorical", "high": 100}
    for value in ({"name": "mlp", "head": head}, {"shared": "mlp", "q": head}):
        read = recipe.load_recipe({**LEAST, "network": value})
        spec = read.network.get(recipe.DEFAULT) or read.network["q"]
        expected = {"name": "categorical", "atoms": 51, "low": -10.0, "high": 100.0}
        assert spec.head == {**expected, "dueling": False, "noisy": False}
        assert recipe.load_recipe(recipe.resolve(read)) == read


def test_a_memory_is_part_of_a_network_and_written_with_it():
    memory = {"name": "lstm", "size": 8}
    for network in (
        {"name": "linear", "memory": memory},
        {"shared": {"name": "linear", "memory": memory}, "policy": {}, "value": {}},
    ):
        read = recipe.load_recipe({**LEAST, "updater": "ppo", "network": network})
        spec = read.network.get("shared") or read.network[recipe.DEFAULT]
        assert spec.memory == ("memory", "lstm", {"size": 8})
        assert recipe.load_recipe(recipe.resolve(read)) == read
    error = _refusal({**LEAST, "network": {"name": "linear", "memory": "grue"}})
    assert "there is no memory `grue`" in error.message and "`gru`" in error.hint


def test_an_episode_may_draw_its_numbers():
    each = {
        "masspole": {"uniform": [0.05, 0.2]},
        "length": {"log_uniform": [0.2, 2]},
        "gravity": {"choice": [8, 9.8, 12]},
        "tau": [0.02],
    }
    read = recipe.load_recipe(
        {**LEAST, "environment": {"name": "CartPole-v1", "each": each}}
    )
    assert read.copies == {"tau": [0.02]}
    assert read.random_numbers == {
        "masspole": ("uniform", (0.05, 0.2)),
        "length": ("log_uniform", (0.2, 2.0)),
        "gravity": ("choice", (8.0, 9.8, 12.0)),
    }
    plain = recipe.resolve(read)
    assert plain["environment"]["each"] == each
    assert "length" not in plain["environment"]
    assert recipe.load_recipe(plain) == read


def test_a_grid_has_numbers_of_the_environment():
    def with_grid(grid):
        return {**LEAST, "train": {"evaluate": {"grid": grid}}}

    read = recipe.load_recipe(with_grid({"length": [0.2, 1], "gravity": [9]}))
    assert read.train.evaluate.grid == {"length": [0.2, 1.0], "gravity": [9.0]}
    assert recipe.load_recipe(recipe.resolve(read)) == read
    for grid, message in (
        ({"lenth": [1]}, "cannot vary `lenth`"),
        ({"length": []}, "has no value for `length`"),
        ({"length": [-1]}, "`evaluate.grid.length.0`"),
        ({"length": [1] * 40, "gravity": [1] * 40}, "1,600 combinations"),
        ({"length": {"uniform": [1, 2]}}, "expected list"),
    ):
        assert message in _refusal(with_grid(grid)).message


def test_optimizers_are_one_or_by_group_with_a_default():
    value = {"policy": {"name": "sgd", "learning_rate": 0.1}}
    groups = recipe.load_recipe({**LEAST, "optimizer": value}).optimizer
    assert groups["policy"].name == "sgd" and groups["default"].name == "adam"


@pytest.mark.parametrize(
    ("old", "new", "line", "message", "hint"),
    [
        ("tracer: ", "tracr: ", 4, "has no section `tracr`", "`tracer`"),
        ("CartPole-v1", "CartPol-v1", 1, "no environment `CartPol-v1`", "CartPole-v1"),
        ("num_envs", "num_env", 1, "has no option `num_env`", "`num_envs`"),
        ("num_envs: 4", "num_envs: 0", 1, "int ≥ 1, got `0`", ""),
        ("num_envs: 4", "num_envs: x", 1, "expected int", ""),
        ("num_envs: 4", "timeout: 5", 1, "it has no `timeout`", "remove `timeout`"),
        ("num_envs: 4", "time_limit: default", 1, "has no default time limit", "null"),
        ("num_envs: 4", "time_limit: 0", 1, "`time_limit` of environment", ""),
        ("num_envs: 4", "theta_threshold: {from: 1, to: 2}", 1, "expected float >", ""),
        ("num_envs: 4", "each: {mass: [1]}", 1, "cannot vary `mass`", "`masspole`?"),
        ("num_envs: 4", "each: {length: []}", 1, "no value for `length`", ""),
        ("num_envs: 4", "each: {length: [0]}", 1, "`each.length.0` of env", ""),
        ("num_envs: 4", "each: {length: [{from: 1, to: 2}]}", 1, "takes numbers", ""),
        ("num_envs: 4", "length: 1, each: {length: [1]}", 1, "set twice", ""),
        ("num_envs: 4", "each: {length: [1, 2]}", 1, "`num_envs` is 1", "at least 2"),
        ("num_envs: 4", "each: {length: {unifrm: [1, 2]}}", 1, "a distribu", "uniform"),
        ("num_envs: 4", "each: {length: {}}", 1, "name of a distribution", "choice"),
        ("num_envs: 4", "each: {length: {uniform: 1}}", 1, "expected list", ""),
        ("num_envs: 4", "each: {length: {uniform: [1]}}", 1, "lowest and the hi", ""),
        ("num_envs: 4", "each: {length: {uniform: [2, 1]}}", 1, "at 2, but", "first"),
        ("num_envs: 4", "each: {length: {uniform: [-1, 1]}}", 1, "float > 0", ""),
        ("num_envs: 4", "each: {length: {choice: []}}", 1, "expected a list", ""),
        ("num_envs: 4", "each: {length: {choice: [a]}}", 1, "choice.0` of env", ""),
        ("num_envs: 4", "each: {gravity: {log_uniform: [0, 1]}}", 1, "logarithm", ""),
        ("num_envs: 4", "each: {x_threshold: {uniform: [1, 2]}}", 1, "cannot", "fixed"),
        ("num_envs: 4", "length: 1, each: {length: {choice: [1]}}", 1, "twice", ""),
        ("name: mlp", "name: mpl", 2, "there is no network `mpl`", "`mlp`"),
        ("{name: mlp, layers", "{layrs", 2, "`mlp` (the default) has no", "`layers`?"),
        ("layers: [128, 128]", "layers: [128, x]", 2, "`layers.1` of network", ""),
        ("layers: [128, 128]", "activation: relo", 2, "got `relo`", "`relu`"),
        ("layers: [128, 128]", "head: scalr", 2, "no head `scalr`", "`scalar`"),
        ("layers: [128, 128]", "head: {duel: 1}", 2, "no option `duel`", "`dueling`"),
        ("layers: [128, 128]", "head: 5", 2, "`head`: expected a mapping", ""),
        ("layers: [128, 128]", "head: {atoms: 9}", 2, "no option `atoms`", "`noisy`"),
        (
            "name: epsilon_greedy",
            "name: 5",
            3,
            "`name` of the policy: expected str",
            "",
        ),
        ("epsilon: {", "epsilo: {", 3, "has no option `epsilo`", "`epsilon`"),
        ("from: 1.0", "from: 1.5", 3, "1, got a schedule that reaches 1.5", ""),
        ("over: 20%", "ovr: 20%", 3, "has no option `ovr`", "`over`"),
        ("n: 3", "n: 0.5", 4, "expected int ≥ 1, got `0.5`", ""),
        ("gamma: 0.99", "gamma: 1.1", 4, "expected 0 ≤ float ≤ 1", ""),
        ("gamma: 0.99", "gamma: true", 4, "or a schedule, got `true`", ""),
        ("seeds: 1", "trackers: wandb", 8, "expected list, got `wandb`", "`[wandb]`"),
        ("gamma: 0.99", "gamma: linear", 4, "got `linear`", "such as `{from: 1e-3"),
        ("gamma: 0.99", "gamma: .nan", 4, "or a schedule, got `.nan`", ""),
        ("capacity: 50_000", "capacity: lots", 5, "got `lots`", ""),
        ("double_q_learning", "double_q_lerning", 6, "there is no updater", "`double"),
        ("polyak", "polyk", 6, "`target.polyk` of updater", "`polyak`"),
        ("polyak: 0.005", "polyak: -7", 6, "`target.polyak` of updater", ""),
        ("learning_rate: 5e", "learning_rat: 5e", 7, "`learning_rat`", "learning_rate"),
        ("name: adam", "name: adm", 7, "there is no optimizer `adm`", "`adam`"),
        ("{name: uniform, ", "{", 5, "replay has no `name`", "name one of `episodes`"),
        ("name: CartPole-v1, ", "", 1, "no `name`", "`rlcli list environments`"),
        ("clip_norm: 10", "clip_norm: 0", 7, "> 0, or a schedule, or null", ""),
        ("steps: 50_000", "stepps: 5", 8, "has no option `stepps`", "`steps`"),
        (
            "steps: 50_000",
            "start: 60_000",
            8,
            "the agent would never learn: `st",
            "lower `start`",
        ),
        ("steps: 50_000", "unroll: 20_000", 8, "an unroll has 20,000 × 4 steps", ""),
        ("seeds: 1", "seed: -1", 8, "expected 0 ≤ int < 2_147_483_648", ""),
        ("seeds: 1", "devices: all", 8, "expected int ≥ 1 |", ""),
        ("seeds: 1", "updates: 0.5", 8, "expected int ≥ 1", ""),
        ("seeds: 1", "updates: {per: 1}", 8, "`updates.per` of section", "`per_step`"),
        ("seeds: 1", "evaluate: {evry: 1}", 8, "has no option `evry`", "`every`"),
        ("seeds: 1", "log: 1_000", 8, "expected a mapping, got `1000`", "`every`"),
        (
            "seeds: 1",
            "stop: {retrun: 4}",
            8,
            "there is no `retrun` to reach",
            "`return`",
        ),
        (
            "steps: 50_000, seeds: 1",
            "steps: 4_000, stop: {return: 4}",
            8,
            "`stop` requires evalu",
            "evaluate",
        ),
        ("seeds: 1", "on_nan: freez", 8, 'expected "freeze" | "stop"', "`freeze`"),
        ("\ntrain:", "\nextra: 5\ntrain:", 8, "`extra`: expected a mapping", ""),
        ("\ntrain: ", "\ntracer: n_step\ntrain: ", 8, "first on line 4", "one"),
        ("\ntrain: ", "\n\ttrain: ", 8, "a tab", "spaces"),
    ],
)
def test_a_mistake_is_refused_with_its_line_and_a_hint(
    recipe_file, old, new, line, message, hint
):
    assert old in DQN
    path = recipe_file(DQN.replace(old, new, 1))
    error = _refusal(path)
    assert error.message.startswith(f"{path}:{line}: ")
    assert message in error.message and hint in error.hint


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the file is empty"),
        ("- environment\n- updater\n", "expected a mapping, got a list"),
        ("updater: ppo\n", "the recipe has no `environment`"),
        ("environment: CartPole-v1\n", "the recipe has no `updater`"),
        ("environment: CartPole-v1\nupdater: [ppo]\n", "or a mapping, got `[ppo]`"),
    ],
)
def test_a_recipe_that_lacks_the_main_thing_is_refused(recipe_file, text, message):
    error = _refusal(recipe_file(text))
    assert ".yaml:1: " in error.message or ".yaml:2: " in error.message
    assert message in error.message


def test_empty_lists_and_mappings_are_the_defaults():
    network = {"name": "mlp", "memory": None, "preprocess": []}
    data = {**LEAST, "network": network, "vary": {}}
    data["environment"] = {"name": "CartPole-v1", "wrappers": []}
    assert recipe.load_recipe(data) == recipe.load_recipe(LEAST)


def test_a_shared_network_has_no_head_of_its_own():
    shared = {"name": "mlp", "head": "scalar"}
    error = _refusal({**LEAST, "network": {"shared": shared}})
    assert "no `head` of its own" in error.message


def test_updates_are_only_for_agents_with_a_replay():
    error = _refusal({**LEAST, "train": {"updates": 4}})
    assert "`updates` requires a replay" in error.message


@pytest.mark.parametrize(
    ("section", "name"),
    [
        ("environment", "gymnasium/os:X-v0"),
        ("environment", "os:getcwd"),
        ("network", "os:getcwd"),
        ("updater", {"name": "os:getcwd"}),
    ],
)
def test_code_is_imported_only_for_those_who_are_trusted(section, name):
    error = _refusal({**LEAST, section: name}, trusted=False)
    assert "would import code" in error.message and "--trust" in error.hint


def test_a_module_that_cannot_be_imported_is_refused(recipe_file):
    text = "updater: ppo\nenvironment: CartPole-v1\npolicy: no_such_module:x\n"
    error = _refusal(recipe_file(text))
    assert mentions(error.message, "dqn.yaml:3: ", "`no_such_module:x`")


def test_a_factory_may_be_named_by_its_module():
    read = recipe.load_recipe(
        {**LEAST, "tracer": {"name": "rlcli.tracers.multi_step:n_step"}}
    )
    assert read.tracer.options == {"n": 1, "gamma": 0.99}


GRAMMAR = """\
environment: {name: CartPole-v1, num_envs: 8, time_limit: 500, length: 0.7, \
each: {masspole: [0.1, 0.2]}, wrappers: [{name: sticky_actions, probability: 0.1}]}
network:
  name: mlp
  layers: [64, 64]
  preprocess: [one_hot]
  memory: {name: gru, size: 64}
  head: {name: quantile, quantiles: 51, dueling: true, noisy: true}
normalize: {observation: true, reward: false}
policy: {name: epsilon_greedy, epsilon: 0.05}
tracer: {name: n_step, n: 3, gamma: 0.99}
replay: {name: prioritized, capacity: 50_000, batch_size: 64, alpha: 0.6}
updater:
  name: q_learning
  loss: huber
  transform: signed_hyperbolic
  critics: 2
  target: {every: 200}
optimizer: {name: adam, learning_rate: 1e-3, clip_norm: 10}
train:
  steps: 50_000
  unroll: 1
  updates: 1
  start: 500
  warmup: random
  seed: 0
  seeds: 1
  devices: auto
  threads: auto
  precision: float32
  reset: false
  log: {every: 1_000}
  evaluate: {every: 10_000, episodes: 20, render: false}
  checkpoint: {every: 10_000, keep: 1}
  stop: {return: 475}
  on_nan: freeze
  on_error: restart
  trackers: [wandb]
vary: {optimizer.learning_rate: [1e-3, 3e-4]}
extra: {mine: 1}
"""


def test_the_whole_grammar_is_understood():
    read = recipe.load_recipe(documents.load_document(GRAMMAR).data)
    assert read.train.stop == {"return": 475.0} and read.extra == {"mine": 1}
    assert recipe.load_recipe(recipe.resolve(read)) == read


def test_trackers_are_parts_by_name_or_with_options():
    trackers = ["tensorboard", {"name": "wandb", "project": "mine"}]
    read = recipe.load_recipe({**LEAST, "train": {"trackers": trackers}})
    first, second = read.train.trackers
    assert (first.kind, first.name, first.options) == ("tracker", "tensorboard", {})
    assert second.options["project"] == "mine" and second.options["mode"] is None
    assert recipe.load_recipe(recipe.resolve(read)) == read


@pytest.mark.parametrize(
    ("tracker", "message"),
    [
        ("wanbd", "there is no tracker `wanbd`"),
        ({"name": "wandb", "projekt": "x"}, "tracker `wandb` has no option `projekt`"),
        ({"project": "x"}, "the tracker has no `name`"),
        (3, "expected the tracker's name or a mapping, got `3`"),
    ],
)
def test_a_tracker_that_does_not_exist_is_refused(tracker, message):
    assert message in _refusal({**LEAST, "train": {"trackers": [tracker]}}).message


@pytest.mark.parametrize(
    ("train", "expected"),
    [
        ({"steps": 50_000}, 5_000),
        ({"steps": 100_000, "unroll": 1_024}, 9_932),  # the last one at the last step
        ({"steps": 4_999}, None),
        ({"steps": 50_000, "evaluate": {"episodes": 3}}, 5_000),
        ({"steps": 50_000, "evaluate": None}, None),
        ({"steps": 50_000, "evaluate": False}, None),
        ({"steps": 50_000, "evaluate": {"every": None}}, None),
        ({"steps": 50_000, "evaluate": {"every": 7}}, 7),
    ],
)
def test_a_run_is_evaluated_ten_times_unless_it_is_short(train, expected):
    read = recipe.load_recipe({**LEAST, "train": {"unroll": 1, **train}})
    assert read.train.evaluate.every == expected
    assert recipe.load_recipe(recipe.resolve(read)) == read


@pytest.mark.parametrize(
    ("environment", "train", "expected"),
    [
        # Episodes of at most 500 steps: 10 of them are a tenth of 50,000 steps.
        ({}, {"steps": 50_000}, (25_000, 5)),
        ({}, {"steps": 5_000}, (5_000, 1)),
        ({}, {"steps": 4_999}, (None, 20)),
        ({}, {"steps": 250_000}, (25_000, 5)),
        ({}, {"steps": 1_000_000}, (100_000, 20)),
        ({}, {"steps": 50_000, "evaluate": {"episodes": 2}}, (10_000, 2)),
        ({}, {"steps": 50_000, "evaluate": {"episodes": 11}}, (None, 11)),
        ({}, {"steps": 50_000, "evaluate": {"every": 100}}, (100, 20)),
        ({}, {"steps": 50_000, "evaluate": None}, (None, 20)),
        ({"time_limit": 50}, {"steps": 50_000}, (5_000, 10)),
        # Without a limit, episodes are taken to have 1,000 steps.
        ({"time_limit": None}, {"steps": 50_000}, (50_000, 5)),
        ({"time_limit": None}, {"steps": 9_999}, (None, 20)),
        ({"name": "envpool/Pong-v5"}, {"steps": 100_000}, (50_000, 5)),
        ({"name": "gymnasium/Unknown-v1"}, {"steps": 100_000}, (50_000, 5)),
        ({"name": "gymnasium/MountainCar-v0"}, {"steps": 50_000}, (10_000, 5)),
    ],
)
def test_evaluations_on_the_host_have_at_most_a_tenth_of_the_steps(
    environment, train, expected
):
    environment = {"name": "gymnasium/CartPole-v1", **environment}
    data = {**LEAST, "environment": environment, "train": {"unroll": 1, **train}}
    read = recipe.load_recipe(data)
    assert (read.train.evaluate.every, read.train.evaluate.episodes) == expected
    assert recipe.load_recipe(recipe.resolve(read)) == read


@pytest.mark.parametrize(
    "updater", ["qr_dqn", "c51", "iqn", "tqc", "dueling_dqn", "rainbow", "dqn"]
)
@pytest.mark.parametrize("head", ["scalar", {"name": "scalar"}])
def test_a_head_that_replaces_the_default_one_stays_in_the_resolved_recipe(
    updater, head
):
    """A checkpoint has the resolved recipe: with another head it cannot be restored."""
    network = {"name": "mlp", "layers": [4], "head": head}
    if updater == "tqc":
        network = {"policy": {"layers": [4]}, "critic": network}
    data = {"environment": "CartPole-v1", "updater": updater, "network": network}
    resolved = recipe.resolve(recipe.load_recipe(data))
    again = recipe.resolve(recipe.load_recipe(resolved))
    assert again == resolved
    found = again["network"].get("critic", again["network"]).get("head", {})
    assert found.get("name", "scalar") == "scalar"
    assert not found.get("dueling") and not found.get("noisy")


def test_networks_keep_their_order_where_a_resolved_recipe_is_read_again():
    """A resumed run stores the recipe again, with the same bytes."""
    data = {"environment": "Pendulum-v1", "updater": "tqc"}
    resolved = recipe.resolve(recipe.load_recipe(data))
    again = recipe.resolve(recipe.load_recipe(resolved))
    assert [*again["network"]] == [*resolved["network"]] == ["default", "critic"]
