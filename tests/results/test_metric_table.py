"""The table of a run's metrics, against rows that are written by hand."""

import importlib.util
import json
import math

import numpy as np
import pytest

import rlcli

ROWS = [
    {"T": 10, "seed": 0, "avg_G": 1.5},
    {"T": 10, "seed": 0, "evaluation": {"mean": 3.0, "episodes": 2}},
    {"T": 20, "seed": 0, "avg_G": 2.5, "frozen": "the loss is not finite"},
]


@pytest.mark.parametrize("library", ["pandas", "polars", ""])
def test_metrics_are_a_table_of_what_is_installed(library, tmp_path, monkeypatch):
    if library and importlib.util.find_spec(library) is None:
        pytest.skip(f"{library} is not installed")
    found = importlib.util.find_spec
    hidden = {"pandas", "polars"} - {library}
    monkeypatch.setattr(
        importlib.util,
        "find_spec",
        lambda name: None if name in hidden else found(name),
    )
    (tmp_path / "run.json").write_text('{"status": "finished"}')
    lines = "".join(json.dumps(row) + "\n" for row in ROWS)
    (tmp_path / "metrics.jsonl").write_text(lines)
    table = rlcli.metrics(tmp_path)
    assert type(table).__module__.partition(".")[0] == (library or "builtins")
    assert np.asarray(table["T"]).tolist() == [10, 10, 20]
    first, missing, last = np.asarray(table["avg_G"]).tolist()
    assert (first, last) == (1.5, 2.5) and math.isnan(missing)
    assert np.asarray(table["evaluation.mean"])[1] == 3.0
    assert list(table["frozen"])[2] == "the loss is not finite"
