"""The table of what recipes reach: what was measured, of recipes that there are."""

import json
from pathlib import Path

import pytest

from benchmarks.learning import table
from benchmarks.learning.rows import ROWS, Row
from rlcli import recipe

ROOT = Path(__file__).parents[2]
RESULTS = json.loads((ROOT / "benchmarks" / "learning" / "results.json").read_text())


def test_every_row_is_a_recipe_and_is_there_once():
    names = [row.recipe for row in ROWS]
    assert set(names) <= set(recipe.shipped_recipes())
    assert len(set(names)) == len(names)


def test_the_page_says_what_was_measured():
    page = (ROOT / "docs" / "learning.md").read_text(encoding="utf-8")
    assert page == table.page(ROWS, RESULTS)
    assert set(RESULTS) <= {row.recipe for row in ROWS}


def test_the_pages_of_algorithms_say_what_was_measured():
    for path in (ROOT / "docs" / "algorithms").glob("*.md"):
        page = path.read_text(encoding="utf-8")
        assert page == table.update_copies(page, ROWS, RESULTS), path


def test_the_pages_of_algorithms_show_the_curves_that_were_drawn():
    curves = {path.stem for path in (ROOT / "docs/images/learning").glob("*.svg")}
    for path in (ROOT / "docs" / "algorithms").glob("*.md"):
        page = path.read_text(encoding="utf-8")
        assert page == table.update_curves(page, curves), path


@pytest.mark.parametrize(
    ("low", "said"), [(-85.0, "≥ −85 [−76.6]"), (-85.1, "≥ −85 [−76.6] (missed)")]
)
def test_a_goal_is_met_where_the_whole_interval_is_at_least_as_high(low, said):
    result = {"environment": "Acrobot-v1", "steps": 100_000, "seconds": 61.6}
    result |= {"means": [-80.0, -90.25], "iqm": -85.125, "ci95": [low, -80.0]}
    result |= {"seeds": [7, 8], "tuned": [0, 4]}
    cells = table.line(Row("dqn_acrobot", -85.0, "−76.6"), result).split(" | ")
    assert cells[2:6] == ["100 000", said, "−90.2 −80", "−85.1"]
    assert cells[6:] == [
        f"{table.number(low)} … −80",
        "7 … 8 (tuned on 0 … 4)",
        "62 |",
    ]
