"""The section `vary` of a recipe."""

import math

import pytest

from rlcli.recipe import documents
from rlcli.recipe.varying import recipe_combinations
from rlcli.studies.study_grid import combine


@pytest.mark.parametrize(
    "value",
    [
        *(0.1, 1e-05, 3, True, None, math.inf, -math.inf),
        *("mse", "null", "true", "off", "1e-3", "a,b", "it's", "x: y"),
        *([64, 64], {"name": "adam", "learning_rate": 1e-3}, [math.inf]),
    ],
)
def test_a_value_is_the_same_in_a_setting_and_among_varied_values(value):
    document = documents.from_mapping({"vary": {"a.b": [value, "other"]}})
    ((setting,), (other,)) = recipe_combinations(document)
    key, _, text = setting.partition("=")
    assert key == "a.b"
    assert documents.parse(text, "").data == value
    assert [*combine([f"a.b={text},other"])] == [(setting,), (other,)]
