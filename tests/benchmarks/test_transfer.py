"""The comparison of runs that start from others: its recipes, and its tables."""

import pytest

from benchmarks import transfer
from rlcli.recipe import load_recipe


@pytest.mark.parametrize("name", transfer.EXPERIMENTS)
def test_every_arm_is_a_valid_recipe_of_equal_steps(name):
    recipes = [
        load_recipe(arm.recipe, [c.replace("{data}", "x.npz") for c in arm.sets])
        for arm in transfer.EXPERIMENTS[name].arms
    ]
    online = [each for each in recipes if "dataset" not in str(each.replay)[:60]]
    assert len({each.train.steps for each in online}) == 1
    assert len({each.environment.name for each in recipes}) == 1


def test_the_page_has_a_place_for_every_table_and_keeps_the_rest(tmp_path, monkeypatch):
    text = transfer.PAGE.read_text(encoding="utf-8")
    page = tmp_path / "page.md"
    page.write_text(text, encoding="utf-8")
    monkeypatch.setattr(transfer, "PAGE", page)
    result = {"iqm": -1234.56, "ci95": [-1300.0, -1.0]}
    results = {
        name: {
            arm.label: {
                "seeds": [5, 8],
                "returns": dict.fromkeys(each.evaluations, result),
            }
            for arm in each.arms
        }
        for name, each in transfer.EXPERIMENTS.items()
    }
    transfer.update_page(results)
    once = page.read_text(encoding="utf-8")
    for name, each in transfer.EXPERIMENTS.items():
        assert f"benchmarks.transfer {name}`" in once
        for arm in each.arms:
            assert f"| {arm.label} | −1235 (−1300 … −1)" in once
    transfer.update_page(results)
    assert page.read_text(encoding="utf-8") == once
    assert once.startswith(text[:2_000])
