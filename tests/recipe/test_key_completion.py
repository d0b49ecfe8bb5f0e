"""Completion of `--set`: the keys of the recipe on the command line, and values."""

import pytest

from rlcli import registry
from rlcli.recipe import load_recipe, resolve
from rlcli.recipe.key_completion import complete_setting
from rlcli.recipe.part_index import part_names


def dotted_keys(data, path=()):
    for key, value in data.items():
        is_schedule = isinstance(value, dict) and {"from", "steps"} & {*value}
        yield ".".join([*path, key])
        if isinstance(value, dict) and not is_schedule and key not in ("each", "extra"):
            yield from dotted_keys(value, (*path, key))


@pytest.mark.parametrize(
    "recipe",
    ["dqn_cartpole", "rainbow_cartpole", "sac_pendulum", "ppo_recurrent_probe"],
)
def test_every_option_of_a_resolved_recipe_is_offered(recipe):
    data = resolve(load_recipe(recipe))
    data.pop("extra", None)
    for key in dotted_keys(data):
        parent, dot, _ = key.rpartition(".")
        offered = complete_setting(f"{parent}{dot}", recipe)
        names = {candidate.rstrip(".").partition("=")[0] for candidate in offered}
        assert key in names or any(name.startswith(f"{key}.") for name in names), key


def test_a_single_key_is_followed_by_its_current_value():
    key = "optimizer.learning_rate="
    first = complete_setting("optimizer.lea", "dqn_cartpole")
    assert first == [key, f"{key}0.001"]
    assert complete_setting(key, "dqn_cartpole") == [f"{key}0.001"]
    assert complete_setting("policy.eps", "", ["policy=epsilon_greedy"])[0] == (
        "policy.epsilon="
    )


def test_a_part_is_completed_by_the_names_of_its_kind():
    names = [f"updater={name}" for name in registry.names("updater")]
    assert complete_setting("updater=", "dqn_cartpole") == names
    assert complete_setting("updater=du", "dqn_cartpole") == ["updater=dueling_dqn"]
    policies = [f"policy.name={name}" for name in registry.names("policy")]
    assert complete_setting("policy.name=", "dqn_cartpole") == policies


def test_adapters_have_no_names_to_offer():
    assert "gymnasium/" in part_names("environment")
    assert complete_setting("environment=gymn", "dqn_cartpole") == []


def test_options_are_those_of_the_part_that_earlier_settings_name():
    assert complete_setting("optimizer.mom", "dqn_cartpole") == []
    keys = complete_setting("optimizer.mom", "dqn_cartpole", ["optimizer=sgd"])
    assert keys[0] == "optimizer.momentum="


def test_the_default_parts_of_the_updater_are_known(tmp_path):
    recipe = tmp_path / "own.yaml"
    recipe.write_text("environment: CartPole-v1\nupdater: rainbow\n")
    assert "replay.alpha=0.5" in complete_setting("replay.al", str(recipe))
    assert "network.head.dueling=true" in complete_setting(
        "network.head.du", str(recipe)
    )


def test_a_part_for_each_function_is_completed_by_function(tmp_path):
    recipe = tmp_path / "own.yaml"
    recipe.write_text(
        "environment: CartPole-v1\nupdater: ppo\n"
        "network: {shared: mlp, policy: {}, value: {dueling: true}}\n"
        "optimizer: {policy: sgd, value: adam}\n"
    )
    keys = complete_setting("network.", str(recipe))
    assert keys == [
        *("network.shared=", "network.shared.", "network.policy=", "network.policy."),
        *("network.value=", "network.value."),
    ]
    assert complete_setting("optimizer.policy.mom", str(recipe))[0] == (
        "optimizer.policy.momentum="
    )


def test_entries_of_lists_are_numbered(tmp_path):
    recipe = tmp_path / "own.yaml"
    recipe.write_text(
        "environment: {name: CartPole-v1, wrappers: [sticky_actions]}\nupdater: ppo\n"
    )
    assert complete_setting("environment.wrap", str(recipe)) == [
        "environment.wrappers=",
        "environment.wrappers.",
    ]
    names = complete_setting("environment.wrappers.0=", str(recipe))
    assert "environment.wrappers.0=sticky_actions" in names


@pytest.mark.parametrize(
    "text", ["nothing.here", "nothing.here=", "=", "..", "train.steps.more", "é="]
)
def test_a_key_that_is_none_has_no_completion(text):
    assert complete_setting(text, "dqn_cartpole") == []


@pytest.mark.parametrize(
    "content", ["a: [", "extends: nothing", "- 1", "", "{updater: 1}"]
)
def test_without_a_readable_recipe_the_options_of_all_parts_are_offered(
    tmp_path, content
):
    recipe = tmp_path / "own.yaml"
    recipe.write_text(content)
    assert (
        complete_setting("optimizer.lea", str(recipe))[0] == "optimizer.learning_rate="
    )
    assert (
        complete_setting("environment.grav", str(recipe))[0] == "environment.gravity="
    )
