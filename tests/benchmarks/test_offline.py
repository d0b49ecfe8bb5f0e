"""The comparison of offline updaters: its recipes are valid."""

import pytest

from benchmarks.offline import METHODS, SOURCES
from rlcli.recipe import load_recipe, shipped_recipes
from rlcli.runs.locate import shipped_policies


@pytest.mark.parametrize("environment", METHODS)
def test_every_method_learns_in_the_same_environment(environment):
    recipes = [load_recipe(changes) for changes in METHODS[environment].values()]
    assert len({recipe.environment.name for recipe in recipes}) == 1
    assert [*METHODS[environment]] == [recipe.updater.name for recipe in recipes]
    assert all(recipe.replay.name == "dataset" for recipe in recipes)


def test_the_sources_exist():
    for expert, recipe, _, _ in SOURCES.values():
        assert expert.removeprefix("zoo/") in shipped_policies()
        assert recipe in shipped_recipes()
