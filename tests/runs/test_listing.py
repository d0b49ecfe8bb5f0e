"""Listing: which runs there are below a folder, and in which order."""

import json
import os
import tracemalloc
from pathlib import Path

import pytest
from folders import RESOLVED, imports_jax, snapshot, write_run

import rlcli
from rlcli.errors import RlcliError
from rlcli.runs import metrics
from rlcli.runs.run_folder import Run

PPO = RESOLVED.replace("q_learning", "ppo").replace("0.0005", "1e-3")


@pytest.fixture
def runs(folder) -> Path:
    """Three runs, one of them broken, among other folders."""
    write_run(
        Path("runs/dqn/2026-11-20T10-00-00"), tags=["paper", "old"], means=(3.0, 5.0)
    )
    write_run(
        Path("runs/ppo/base"),
        recipe="ppo",
        name="base",
        resolved=PPO,
        created="2026-11-20T12:00:00Z",
        tags=["paper"],
        means=(7.0, 9.0),
        step=100,
        status="running",
    )
    broken = write_run(Path("runs/sweep/a/2026-11-20T11-00-00_b=1"))
    (broken / "run.json").write_text("{")
    for other in ("runs/empty", "runs/.hidden/x", "runs/dqn/notes", "a/b/c/d/e/f/g"):
        Path(other).mkdir(parents=True)
    (Path("runs") / "notes.txt").write_text("run.json")
    return Path("runs")


def names(records):
    return [Path(record["run"]).name[:13] for record in records]


DQN, BASE, BROKEN = "2026-11-20T10", "base", "2026-11-20T11"


def test_all_runs_are_listed_the_newest_first(runs):
    before = snapshot(runs)
    records = rlcli.runs()
    assert names(records) == [BASE, BROKEN, DQN]
    assert [each["status"] for each in records] == ["killed", "broken", "finished"]
    assert records[0]["run"] == "runs/ppo/base"
    assert rlcli.runs(runs / "ppo" / "base") == records[:1]
    assert json.loads(json.dumps(records)) == records
    assert snapshot(runs) == before


def test_links_to_runs_are_followed_and_loops_are_not(runs, tmp_path):
    (runs / "link").symlink_to(tmp_path / "runs" / "ppo")
    (runs / "ppo" / "loop").symlink_to(tmp_path / "runs")
    (runs / "self").symlink_to(tmp_path / "runs")
    (runs / "lost").symlink_to(tmp_path / "nowhere")
    found = [record["run"] for record in rlcli.runs(filter=["name=base"])]
    assert sorted(found) == ["runs/link/base", "runs/ppo/base"]


def test_folders_that_link_to_each_other_take_no_time_without_end(tmp_path):
    names = [f"folder{index}" for index in range(8)]
    for name in names:
        (tmp_path / name / "run").mkdir(parents=True)
        (tmp_path / name / "run" / "run.json").write_text("{}")
        for other in {*names} - {name}:
            (tmp_path / name / other).symlink_to(tmp_path / other)
    # Each run directly, and through a link in each of the seven other folders.
    assert len(rlcli.runs(tmp_path)) == 8 + 8 * 7


def test_files_that_are_no_files_are_broken_runs(runs):
    for name, make in {"pipe": os.mkfifo, "folder": os.mkdir}.items():
        folder = runs / "x" / name
        folder.mkdir(parents=True)
        make(folder / "run.json")
    (runs / "x" / "2026-11-20T10-00-00").mkdir()
    records = rlcli.runs(runs / "x")
    assert [record["status"] for record in records] == ["broken"] * 3


def test_a_folder_without_runs_has_no_records_and_a_missing_one_is_refused(runs):
    assert rlcli.runs("runs/empty") == []
    for missing in ("none", "runs/notes.txt"):
        with pytest.raises(RlcliError, match="there is no folder"):
            rlcli.runs(missing)


@pytest.mark.parametrize(
    ("sort", "expected"),
    [
        ("created", [BASE, BROKEN, DQN]),
        ("return", [BASE, DQN, BROKEN]),
        ("steps", [DQN, BASE, BROKEN]),
        ("status", [BROKEN, DQN, BASE]),
        ("recipe", [DQN, BASE, BROKEN]),
        ("name", [BASE, BROKEN, DQN]),
    ],
)
def test_runs_are_sorted_by_a_field_and_those_without_it_are_last(sort, expected, runs):
    assert names(rlcli.runs(sort=sort)) == expected


def test_runs_are_sorted_by_the_iqm_that_is_printed(tmp_path):
    write_run(tmp_path / "lucky", means=(0.0, 0, 0, 0, 100))
    write_run(tmp_path / "steady", means=(5.0, 5, 5, 5, 5))
    assert names(rlcli.runs(tmp_path, sort="return")) == ["steady", "lucky"]


def test_runs_are_sorted_by_known_fields_only(runs):
    with pytest.raises(RlcliError, match="cannot be sorted by `retrun`") as refused:
        rlcli.runs(sort="retrun")
    assert refused.value.hint == "did you mean `return`?"


def test_runs_are_selected_by_all_their_tags(runs):
    assert names(rlcli.runs(tag=["paper"])) == [BASE, DQN]
    assert names(rlcli.runs(tag=["old", "paper"])) == [DQN]
    assert rlcli.runs(tag=["new"]) == []


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("updater.name=ppo", [BASE]),
        ("updater=ppo", [BASE]),
        ("updater!=ppo", [BROKEN, DQN]),  # whose recipe can be read
        ("optimizer.learning_rate=5e-4", [BROKEN, DQN]),
        ("optimizer.learning_rate=0.001", [BASE]),
        ("network.layers=[64, 64]", [BASE, BROKEN, DQN]),
        ("policy.epsilon.to=0.1", [BASE, BROKEN, DQN]),
        ("train.steps=50_000", [BASE, BROKEN, DQN]),
        ("environment.name=Cart*-v?", [BASE, BROKEN, DQN]),
        ("recipe=dqn_*", [DQN]),
        ("recipe=null", [BROKEN]),
        ("status=finished", [DQN]),
        ("status!=finished", [BASE, BROKEN]),
        ("steps=100", [BASE]),
        ("steps>=100", [BASE, DQN]),
        ("steps > 100", [DQN]),
        ("steps<101", [BASE]),
        ("status<=1", []),
        ("optimizer.learning_rate<1e-3", [BROKEN, DQN]),
        ("smoke=false", [BASE, DQN]),
        ("frozen=0", [BASE, DQN]),
        ("name=b[a]se", []),
    ],
)
def test_runs_are_selected_by_options_and_fields(condition, expected, runs):
    assert names(rlcli.runs(filter=[condition])) == expected


def test_all_conditions_have_to_hold(runs):
    assert names(rlcli.runs(filter=["updater=q_*", "status=finished"])) == [DQN]


@pytest.mark.parametrize(
    ("condition", "message", "hint"),
    [
        ("updater", "expected `KEY=VALUE`", "updater.name=ppo"),
        ("=x", "expected `KEY=VALUE`", ""),
        ("a..b=x", "expected `KEY=VALUE`", ""),
        ("updater.nam=ppo", "no run has `updater.nam`", "did you mean `updater.name`?"),
        ("statu=x", "no run has `statu`", "did you mean `status`?"),
        ("status=[", "--filter status=[", ""),
        ("steps>many", "`many` is not a number", "`return>=400`"),
    ],
)
def test_a_condition_that_cannot_hold_is_refused(condition, message, hint, runs):
    with pytest.raises(RlcliError) as refused:
        rlcli.runs(filter=[condition])
    assert message in refused.value.message
    assert hint in refused.value.hint


def test_runs_are_listed_without_jax(runs):
    assert not imports_jax("rlcli.runs(filter=['updater=ppo'])")


def test_of_long_metrics_only_the_end_is_read(tmp_path, monkeypatch):
    run = write_run(tmp_path / "long", means=(3.0, 5.0))
    file = run / "metrics.jsonl"
    last = file.read_bytes()
    with file.open("wb") as output:
        output.truncate(10**8)  # a hole, which takes no space
        output.seek(0, os.SEEK_END)
        output.write(b"\n" + last)
    parsed, parse_row = [], metrics._parse_row

    def count(*arguments):
        parsed.append(parse_row(*arguments))
        return parsed[-1]

    monkeypatch.setattr(metrics, "_parse_row", count)
    tracemalloc.start()
    [record] = rlcli.runs(tmp_path)
    _, most_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most_bytes < 10**7
    assert len(parsed) == 4  # the last training and evaluation rows of two seeds
    assert record["return"]["seeds"] == [3.0, 5.0]


def test_each_file_of_a_run_is_opened_once(tmp_path, monkeypatch):
    write_run(tmp_path / "finished")
    write_run(tmp_path / "running", status="running")
    opened, open_file = [], os.open

    def record_open(path, *arguments, **keywords):
        opened.append(Path(path))
        return open_file(path, *arguments, **keywords)

    with Run(tmp_path / "running").lock():
        monkeypatch.setattr(os, "open", record_open)
        records = rlcli.runs(tmp_path)
    assert {record["status"] for record in records} == {"finished", "running"}
    names = ["checkpoints.json", "metrics.jsonl", "run.json"]
    expected = [tmp_path / "finished" / name for name in names]
    expected += [tmp_path / "running" / name for name in (".lock", *names)]
    assert sorted(opened) == expected
