"""Check: one recipe or several, as a name, a file or a mapping."""

import pytest
import yaml

import rlcli
from rlcli.errors import RlcliError

SMALL = {"environment": "FrozenLake-v1", "network": "table", "updater": "q_learning"}


@pytest.mark.slow
def test_a_single_recipe_needs_no_list(tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text(yaml.safe_dump(SMALL))
    expected = rlcli.check([file])
    assert len(expected) == 1
    assert expected[0]["parameters"] == {"training": 16 * 4, "acting": 16 * 4}
    for recipe in (file, str(file)):
        assert rlcli.check(recipe) == expected
    (from_mapping,) = rlcli.check(SMALL)
    assert from_mapping | {"recipe": expected[0]["recipe"]} == expected[0]


def test_the_error_of_a_single_name_is_about_the_whole_name():
    with pytest.raises(RlcliError, match="no_such_recipe"):
        rlcli.check("no_such_recipe")


@pytest.mark.slow
def test_all_combinations_of_a_recipe_are_checked():
    good = SMALL | {"vary": {"updater.name": ["q_learning", "sarsa"]}}
    assert rlcli.check(good) == rlcli.check(SMALL)
    for bad in ({"updater.nam": ["sarsa"]}, {"tracer.gamma": [0.9, 2]}):
        with pytest.raises(RlcliError, match=r"`nam`|0 ≤ float ≤ 1"):
            rlcli.check(SMALL | {"vary": bad})


def test_functions_are_shown_with_what_they_read_and_whether_they_act():
    sac = {
        "environment": "Pendulum-v1",
        "network": {"policy": {"layers": [6]}, "critic": {"layers": [5]}},
        "replay": {"name": "uniform", "capacity": 100},
        "updater": "sac",
    }
    (report,) = rlcli.check(sac)
    policy, critics = 3 * 6 + 6 + 6 * 2 + 2, 2 * (4 * 5 + 5 + 5 + 1)
    total = policy + critics + 1
    assert report["parameters"] == {"training": total, "acting": policy}
    observation, action = {"observation": "float32[3]"}, {"action": "float32[1]"}
    assert report["functions"] == {
        "policy": {"parameters": policy, "acts": True, "inputs": observation},
        "critic": {
            "parameters": critics,
            "acts": False,
            "inputs": observation | action,
        },
        "temperature": {"parameters": 1, "acts": False, "inputs": None},
    }
    assert report["shapes"]["critic/linear/w"] == "float32[2, 4, 5]"


def test_inputs_are_those_after_preprocessing():
    preprocess = [{"name": "entries", "of": [0, 2]}]
    data = {
        "environment": "CartPole-v1",
        "network": {"name": "mlp", "preprocess": preprocess},
        "updater": "dqn",
        "replay": {"name": "uniform", "capacity": 100},
    }
    (report,) = rlcli.check(data)
    assert report["functions"]["q"]["inputs"] == {"observation": "float32[2]"}
