"""Series: what they find in metrics, beside a parser of JSON."""

import json
import math
import tracemalloc

import numpy as np
import pytest
from folders import metric_rows

from rlcli.results import curves
from rlcli.results.curves import read_series

EVALUATION = {"mean": 9.5, "std": 1.0, "min": 8.0, "max": 11.0, "length": 3.0}


def write(folder, *lines):
    text = "".join(
        each if isinstance(each, str) else json.dumps(each) + "\n" for each in lines
    )
    (folder / "metrics.jsonl").write_text(text, encoding="utf-8")
    return folder


def values(found, metric):
    return {
        seed: dict(zip(each.steps.tolist(), each.values.tolist(), strict=True))
        for seed, each in found.by_metric[metric].items()
    }


def test_the_values_of_a_metric_are_those_of_its_rows_by_seed(tmp_path):
    rows = metric_rows({0: [(10, 1.5), (20, -2e-9)], 3: [(10, 7), (20, 1e100)]})
    found = read_series(write(tmp_path, *rows), ["avg_G"])
    assert values(found, "avg_G") == {0: {10: 1.5, 20: -2e-9}, 3: {10: 7, 20: 1e100}}
    assert (found.damaged, found.metrics) == (0, {"T", "seed", "avg_G"})


def test_fields_of_evaluations_are_not_those_of_log_points(tmp_path):
    rows = [
        {"T": 1, "seed": 0, "mean": 2.0, "G": 3.0},
        {"T": 1, "seed": 0, "evaluation": EVALUATION, "frozen": 'a "mean": 7, reason'},
        {"T": 2, "seed": 0, "frozen": '"mean": 5.0', "mean": 4.0},
    ] * 2
    metrics = ["mean", "evaluation.mean", "evaluation.length", "evaluation.nothing"]
    found = read_series(write(tmp_path, *rows), metrics)
    assert values(found, "mean") == {0: {1: 2.0, 2: 4.0}}
    assert values(found, "evaluation.mean") == {0: {1: 9.5}}
    assert values(found, "evaluation.length") == {0: {1: 3.0}}
    assert values(found, "evaluation.nothing") == {}
    assert {"evaluation.max", "G", "mean"} < found.metrics


@pytest.mark.parametrize("separators", [(", ", ": "), (",", ":")])
def test_rows_in_any_form_of_json_give_the_same_values(tmp_path, separators):
    """Random rows with fields whose names contain each other, beside json.loads."""
    random = np.random.default_rng(0)
    names = ["a", "aa", 'x"a', "a.b", "é"]
    rows = []
    for step in range(300):
        kept = [name for name in names if random.random() < 0.5]
        some = [random.normal(), int(random.integers(9)), None]
        row = {name: some[random.integers(3)] for name in kept}
        rows.append({"T": step, "seed": int(random.integers(2)), **row})
    lines = [json.dumps(row, separators=separators, ensure_ascii=False) for row in rows]
    found = read_series(write(tmp_path, *(line + "\n" for line in lines)), names)
    for name in names:
        expected = {
            seed: {
                row["T"]: math.nan if row[name] is None else row[name]
                for row in rows
                if name in row and row["seed"] == seed
            }
            for seed in (0, 1)
        }
        np.testing.assert_equal(values(found, name), expected)


def test_a_partial_last_line_is_ignored_and_damaged_lines_are_counted(tmp_path):
    good = {"T": 5, "seed": 0, "G": 1.0}
    bad = ["nonsense\n", '{"T": 6, "seed": 0, "G": }\n', '{"G": 1}\n', "\n", "[1]\n"]
    last = '{"T": 7, "seed": 0, "G": 123'
    found = read_series(write(tmp_path, good, *bad, last), ["G"])
    assert values(found, "G") == {0: {5: 1.0}}
    assert found.damaged == len(bad)


def test_a_line_without_end_is_one_damaged_line(tmp_path, monkeypatch):
    monkeypatch.setattr(curves, "_BLOCK", 64)
    monkeypatch.setattr(curves, "_LONGEST", 256)
    row = {"T": 5, "seed": 0, "G": 1.0}
    found = read_series(write(tmp_path, row, "x" * 5000 + "\n", {**row, "T": 6}), ["G"])
    assert values(found, "G") == {0: {5: 1.0, 6: 1.0}}
    assert found.damaged == 1


def test_of_rows_with_one_step_the_last_counts(tmp_path):
    rows = metric_rows({0: [(10, 1), (20, 2), (30, 3), (20, 4), (40, 5)]})
    found = read_series(write(tmp_path, *rows), ["avg_G"])
    assert values(found, "avg_G") == {0: {10: 1, 20: 4, 30: 3, 40: 5}}


def test_a_number_whose_square_is_no_float_is_no_value(tmp_path):
    rows = metric_rows({0: [(10, 1), (20, 1e308), (30, 10**300), (40, -2)]})
    steps, found = read_series(write(tmp_path, *rows), ["avg_G"]).by_metric["avg_G"][0]
    assert steps.tolist() == [10, 20, 30, 40]
    assert np.isnan(found).tolist() == [False, True, True, False]


def test_a_run_without_metrics_has_no_series(tmp_path):
    found = read_series(tmp_path, ["G"])
    assert (found.by_metric, found.metrics, found.damaged) == (
        {"G": {}},
        frozenset(),
        0,
    )


@pytest.mark.slow
def test_metrics_are_read_in_little_more_than_the_memory_of_a_block(tmp_path):
    fields = {f"metric_{index}": 0.0123456789 * index for index in range(18)}
    row = json.dumps({"T": 0, "seed": 0, "avg_G": 17.25, **fields})[len('{"T": 0') :]
    count = 20_000_000 // (len(row) + 10)
    with open(tmp_path / "metrics.jsonl", "w") as file:
        file.writelines(f'{{"T": {step}{row}\n' for step in range(count))
    tracemalloc.start()
    found = read_series(tmp_path, ["evaluation.mean", "avg_G"])
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(found.by_metric["avg_G"][0].steps) == count
    assert peak < 20_000_000 + 5 * curves._BLOCK
