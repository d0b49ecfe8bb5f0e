"""The rows of a run: one history, whatever happens to the process that writes it."""

import errno
import json
import os
import time
import tracemalloc

import numpy as np
import pytest

from rlcli.errors import RlcliError
from rlcli.runs import metrics
from rlcli.runs.metrics import (
    CLOCK_FIELDS,
    Metrics,
    MetricsReader,
    drop_clock_fields,
    read_last_rows,
    read_metrics,
)


def row(step, seed=0, **more):
    return {"T": step, "seed": seed, "ep": 1, "G": 2.0, "t": 3} | more


def write(folder, steps, **options):
    with Metrics(folder, **options) as rows:
        for T in steps:
            rows.append([row(T, seed) for seed in (0, 1)])


def steps_of(folder):
    return [each["T"] for each in read_metrics(folder)]


def test_a_row_is_a_line_with_the_common_fields_first_and_the_clock_last(tmp_path):
    with Metrics(tmp_path) as rows:
        given = {"time": 5.0, "loss": 0.5, "dt": 0.1, "avg_r": 1.0, "avg_G": 2.5}
        rows.append([given | row(1000)])
    names = ["T", "seed", "ep", "G", "t", "avg_G", "avg_r", "loss", "dt", "time"]
    (text,) = (tmp_path / "metrics.jsonl").read_text().splitlines()
    assert list(json.loads(text)) == names
    assert read_metrics(tmp_path) == [given | row(1000)]


def test_what_is_not_finite_is_null_and_every_line_is_json(tmp_path):
    with Metrics(tmp_path) as rows:
        result = {"mean": np.float32("inf"), "episodes": np.int64(20)}
        rows.append([row(10, loss=float("nan"), evaluation=result)])
    (text,) = (tmp_path / "metrics.jsonl").read_text().splitlines()

    def refuse(name):
        raise AssertionError(name)

    read_back = json.loads(text, parse_constant=refuse)
    assert read_back["loss"] is None
    assert read_back["evaluation"] == {"mean": None, "episodes": 20}


def test_float32_numbers_come_back_as_the_same_numbers(tmp_path):
    with Metrics(tmp_path) as rows:
        rows.append([row(10, loss=np.float32(0.1))])
    assert np.float32(read_metrics(tmp_path)[0]["loss"]) == np.float32(0.1)


def test_a_log_point_can_be_read_while_the_run_goes_on(tmp_path):
    with Metrics(tmp_path) as rows:
        rows.append([row(10)])
        assert steps_of(tmp_path) == [10]


def test_a_resumed_history_has_no_row_beyond_its_checkpoint(tmp_path):
    write(tmp_path, [100, 200, 300])
    before = (tmp_path / "metrics.jsonl").read_bytes().splitlines(keepends=True)
    write(tmp_path, [300, 400], resume_at=200)
    after = (tmp_path / "metrics.jsonl").read_bytes().splitlines(keepends=True)
    assert steps_of(tmp_path) == [100, 100, 200, 200, 300, 300, 400, 400]
    assert after[:4] == before[:4]
    assert [path.name for path in tmp_path.iterdir()] == ["metrics.jsonl"]


@pytest.mark.parametrize("torn", ['{"T": 200, "se', '{"T": 200}', "\0\0"])
def test_a_line_that_a_killed_process_left_unfinished_is_cut_off(tmp_path, torn):
    write(tmp_path, [100])
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write(torn)
    assert steps_of(tmp_path) == [100, 100]
    write(tmp_path, [200], resume_at=200)
    assert steps_of(tmp_path) == [100, 100, 200, 200]


@pytest.mark.slow
@pytest.mark.parametrize("resume_at", [0, 500_000, 999_999])
def test_a_million_rows_are_cut_within_seconds_and_little_memory(tmp_path, resume_at):
    path = tmp_path / "metrics.jsonl"
    rest = ', "seed": 0, "ep": 1, "G": 2.0, "loss": null' + ', "x": 1.25' * 20 + "}\n"
    with path.open("w") as file:
        file.writelines(f'{{"T": {step}{rest}' for step in range(1_000_000))
    tracemalloc.start()
    start = time.monotonic()
    Metrics(tmp_path, resume_at).close()
    seconds, (_, peak) = time.monotonic() - start, tracemalloc.get_traced_memory()
    tracemalloc.stop()
    with path.open() as file:
        assert sum(1 for _ in file) == resume_at + 1
    assert seconds <= 5
    assert peak <= 200e6


def test_a_resumed_history_ends_at_any_step(tmp_path):
    for resume_at in (0, 99, 100, 250, 1_000):
        write(tmp_path, [100, 200, 300])
        Metrics(tmp_path, resume_at).close()
        kept = [step for step in (100, 200, 300) if step <= resume_at]
        assert steps_of(tmp_path) == [step for step in kept for _ in range(2)]


def test_a_run_that_starts_again_begins_a_new_history(tmp_path):
    write(tmp_path, [100, 200])
    write(tmp_path, [50])
    assert steps_of(tmp_path) == [50, 50]


def test_a_disk_that_fails_before_rows_are_removed_is_an_error(tmp_path, monkeypatch):
    write(tmp_path, [10, 20])

    def fail(path, **_):
        raise OSError(errno.EIO, "Input/output error", path)

    with monkeypatch.context() as patch:
        patch.setattr(os, "lstat", fail)  # for `os.path.lexists`: there is no file
        patch.setattr(os, "stat", fail)
        with pytest.raises(RlcliError, match=r"metrics.jsonl` cannot be read: Input"):
            Metrics(tmp_path, resume_at=10)
    assert steps_of(tmp_path) == [10, 10, 20, 20]


def test_a_run_that_has_not_logged_has_no_rows(tmp_path):
    assert read_metrics(tmp_path) == []
    write(tmp_path, [], resume_at=100)
    assert read_metrics(tmp_path) == []


@pytest.mark.parametrize("broken", ["nonsense", "[1]", '{"seed": 0}', '{"T": "a"}'])
def test_a_broken_line_is_named_with_its_file(tmp_path, broken):
    write(tmp_path, [100])
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write(broken + "\n")
    with pytest.raises(RlcliError, match=r"metrics\.jsonl`, line 3"):
        read_metrics(tmp_path)
    with pytest.raises(RlcliError, match="line 3"):
        Metrics(tmp_path, resume_at=100)


def test_a_resume_finds_damage_before_its_step_and_removes_it_behind(tmp_path):
    """Also a line so long that a bisection would land in it."""
    write(tmp_path, range(100, 600, 100))
    path = tmp_path / "metrics.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:6], b"\0" * 3_000 + b"\n", *lines[6:]]))
    with pytest.raises(RlcliError, match="line 7"):
        Metrics(tmp_path, resume_at=400)
    with path.open() as file:
        assert sum(1 for _ in file) == 11
    Metrics(tmp_path, resume_at=200).close()
    assert steps_of(tmp_path) == [100, 100, 200, 200]
    path.write_bytes(b"".join([lines[0], b"nonsense\n", *lines[2:]]))
    with pytest.raises(RlcliError, match="line 2"):
        Metrics(tmp_path, resume_at=400)


@pytest.mark.parametrize("number", ["9" * 400, "-1e308", "1e200", "Infinity", "NaN"])
def test_a_number_whose_square_is_no_float_is_null(tmp_path, number):
    result = f'{{"mean": {number}, "std": 1.0}}'
    line = f'{{"T": 1, "seed": 0, "G": {number}, "t": 3, "evaluation": {result}}}\n'
    (tmp_path / "metrics.jsonl").write_text(line)
    (row,) = read_metrics(tmp_path)
    assert row == {
        **{"T": 1, "seed": 0, "G": None, "t": 3},
        "evaluation": {"mean": None, "std": 1.0},
    }


def test_equal_runs_differ_in_the_clock_only():
    assert CLOCK_FIELDS == ("dt", "steps_per_second", "updates_per_second", "time")
    clock = dict.fromkeys(CLOCK_FIELDS, 1.0)
    assert drop_clock_fields(row(10) | clock) == row(10)


def test_rows_are_read_while_they_are_written(tmp_path):
    reader = MetricsReader(tmp_path)
    assert reader.read() == []
    write(tmp_path, [100, 200])
    assert [each["T"] for each in reader.read()] == [100, 100, 200, 200]
    assert reader.read() == []
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"T": 300, "seed": 0}\n{"T": 3')
        file.flush()
        assert reader.read() == [{"T": 300, "seed": 0}]
        file.write('00, "seed": 1}\n')
    assert reader.read() == [{"T": 300, "seed": 1}]


@pytest.mark.parametrize("later", [[100], [100, 250, 300, 400], None])
def test_a_reader_notices_that_rows_were_removed(later, tmp_path):
    write(tmp_path, [100, 200])
    reader = MetricsReader(tmp_path)
    assert len(reader.read()) == 4
    if later is None:
        (tmp_path / "metrics.jsonl").unlink()
    else:
        write(tmp_path, later)
    assert reader.read() is None


def test_the_last_rows_are_those_of_the_last_log_point_and_evaluation(tmp_path):
    write(tmp_path, [100, 200])
    with Metrics(tmp_path, resume_at=200) as rows:
        rows.append([{"T": 200, "seed": s, "evaluation": {"mean": s}} for s in (0, 1)])
        rows.append([row(300, seed) for seed in (0, 1)])
    logged, evaluation = read_last_rows(tmp_path, 2, with_evaluation=True)
    assert logged == [row(300, 0), row(300, 1)]
    assert [each["evaluation"]["mean"] for each in evaluation] == [0, 1]
    assert read_last_rows(tmp_path / "none", 2, with_evaluation=True) == ([], [])


@pytest.mark.parametrize("with_evaluation", [True, False])
def test_the_last_rows_are_found_beyond_a_block(with_evaluation, tmp_path, monkeypatch):
    monkeypatch.setattr(metrics, "_TAIL", 64)
    with Metrics(tmp_path) as rows:
        rows.append([{"T": 9, "seed": s, "evaluation": {"mean": s}} for s in range(9)])
        rows.append([row(10, seed) for seed in range(9)])
        rows.append([{"T": 11, "seed": 0, "text": "x" * 500}])
    logged, evaluation = read_last_rows(tmp_path, 9, with_evaluation=with_evaluation)
    assert [each["T"] for each in logged] == [11]
    assert len(evaluation) == 9


@pytest.mark.parametrize(
    "change",
    [
        {"T": True},
        {"T": 1.0},
        {"T": -1},
        {"T": 10**300},
        {"seed": [0]},
        {"seed": None},
        {"ep": "1"},
        {"avg_G": "a"},
        {"avg_G": {}},
        {"time": []},
        {"loss": [1.0]},
        {"loss": {"a": 1}},
        {"evaluation": 3},
        {"evaluation": {}},
        {"evaluation": {"mean": "a"}},
        {"evaluation": {"mean": 1.0, "std": [0]}},
        {"evaluation": {"mean": 1.0, "episodes": 0}},
    ],
    ids=str,
)
def test_a_row_that_rlcli_never_writes_is_one_error_for_every_reader(tmp_path, change):
    line = json.dumps(row(10, avg_G=1.0, avg_r=0.5) | change)
    (tmp_path / "metrics.jsonl").write_text(f"{json.dumps(row(5))}\n{line}\n")
    for read in (
        read_metrics,
        lambda folder: MetricsReader(folder).read(),
        lambda folder: read_last_rows(folder, 1, with_evaluation=True),
    ):
        with pytest.raises(RlcliError, match="not a row of metrics") as error:
            read(tmp_path)
        assert f"`{next(iter(change))}`" in error.value.hint
