"""Check: one recipe or several, as a name, a file or a mapping."""

import pytest
import yaml

import rlcli
from rlcli.errors import RlcliError

SMALL = {"environment": "FrozenLake-v1", "network": "table", "updater": "q_learning"}


def test_a_single_recipe_needs_no_list(tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text(yaml.safe_dump(SMALL))
    expected = rlcli.check([file])
    assert len(expected) == 1
    assert expected[0]["parameters"] == 16 * 4
    for recipe in (file, str(file)):
        assert rlcli.check(recipe) == expected
    (from_mapping,) = rlcli.check(SMALL)
    assert from_mapping | {"recipe": expected[0]["recipe"]} == expected[0]


def test_the_error_of_a_single_name_is_about_the_whole_name():
    with pytest.raises(RlcliError, match="no_such_recipe"):
        rlcli.check("no_such_recipe")
