"""The index of parts: as the parts are registered."""

from rlcli.recipe.part_index import load_index


def test_an_option_has_its_default_first_and_then_its_other_values():
    options = load_index()["environment"]["FrozenLake-v1"]["options"]
    assert options["slippery"] == ["true", "false"]
    assert options["lake"] == ["4x4", "8x8"]
    train = load_index()["sections"]["train"]
    assert train["precision"] == ["float32", "bfloat16"]
    assert train["checkpoint"] == {
        "": ["null"],
        "every": ["10000", "null"],
        "keep": ["1"],
    }
