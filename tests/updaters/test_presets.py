"""Presets: an algorithm by its usual name is another updater with other defaults."""

import inspect
import typing

import pytest

import rlcli
from rlcli import recipe, registry
from rlcli.assembly import build
from rlcli.errors import RlcliError
from rlcli.training.experiment.program import Program
from rlcli.types import Count, Updater
from rlcli.updaters.off_policy.soft_pg import SoftOptions

PRESETS = [
    name
    for name in registry.names("updater")
    if registry.find("updater", name).preset_of
]
DISCRETE, CONTINUOUS = "CartPole-v1", "Pendulum-v1"
ONLY_CONTINUOUS = {"ddpg", "td3"}  # with their default policy
ENVIRONMENTS = [
    *((name, DISCRETE) for name in PRESETS if name not in ONLY_CONTINUOUS),
    *((name, CONTINUOUS) for name in ("ddpg", "td3", "sac", "a2c", "impala")),
]


def test_the_usual_names_of_algorithms_are_presets():
    assert {
        *("dqn", "double_dqn", "dueling_dqn", "c51", "qr_dqn", "iqn", "rainbow"),
        *("impala", "a2c", "reinforce", "awr", "ddpg", "td3", "sac"),
    } == set(PRESETS)


QUICK = {("c51", DISCRETE)}


@pytest.mark.parametrize(
    ("name", "environment"),
    [
        pytest.param(*pair, marks=() if pair in QUICK else pytest.mark.slow)
        for pair in ENVIRONMENTS
    ],
)
def test_a_preset_alone_is_a_whole_agent(name, environment):
    parsed = recipe.load_recipe({"environment": environment, "updater": name})
    Program(parsed, build(parsed)).check()  # traces the shapes of a whole run
    assert recipe.load_recipe(recipe.resolve(parsed)) == parsed


@pytest.mark.slow
@pytest.mark.parametrize(("name", "environment"), ENVIRONMENTS)
def test_a_preset_trains_without_any_other_option(name, environment, tmp_path):
    data = {"environment": environment, "updater": name}
    run = rlcli.train(data, smoke=True, quiet=True, run=tmp_path / "run")
    result = rlcli.eval(run, episodes=2)
    assert [row["frozen"] for row in result["seeds"]] == [None]


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_is_its_base_with_the_options_that_show_prints(name):
    """The line `preset of:` of `rlcli show`, put into a recipe, gives the same."""
    part = registry.find("updater", name)
    lines = rlcli.show("updater", name).splitlines()
    base = next(line for line in lines if line.startswith("preset of: "))
    (written,) = recipe.documents.load_document(
        base.replace("preset of", "updater")
    ).data.values()
    facts = {key: value for key, value in part.facts.items() if key != "unroll"}
    head = facts.pop("head", None)
    network = {"name": "mlp", "head": {"name": "scalar", **head}} if head else "mlp"
    data = {"environment": DISCRETE, "network": network, **facts, "updater": written}
    data["train"] = {"unroll": part.facts["unroll"]}
    expanded = recipe.resolve(recipe.load_recipe(data))
    short = recipe.resolve(
        recipe.load_recipe({"environment": DISCRETE, "updater": name})
    )
    assert short["updater"].pop("name") == name
    assert expanded["updater"].pop("name") == part.preset_of
    assert short == expanded


def test_list_marks_a_preset():
    summaries = {
        entry["name"]: entry["summary"] for entry in rlcli.list("updaters")["updaters"]
    }
    for name in PRESETS:
        base = registry.find("updater", name).preset_of
        assert summaries[name].endswith(f" (preset of `{base}`).")
    assert "preset" not in summaries["ppo"]


def test_a_head_without_a_name_changes_the_default_head_of_the_updater():
    def head(updater, head):
        network = {"name": "mlp", "head": head}
        data = {"environment": DISCRETE, "updater": updater, "network": network}
        return recipe.load_recipe(data).network["default"].head

    c51 = head("c51", None)
    assert (c51["name"], c51["atoms"], c51["low"]) == ("categorical", 51, -10.0)
    assert head("c51", {"low": 0, "dueling": True}) == {
        **c51,
        "low": 0.0,
        "dueling": True,
    }
    assert head("c51", "quantile")["name"] == "quantile"
    assert head("dueling_dqn", {"noisy": True}) == {"dueling": True, "noisy": True}
    assert head("dueling_dqn", {"dueling": False}) == {"dueling": False}
    assert head("dqn", {"noisy": True}) == {"noisy": True}


@pytest.mark.parametrize("name", ["dqn", "ddpg"])
def test_an_error_names_the_updater_of_the_recipe_not_the_one_it_is_a_preset_of(name):
    network = {"name": "mlp", "memory": "gru"}  # `ddpg` learns from single steps
    data = {"environment": CONTINUOUS, "updater": name, "network": network}
    with pytest.raises(RlcliError, match=f"updater `{name}`"):
        build(recipe.load_recipe(data))


@pytest.mark.parametrize("name", ["sac", "redq", "tqc", "crossq", "td3", "ddpg"])
def test_a_factory_is_a_function_with_the_signature_that_its_source_says(name):
    # Checks of types at run time wrap it.
    factory = inspect.unwrap(registry.find("updater", name).factory)
    assert factory.__name__ == name and "__signature__" not in vars(factory)
    annotations = typing.get_type_hints(factory)
    assert annotations["return"] is Updater
    source = inspect.signature(factory)
    assert next(iter(source.parameters)) == "parts"


def test_the_fields_of_a_record_of_options_are_options():
    def factory(parts, *, target=None, options: SoftOptions = SoftOptions(critics=3)):
        return parts, target, options

    options = registry.options(factory)
    assert list(options) == ["target", *SoftOptions._fields]
    assert options["critics"].default == 3
    assert options["delay"].annotation == Count
    offers, given = {"parts": 0, "tracer": 1}, {"delay": 2, "target": 5}
    expected = 0, 5, SoftOptions(critics=3, delay=2)
    assert registry.call_factory(factory, offers, given) == expected
