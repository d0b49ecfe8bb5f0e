"""The benchmark of the board, with few and short runs."""

import pytest

from benchmarks import board
from rlcli.results.board.page_parts import PartMaker, Selection
from rlcli.results.board.run_index import RunIndex


@pytest.fixture
def runs(tmp_path):
    for number in range(12):
        board.write_run(tmp_path / "runs" / f"{number:04d}", number, 400)
    return tmp_path / "runs"


def test_its_runs_are_runs_of_ten_groups_with_evaluations(runs):
    maker = PartMaker(RunIndex([runs]))
    rows = maker.list_runs("", 0, 0)["rows"]
    assert {row["status"] for row in rows} == {"finished"}
    found = maker.make("learning", Selection())
    assert len(found["labels"]) == board.GROUPS
    blocks = found["learning"][0]["curves"][0]["blocks"]
    assert {block["x"][-1] for block in blocks} == {40_000}


def test_every_figure_is_measured(runs, monkeypatch):
    monkeypatch.setattr(board.time, "sleep", lambda seconds: None)
    found = board.measure_board(runs, 400)
    assert [*found] == ["table", "open", "update", "update of all"]
    assert all(seconds > 0 for seconds in found.values())
