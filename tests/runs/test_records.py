"""Records: what a run folder says about its run, also if it is damaged."""

import fcntl
import json
import os

import numpy as np
import pytest
from folders import snapshot, write_run

from rlcli.errors import RlcliError
from rlcli.runs.cell_table import (
    describe_recorded,
    describe_states,
    describe_studies,
    read_cells,
)
from rlcli.runs.creation import create_run
from rlcli.runs.formatting import format_source
from rlcli.runs.listing import read_recipe
from rlcli.runs.records import FIELDS, find_status, read_record
from rlcli.runs.run_folder import INFO_FIELDS, Run
from rlcli.runs.statistics import bootstrap_ci95, iqm
from rlcli.runs.study_record import Cell, find_study, record_study


def edit(run, **fields):
    info = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps(info | fields))


def test_a_record_says_what_became_of_a_run(tmp_path):
    means = (10.0, 14.0, 30.0)
    run = write_run(tmp_path / "a", means=means, tags=["paper"], name="base")
    before = snapshot(run)
    record = read_record(run)
    assert {*record} == {*FIELDS}
    assert record["run"] == str(run)
    assert (record["name"], record["tags"]) == ("base", ["paper"])
    assert (record["status"], record["steps"]) == ("finished", 50_000)
    assert record["steps_per_second"] == 1_000
    assert record["changes"] == {"optimizer.learning_rate": [0.001, 0.0005]}
    result = record["return"]
    assert (result["source"], result["step"]) == ("evaluation", 50_000)
    assert result["seeds"] == [*means]
    assert result["mean"] == 18
    assert result["iqm"] == iqm(means)
    assert result["ci95"] == [*bootstrap_ci95(means)]
    assert json.loads(json.dumps(record)) == record
    assert snapshot(run) == before


def test_without_an_evaluation_the_return_is_that_of_training(tmp_path):
    run = write_run(tmp_path / "a", means=(10.0,), is_evaluated=False)
    assert read_record(run)["return"] == {
        **{"mean": 11, "iqm": 11, "ci95": None, "seeds": [11.0]},
        **{"step": 50_000, "source": "training"},
    }
    (run / "metrics.jsonl").write_text("")
    assert read_record(run)["return"] is None
    assert read_record(run)["steps"] == 0


def test_an_evaluation_far_before_the_end_is_found(tmp_path):
    run = write_run(tmp_path / "a")
    rows = [{"T": 50_000 + i, "seed": i % 2, "loss": 0.5} for i in range(10_000)]
    with (run / "metrics.jsonl").open("a") as file:
        file.write("".join(json.dumps(row) + "\n" for row in rows))
        file.write('{"T": 99')  # is being written
    record = read_record(run)
    assert record["steps"] == 59_999
    assert record["return"]["seeds"] == [10.0, 14.0]


def test_a_return_that_is_not_a_number_is_one_of_the_returns(tmp_path):
    run = write_run(tmp_path / "a")
    text = (run / "metrics.jsonl").read_text().replace('"mean": 10.0', '"mean": null')
    (run / "metrics.jsonl").write_text(text)
    result = read_record(run)["return"]
    assert result["seeds"] == [None, 14.0]
    assert np.isnan(result["mean"])


def test_a_seed_without_a_finished_episode_has_no_return(tmp_path):
    rows = [{"T": 9, "seed": 0}, {"T": 9, "seed": 1, "avg_G": 3.0}]
    result = read_record(write_run(tmp_path / "a", rows=rows, seeds=[0, 1]))["return"]
    assert (result["seeds"], result["source"]) == ([None, 3.0], "training")
    assert np.isnan(result["iqm"])
    rows = [{"T": 9, "seed": 0}, {"T": 9, "seed": 1}]
    run = write_run(tmp_path / "b", rows=rows, seeds=[0, 1])
    assert read_record(run)["return"] is None


@pytest.mark.parametrize("status", ["created", "running"])
def test_a_run_without_a_process_was_killed(status, tmp_path):
    run = write_run(tmp_path / "a", status=status)
    assert read_record(run)["status"] == "killed"
    with (run / ".lock").open("w") as file:
        assert read_record(run)["status"] == "killed"
        fcntl.flock(file, fcntl.LOCK_EX)
        assert read_record(run)["status"] == status
    edit(run, status="interrupted")
    assert read_record(run)["status"] == "interrupted"


def test_a_run_that_has_not_begun_has_a_record(tmp_path):
    run = create_run("dqn", run=tmp_path / "run")
    with run.lock():
        record = read_record(run.folder)
    assert (record["status"], record["steps"]) == ("created", 0)
    assert record["return"] is None


DAMAGES = {
    "run.json": [
        *("", "{", "[]", "{}", "\x00" * 9, '{"status": 3}', '{"status": "x"}'),
        '{"status": "x", "changes": {"a": 1}}',
        '{"status": "x", "frozen": 3}',
    ],
    "metrics.jsonl": ["{}\n", "text\n", '{"T": "x", "evaluation": {}}\n', "\xff\n"],
    "checkpoints.json": ["[", '{"best": 3}', "[]"],
}


@pytest.mark.parametrize(
    ("name", "text"),
    [(name, text) for name, texts in DAMAGES.items() for text in texts],
)
def test_a_damaged_file_makes_a_record_and_no_error(name, text, tmp_path):
    run = write_run(tmp_path / "2026-11-20T10-00-00")
    (run / name).write_text(text)
    record = read_record(run)
    assert {*record} == {*FIELDS}
    assert record["created"] == "2026-11-20T10:00:00Z"
    if (name, text) != ("run.json", '{"status": "x"}'):  # of a later version
        assert record["status"] == "broken"
        assert name in record["reason"] or "unexpected content" in record["reason"]


@pytest.mark.parametrize("name", sorted({*FIELDS} - {*INFO_FIELDS}))
@pytest.mark.parametrize("value", ["/elsewhere", ["x"], {"a": 1}])
def test_what_is_computed_is_not_taken_from_a_record(name, value, tmp_path):
    run = write_run(tmp_path / "a")
    sound = read_record(run)
    info = json.loads((run / "run.json").read_text()) | {name: value}
    (run / "run.json").write_text(json.dumps(info))
    assert read_record(run) == sound
    del info["status"]  # so that nothing is computed
    (run / "run.json").write_text(json.dumps(info))
    assert read_record(run)[name] == {"run": str(run)}.get(name)


@pytest.mark.parametrize("init", [{"seeds": 5}, {"steps": "x"}, {"steps": [None]}])
def test_where_a_run_started_from_is_checked(init, tmp_path):
    run = write_run(tmp_path / "a", init=init)
    record = read_record(run)
    assert record["status"] == "broken" and "`init` is" in record["reason"]
    assert format_source(record["init"]) == ""


def test_an_evaluation_without_a_mean_breaks_a_record(tmp_path):
    run = write_run(tmp_path / "a")
    (run / "metrics.jsonl").write_text('{"T": 1, "seed": 0, "evaluation": {}}\n')
    assert read_record(run)["status"] == "broken"


def test_the_status_of_a_run_without_its_record_is_an_error_that_names_it(tmp_path):
    run = write_run(tmp_path / "a")
    (run / "run.json").unlink()
    with pytest.raises(RlcliError, match=r"run\.json` is missing") as caught:
        find_status(Run(run))
    assert f"resume {run}" in caught.value.hint


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_pipe_in_place_of_a_recipe_is_not_waited_for(tmp_path):
    run = write_run(tmp_path / "a")
    (run / "resolved.yaml").unlink()
    os.mkfifo(run / "resolved.yaml")
    assert read_recipe(run) == {}


def test_a_folder_without_files_is_broken(tmp_path):
    record = read_record(tmp_path)
    assert record["status"] == "broken"
    assert "run.json` is missing" in record["reason"]
    assert read_record(tmp_path / "none")["status"] == "broken"


def test_a_speed_that_is_no_number_makes_a_broken_record(tmp_path):
    rows = [{"T": 5, "seed": 0, "steps_per_second": {"a": 1}}]
    record = read_record(write_run(tmp_path / "run", rows=rows))
    assert record["status"] == "broken" and "not a row of metrics" in record["reason"]


def test_returns_of_unknown_seeds_have_no_column(tmp_path):
    rows = [{"T": 9, "seed": 1, "avg_G": 3.0}]
    run = write_run(tmp_path / "learning_rate=1", rows=rows, seeds=[0, 1])
    record_study(tmp_path, [Cell(run, tmp_path, "lake", "")])
    text = describe_recorded(find_study(tmp_path))
    assert "IQM" in text and "seed 0" not in text


def test_a_study_is_described_by_the_states_of_its_cells(tmp_path):
    cells = [Cell(tmp_path / f"a{n}", tmp_path, "lake", "") for n in range(5)]
    record_study(tmp_path, cells)
    for number, status in enumerate(("finished", "running", "failed")):
        rows = [{"T": 50, "seed": seed, "steps_per_second": 10.0} for seed in (0, 1)]
        fields = {"total_steps": 100, "reason": "the loss is not finite\nmore"}
        write_run(cells[number].folder, rows=rows, is_evaluated=False, **fields)
        edit(cells[number].folder, status=status)
    study = find_study(tmp_path)
    with Run(cells[1].folder).lock():
        lines = describe_states(study, read_cells(study))
    # 2 × 50 steps of the cell that is trained, 2 × 200 of the others, 10 each second.
    assert lines == [
        "5 cells: 2 missing, 1 finished, 1 running, 1 failed; about 50 s left",
        "`a2`: failed: the loss is not finite",
    ]


def test_the_time_left_of_a_study_that_has_just_resumed_is_that_of_earlier_cells(
    tmp_path,
):
    """Two cells are in training, of which one has no log point yet."""
    cells = [Cell(tmp_path / f"a{n}", tmp_path, "lake", "") for n in range(4)]
    record_study(tmp_path, cells)
    speeds = {"finished": 30.0, "running": 10.0, "created": None}
    for cell, (status, speed) in zip(cells, speeds.items(), strict=False):
        rows = [{"T": 50, "seed": 0, "steps_per_second": speed}] if speed else []
        write_run(cell.folder, rows=rows, is_evaluated=False, total_steps=100)
        edit(cell.folder, status=status, seeds=[0])
    study = find_study(tmp_path)
    with Run(cells[1].folder).lock(), Run(cells[2].folder).lock():
        line, *_ = describe_states(study, read_cells(study))
        assert line.endswith("about 8 s left")  # 50 + 100 + 100 steps, 10 + 20 a second
        edit(cells[1].folder, status="created")
        (cells[1].folder / "metrics.jsonl").write_text("")
        line, *_ = describe_states(study, read_cells(study))
        assert line.endswith("about 5 s left")  # 300 steps, 2 × 30 a second


def test_the_best_run_of_a_sweep_is_its_winner(tmp_path):
    cells = [Cell(tmp_path / name, tmp_path, "lake", "") for name in "ab"]
    record_study(tmp_path, cells, search={})
    for cell, mean in zip(cells, (1.0, 9.0), strict=True):
        write_run(cell.folder, means=(mean,))
    (tmp_path / "result.json").write_text('{"status": "finished", "winner": null}')
    assert find_study(tmp_path).choose_best() == tmp_path / "b"
    for label, best in (("a", "a"), ("../a", "b")):
        result = {"status": "finished", "winner": {"run": label}}
        (tmp_path / "result.json").write_text(json.dumps(result))
        assert find_study(tmp_path).choose_best() == tmp_path / best
    edit(cells[1].folder, status="terminated")  # pruned
    records = [read_record(cell.folder) for cell in cells]
    assert describe_studies(tmp_path, records) == []
    (tmp_path / "result.json").write_text('{"status": "running"}')
    (line,) = describe_studies(tmp_path, records)
    assert line == f"{tmp_path}: 2 cells: 1 finished, 1 terminated"
