"""`rlcli new`: a copy of a recipe that a user can edit."""

import pytest

import rlcli
from rlcli import recipe
from rlcli.errors import RlcliError
from rlcli.recipe import documents, new, read_without_parts
from rlcli.recipe.merging import as_mapping

SHIPPED = recipe.shipped_recipes()


@pytest.fixture(autouse=True)
def _files(folder):
    """An empty folder, with a schema so that none is generated."""
    (folder / "rlcli.schema.json").write_text("{}")


def test_a_copy_is_the_recipe_with_its_comments():
    path = rlcli.new("dqn_cartpole")
    assert str(path) == "dqn_cartpole.yaml"
    assert path.read_text() == SHIPPED["dqn_cartpole"].read_text()
    assert recipe.load_recipe(path) == recipe.load_recipe("dqn_cartpole")


def test_the_schema_is_written_beside_the_copy_unless_it_is_there(folder):
    path = rlcli.new("dqn_cartpole", output="deep/er/mine.yaml")
    schema = folder / "deep" / "er" / "rlcli.schema.json"
    assert path.is_file() and '"title": "rlcli recipe"' in schema.read_text()
    assert (folder / "rlcli.schema.json").read_text() == "{}"


@pytest.mark.parametrize("name", SHIPPED)
def test_only_the_environment_of_any_recipe_is_replaced(name, folder):
    path = rlcli.new(name, environment="Acrobot-v1", output=f"{name}.yaml")
    original, copy = map(read_without_parts, (SHIPPED[name], path))
    section = as_mapping(original.data["environment"])
    kept = {key: section[key] for key in ("num_envs", "wrappers") if key in section}
    assert copy.data == original.data | {"environment": {"name": "Acrobot-v1", **kept}}
    comments = [line for line in path.read_text().splitlines() if "#" in line]
    for line in SHIPPED[name].read_text().splitlines():
        assert line in comments or not line.startswith("#")


@pytest.mark.parametrize(
    ("name", "environment", "expected"),
    [
        ("dqn_cartpole", "Acrobot-v1", "dqn_acrobot"),
        ("dqn_n_step_cartpole", "MinAtar/Breakout-v1", "dqn_n_step_min_atar_breakout"),
        ("sac_mountain_car_continuous", "Pendulum-v1", "sac_pendulum"),
        (
            "ppo_gymnasium_hopper",
            "gymnasium/LunarLander-v3",
            "ppo_gymnasium_lunar_lander",
        ),
        ("dqn_cartpole_jym", "Acrobot-v1", "dqn_cartpole_jym_acrobot"),
        (
            "qlearning_deep_sea",
            "{name: bsuite/DeepSea, size: 5}",
            "qlearning_bsuite_deep_sea",
        ),
    ],
)
def test_a_copy_is_named_after_its_environment(name, environment, expected):
    path = rlcli.new(name, environment=environment)
    assert str(path) == f"{expected}.yaml"


def test_options_of_the_new_environment_may_be_given():
    path = rlcli.new("dqn_cartpole", environment="{name: Acrobot-v1, num_envs: 2}")
    section = documents.load_document(path).data["environment"]
    assert section == {"name": "Acrobot-v1", "num_envs": 2}


def test_a_comment_behind_the_environment_stays_in_its_place():
    text = (
        "# first\nenvironment:  # what\n  name: CartPole-v1  # old\n  num_envs: 2\n\n"
        "# the network\nnetwork: mlp  # small\nupdater: ppo\n"
    )
    old = {"name": "CartPole-v1", "num_envs": 2}
    text = new._replace_environment(text, old, {"name": "Acrobot-v1"})
    assert "{name: Acrobot-v1, num_envs: 2}\n\n# the network\nnetwork: mlp" in text
    assert documents.load_document(text).data["environment"]["num_envs"] == 2


def test_a_recipe_of_ones_own_is_extended_instead(folder):
    (folder / "mine.yaml").write_text("environment: CartPole-v1\nupdater: ppo\n")
    with pytest.raises(RlcliError, match=r"is not a built-in recipe") as error:
        rlcli.new("mine.yaml")
    assert "`extends: mine.yaml`" in error.value.hint


def test_an_existing_file_is_not_overwritten(folder):
    (folder / "dqn_cartpole.yaml").write_text("precious")
    with pytest.raises(RlcliError, match=r"`dqn_cartpole\.yaml` exists") as error:
        rlcli.new("dqn_cartpole")
    assert "`--output`" in error.value.hint
    assert (folder / "dqn_cartpole.yaml").read_text() == "precious"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"recipe": "dqn_cartpol"}, "there is no recipe `dqn_cartpol`"),
        ({"environment": "Acrobo-v1"}, "there is no environment `Acrobo-v1`"),
        ({"environment": "[1]"}, "is not the name of an environment"),
        ({"output": "rlcli.schema.json/x.yaml"}, "cannot be written"),
    ],
)
def test_a_refused_request_writes_no_file(arguments, message, folder):
    with pytest.raises(RlcliError, match=message):
        rlcli.new(**{"recipe": "dqn_cartpole", **arguments})
    assert [path.name for path in folder.iterdir()] == ["rlcli.schema.json"]
