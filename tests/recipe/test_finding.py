"""Finding: what a name is, without importing the parts that have it."""

from pathlib import Path

from rlcli import registry
from rlcli.recipe import finding


def test_only_a_name_with_a_slash_or_a_hyphen_may_be_that_of_an_environment():
    for name in registry.names("environment"):
        assert "/" in name or "-" in name
        assert finding._is_environment(f"{name}x" if name.endswith("/") else name)
    assert not finding._is_environment("CartPole")


def test_a_recipe_is_located_for_another_working_directory(folder):
    assert finding.locate_recipe("dqn_cartpole") == "dqn_cartpole"
    (folder / "mine.yaml").write_text("")
    for recipe in ("mine.yaml", Path("mine.yaml")):
        assert finding.locate_recipe(recipe) == str(folder / "mine.yaml")
    (folder / "dqn_cartpole").write_text("")  # takes precedence over the name
    assert finding.locate_recipe("dqn_cartpole") == str(folder / "dqn_cartpole")
