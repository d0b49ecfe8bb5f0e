"""The table of what recipes reach: what was measured, of recipes that there are."""

import json
from pathlib import Path

import pytest
import yaml

from benchmarks.learning import headers, table
from benchmarks.learning.__main__ import recorded_seconds, refuse_other_options
from benchmarks.learning.rows import ROWS, Row
from rlcli import recipe

ROOT = Path(__file__).parents[2]
RESULTS = json.loads((ROOT / "benchmarks" / "learning" / "results.json").read_text())


def test_every_row_is_a_recipe_and_is_there_once():
    names = [row.recipe for row in ROWS]
    assert set(names) <= set(recipe.shipped_recipes())
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.recipe)
def test_no_recipe_is_reported_on_a_seed_of_its_tuning(row):
    assert not {*row.seeds} & {*row.tuned}
    if result := RESULTS.get(row.recipe):
        assert result["seeds"] == [row.seeds[0], row.seeds[-1]]
        assert result["tuned"] == [*row.tuned[:1], *row.tuned[-1:]]


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


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.recipe)
def test_the_comments_of_recipes_say_what_was_measured(row):
    text = (ROOT / "recipes" / f"{row.recipe}.yaml").read_text(encoding="utf-8")
    if row.has_header and row.recipe in RESULTS:
        assert headers.sentence(RESULTS[row.recipe]) in headers.text_of(text)


def test_the_sentence_of_a_comment_is_replaced_and_the_others_stay():
    result = {"steps": 50_000, "means": [480.0, 500.0], "iqm": 490.0}
    result |= {"ci95": [480.0, 500.0], "tuned": []}
    before = (
        "# DQN on CartPole.\n# Double. Greedy return 3.5 after 9 000 steps, on 5 of 5 "
        "seeds. Slow.\n# yaml-language-server: x\na: 1\n"
    )
    after = headers.update(before, result)
    assert after == (
        "# DQN on CartPole.\n"
        "# Double. Greedy return 490 after 50 000 steps: the IQM of 2 seeds of 100 "
        "episodes, 95 %\n# interval 480 … 500. Slow.\n"
        "# yaml-language-server: x\na: 1\n"
    )
    assert headers.update(after, result) == after
    result |= {"means": [500.0] * 10, "iqm": 500.0, "tuned": [0, 4]}
    assert headers.sentence(result) == (
        "Greedy return 500 after 50 000 steps, on 10 of 10 new seeds."
    )
    bare = headers.update("# DQN on CartPole.\na: 1\n", result)
    assert bare.splitlines()[1] == f"# {headers.sentence(result)}"


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


@pytest.mark.parametrize(
    ("published", "said"), [("2383 ± 272", "none [2383 ± 272]"), ("", "none")]
)
def test_a_published_result_needs_no_goal(published, said):
    result = {"environment": "gymnasium/Hopper-v5", "steps": 1_000_000, "seconds": 90.0}
    result |= {"means": [2_500.0, 2_600.0], "iqm": 2_550.0, "ci95": [2_500.0, 2_600.0]}
    result |= {"seeds": [1000, 1002], "tuned": []}
    row = Row("ppo_gymnasium_hopper", None, published, range(1_000, 1_003))
    cells = table.line(row, result).split(" | ")
    assert cells[3] == said
    assert cells[7] == "1000 … 1002 (not tuned)"


@pytest.mark.parametrize(("tuned", "said"), [([0, 4], "0 … 4"), ([0, 0], "0")])
def test_seeds_of_tuning_are_a_range_or_one(tuned, said):
    result = {"seeds": [1_000, 1_004], "tuned": tuned}
    assert table.seeds(result) == f"1000 … 1004 (tuned on {said})"


def test_a_single_seed_has_no_interval():
    result = {"environment": "brax/ant", "steps": 10_000, "seconds": 61.6}
    result |= {"means": [3_000.0], "iqm": 3_000.0, "ci95": None}
    result |= {"seeds": [1_000, 1_000], "tuned": []}
    cells = table.line(Row("ppo_brax_ant", None), result).split(" | ")
    assert cells[4:8] == ["3000", "3000", "none", "1000 (not tuned)"]
    assert headers.sentence(result) == (
        "Greedy return 3000 after 10 000 steps, of one seed."
    )


def test_the_seconds_before_a_resume_are_those_between_the_rows_of_one_seed(tmp_path):
    rows = [(100, 50.0), (100, 50.0), (300, 100.0), (300, 100.0)]
    lines = [
        json.dumps({"T": step, "seed": 7 + index % 2, "steps_per_second": speed})
        for index, (step, speed) in enumerate(rows)
    ]
    evaluation = json.dumps({"T": 300, "seed": 7, "evaluation": {"mean": 1.0}})
    (tmp_path / "metrics.jsonl").write_text("\n".join([*lines, evaluation, ""]))
    # Twice 100 steps at 50 per second, then twice 200 at 100.
    assert recorded_seconds(str(tmp_path), range(7, 9)) == pytest.approx(4 + 4)


def test_a_run_with_other_options_or_seeds_is_not_continued(tmp_path):
    row = Row("dqn_cartpole", seeds=range(3, 5))

    def write(*changes):
        options = recipe.resolve(recipe.load_recipe(row.recipe, changes))
        (tmp_path / "resolved.yaml").write_text(yaml.safe_dump(options))

    write("train.seed=3", "train.seeds=2")
    refuse_other_options(str(tmp_path), row)
    write("train.seed=3", "train.seeds=2", "tracer.gamma=0.5")
    with pytest.raises(SystemExit, match=r"other options \(tracer\.gamma\)"):
        refuse_other_options(str(tmp_path), row)
    write("train.seeds=2")
    with pytest.raises(SystemExit, match=r"other options \(train\.seed\)"):
        refuse_other_options(str(tmp_path), row)
