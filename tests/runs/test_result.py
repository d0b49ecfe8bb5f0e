"""Results: dicts with attributes, and what a notebook shows of them."""

import json
import pickle

import numpy as np
import pytest
from folders import metric_rows, write_run

import rlcli
from rlcli.runs.result import Result, Text


def test_the_fields_of_a_result_are_attributes_at_every_depth():
    data = {"return": {"mean": 2.0}, "seeds": [{"seed": 3, "values": [1, 2]}]}
    result = Result(data)
    assert result == data and json.loads(json.dumps(result)) == data
    assert result.return_.mean == 2.0
    assert result.seeds[0].seed == 3
    assert result.seeds[0].values_ == [1, 2]
    assert {"return_", "seeds"} <= {*dir(result)}
    assert pickle.loads(pickle.dumps(result)) == data
    with pytest.raises(AttributeError, match=r"no field `sedes`.*`seeds`"):
        _ = result.sedes


def test_what_a_file_says_is_quoted_in_a_notebook():
    html = Result({"<b>": "<script>"})._repr_html_() + Text("<i>")._repr_html_()
    assert "<script>" not in html and "<b>" not in html and "<i>" not in html
    assert "&lt;script&gt;" in html


def test_runs_curves_comparisons_and_text_are_shown_in_a_notebook(tmp_path):
    folder = tmp_path / "runs" / "a"
    rows = metric_rows({0: [(10, 1.0), (20, 2.0)], 1: [(10, 2.0), (20, 4.0)]})
    write_run(folder, rows=rows)
    records = rlcli.runs(tmp_path / "runs")
    assert records[0].seeds == records[0]["seeds"]
    assert str(folder) in records._repr_html_()
    (write_run(tmp_path / "runs" / "b") / "run.json").write_text("{")
    assert "broken" in rlcli.runs(tmp_path / "runs")._repr_html_()
    curves = rlcli.plot(folder)
    assert curves.curves[0].y == [1.5, 3.0]
    assert curves._repr_html_().startswith('<img src="data:image/png;base64,')
    assert "<table>" in rlcli.compare(folder)._repr_html_()
    assert rlcli.show(str(folder))._repr_html_().startswith("<pre>")


def test_curves_are_text_without_matplotlib(tmp_path, monkeypatch):
    folder = tmp_path / "a"
    write_run(folder, rows=metric_rows({0: [(10, 1.0), (20, 2.0)]}))
    monkeypatch.setattr("rlcli.results.figure.has_library", lambda: False)
    assert rlcli.plot(folder)._repr_html_().startswith("<pre>")


def test_the_episodes_of_an_evaluation_are_a_table(monkeypatch):
    seeds = [
        {"seed": 4, "returns": [1.0, 3.0], "lengths": [5, 6]},
        {"seed": 5, "returns": [2.0], "lengths": [7]},
    ]
    monkeypatch.setattr(
        "rlcli.evaluation.evaluate.eval", lambda run, **_: {"seeds": seeds}
    )
    table = rlcli.episodes("run", episodes=2)
    assert np.asarray(table["seed"]).tolist() == [4, 4, 5]
    assert np.asarray(table["episode"]).tolist() == [0, 1, 0]
    assert np.asarray(table["return"]).tolist() == [1.0, 3.0, 2.0]
    assert np.asarray(table["length"]).tolist() == [5, 6, 7]
