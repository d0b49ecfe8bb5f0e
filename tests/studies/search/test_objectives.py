"""Objectives: values of seeds, their interquartile mean, and rungs."""

import json
import math

import pytest
from sweeps import write_trial

from rlcli.errors import RlcliError
from rlcli.runs.statistics import bounded_iqm
from rlcli.studies.search.objectives import (
    Evaluation,
    EvaluationReader,
    Objective,
    parse_objective,
    summarize,
)

INF = math.inf
CURVES = [  # two seeds
    Evaluation(100, [0.0, 10.0]),
    Evaluation(200, [20.0, 10.0]),
    Evaluation(400, [40.0, -INF]),
]


@pytest.mark.parametrize(
    ("objective", "count", "expected"),
    [
        ("return", 3, [40, -INF]),
        ("return", 2, [20, 10]),
        # (0 + 20) / 2 · 100 + (20 + 40) / 2 · 200, over 300 steps
        ("auc", 3, [7000 / 300, -INF]),
        ("auc", 2, [10, 10]),
        ("auc", 1, [0, 10]),
        ("steps_to:10", 3, [200, 100]),
        ("steps_to:30", 3, [400, INF]),
    ],
)
def test_the_value_of_each_seed(objective, count, expected):
    values = parse_objective(objective).measure(CURVES[:count])
    assert values == pytest.approx(expected)


@pytest.mark.parametrize(
    ("objective", "expected"), [("return", 15), ("auc", 10), ("steps_to:18", 3)]
)
def test_trials_are_compared_by_what_they_have_reached(objective, expected):
    assert parse_objective(objective).rung(CURVES[:2]) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("values", "worst", "expected"),
    [
        ([1, 2, 3, 4], -INF, 2.5),
        ([-INF, 2, 3, 4], -INF, 2.5),  # the worst quarter has no weight
        ([-INF, -INF, 3, 4], -INF, -INF),
        ([-INF, 5, 5, 5, 5], -INF, 5),
        ([100, 200, 300, INF], INF, 250),
        ([INF, 200, INF], INF, INF),
        ([INF], INF, INF),
    ],
)
def test_the_iqm_tolerates_failures_in_the_worst_quarter(values, worst, expected):
    assert bounded_iqm(values, worst=worst) == expected


def test_a_summary_has_an_interval_unless_a_seed_failed():
    returns = Objective("return")
    summary = summarize([1.0, 2.0, 3.0, 4.0], returns)
    assert summary["value"] == 2.5
    low, high = summary["ci95"]
    assert 1 <= low < 2.5 < high <= 4
    assert summarize([1.0], returns) == {"value": 1.0, "ci95": None, "seeds": [1.0]}
    assert summarize([-INF, 1, 1, 1], returns)["ci95"] is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("steps_to", "has no return to reach"),
        ("steps_to:x", "has no return to reach"),
        ("steps_to:inf", "has no return to reach"),
        ("retrun", "there is no objective `retrun`"),
        ("auc:3", "there is no objective `auc:3`"),
        ("", "there is no objective ``"),
    ],
)
def test_other_objectives_are_refused(text, message):
    with pytest.raises(RlcliError, match=message):
        parse_objective(text)


def test_an_objective_is_written_as_it_is_read():
    texts = "return", "auc", "steps_to:475", "steps_to:-0.5", "evaluation.success"
    for text in texts:
        assert str(parse_objective(text)) == text


def test_an_evaluation_counts_when_all_seeds_have_it(tmp_path):
    reader = EvaluationReader(tmp_path, 2)
    assert reader.read() == []
    write_trial(tmp_path, {0: [(100, 1.0), (200, 2.0)], 1: [(100, 3.0)]})
    assert reader.read() == [Evaluation(100, [1.0, 3.0])]
    row = {"T": 200, "seed": 1, "evaluation": {"mean": None}}
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write(json.dumps(row) + "\n" + '{"T": 300, "seed": 0}\n{"T": 300')
    assert reader.read()[1:] == [Evaluation(200, [2.0, -INF])]


def test_an_objective_may_be_a_number_that_the_environment_reports(tmp_path):
    row = {"T": 100, "seed": 0, "evaluation": {"mean": 5.0, "success": 0.5}}
    (tmp_path / "metrics.jsonl").write_text(json.dumps(row) + "\n")
    objective = parse_objective("evaluation.success")
    evaluations = EvaluationReader(tmp_path, 1, objective.number).read()
    assert objective.measure(evaluations) == [0.5]
    with pytest.raises(RlcliError, match="have no `succes`") as error:
        EvaluationReader(tmp_path, 1, "succes").read()
    assert "did you mean `success`?" in error.value.hint


def test_frozen_seeds_have_the_worst_return(tmp_path):
    evaluation = {"mean": 5.0}
    row = {"T": 100, "seed": 0, "evaluation": evaluation, "frozen": "loss"}
    (tmp_path / "metrics.jsonl").write_text(json.dumps(row) + "\n")
    assert EvaluationReader(tmp_path, 1).read() == [Evaluation(100, [-INF])]


def test_a_resume_that_removes_rows_is_noticed(tmp_path):
    reader = EvaluationReader(tmp_path, 1)
    write_trial(tmp_path, {0: [(100, 1.0), (200, 2.0)]})
    assert len(reader.read()) == 2
    write_trial(tmp_path, {0: [(100, 1.0)]})
    assert reader.read() == [Evaluation(100, [1.0])]
    write_trial(tmp_path, {0: [(100, 1.0), (200, 4.0)]})
    assert reader.read()[-1] == Evaluation(200, [4.0])
