"""Combinations: any parts are refused, or work; `make combinations` tries more."""

import collections
import contextlib
import itertools
import json
import random

import combination_cases
import odd_environments
import pytest
from combination_cases import Case
from combination_recipes import draw_combination, names
from fuzz_guard import FoundError
from gymnasium import spaces

from rlcli.errors import RlcliError
from rlcli.recipe import load_recipe, resolve

SEED, CHECKED = 0, 20


@pytest.mark.slow
def test_random_combinations_are_valid_or_refused_with_one_clear_error(folder):
    stages = collections.Counter()
    for number in range(SEED, SEED + CHECKED):
        case = Case(number, folder / "case")
        if case.recipe.get("replay", {}).get("name") != "dataset":  # trains for data
            stages[case.run(trains=False).stage] += 1
    assert stages["valid"] >= 2 and stages["refused"] >= 5


def test_a_combination_depends_on_its_number_only():
    first, second = (
        [draw_combination(random.Random(number)) for number in range(20)]
        for _ in range(2)
    )
    assert first == second
    assert len({str(recipe) for recipe in first}) == 20


@pytest.mark.slow
def test_a_resolved_recipe_is_resolved_to_itself():
    """Checkpoints and `resume` have only the resolved recipe."""
    count = 0
    for number in range(200):
        with contextlib.suppress(RlcliError):
            resolved = resolve(load_recipe(draw_combination(random.Random(number))))
            again = resolve(load_recipe(resolved))
            assert json.dumps(again) == json.dumps(resolved)  # in the same order
            count += 1
    assert count > 100


def test_every_updater_and_every_space_is_drawn():
    recipes = [draw_combination(random.Random(number)) for number in range(1_500)]
    assert {each["updater"]["name"] for each in recipes} == {*names("updater")}
    environments = [each["environment"] for each in recipes]
    for option, table in (
        ("observation", odd_environments.OBSERVATIONS),
        ("action", odd_environments.ACTIONS),
    ):
        assert {each.get(option) for each in environments} == {None, *table}


@pytest.fixture
def trained(folder):
    """A function: a case that trains this environment's smallest A2C."""

    def make(**environment):
        case = Case(0, folder / "case")
        case.recipe = {
            "environment": environment,
            "network": {"name": "mlp", "layers": [3]},
            "updater": "a2c",
            "train": {"steps": 40, "unroll": 5, "checkpoint": {"every": 10}},
        }
        return case

    return make


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["Host", "pure"])
def test_a_case_is_trained_exported_killed_and_resumed(trained, kind):
    case = trained(name=f"odd_environments:{kind}", observation="dict", action="tuple")
    outcome = case.run(trains=True)
    assert outcome == ("trained", "", "exported", "equal")


@pytest.mark.slow
def test_an_export_that_acts_otherwise_is_a_fault(trained, monkeypatch):
    importer = combination_cases._import_file

    def import_other(file):
        module = importer(file)
        act = module.act
        module.act = lambda *inputs: (act(*inputs)[0] + 0.1, act(*inputs)[1])
        return module

    monkeypatch.setattr(combination_cases, "_import_file", import_other)
    case = trained(name="odd_environments:pure", observation="box", action="box")
    with pytest.raises(FoundError, match="its export"):
        case.run(trains=True)


@pytest.mark.slow
def test_a_resume_that_does_not_play_the_same_actions_is_a_fault(trained, monkeypatch):
    step, salt = odd_environments.Host.step, itertools.count()

    def count_and_step(self, action):
        self._state += next(salt)
        return step(self, action)

    monkeypatch.setattr(odd_environments.Host, "step", count_and_step)
    case = trained(name="odd_environments:Host", observation="box", action="box")
    with pytest.raises(FoundError, match=r"`eval` returned|resumed, but other"):
        case.run(trains=True)


@pytest.mark.parametrize("table", ["OBSERVATIONS", "ACTIONS"])
def test_the_elements_of_the_odd_environments_are_in_their_spaces(table):
    for name in getattr(odd_environments, table):
        option = "observation" if table == "OBSERVATIONS" else "action"
        env = odd_environments.Host(**{option: name})
        env.action_space.seed(0)
        observation, _ = env.reset(seed=0)
        for _ in range(5):
            assert env.observation_space.contains(observation), name
            observation, *_ = env.step(env.action_space.sample())


def test_a_masked_observation_allows_the_first_action():
    env = odd_environments.Host("masked", "start")
    assert isinstance(env.observation_space, spaces.Dict)
    observation, _ = env.reset(seed=1)
    assert observation["action_mask"][0] == 1
