"""Listing: which runs there are below a folder, and in which order."""

import json
import os
import time
from pathlib import Path

import pytest
from folders import RESOLVED, imports_jax, snapshot, write_run

import rlcli
from rlcli.errors import RlcliError

PPO = RESOLVED.replace("q_learning", "ppo").replace("0.0005", "1e-3")


@pytest.fixture
def runs(tmp_path, monkeypatch) -> Path:
    """Three runs, one of them broken, among other folders."""
    monkeypatch.chdir(tmp_path)
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
    ],
)
def test_a_condition_that_cannot_hold_is_refused(condition, message, hint, runs):
    with pytest.raises(RlcliError) as refused:
        rlcli.runs(filter=[condition])
    assert message in refused.value.message
    assert hint in refused.value.hint


def test_runs_are_listed_without_jax(runs):
    assert not imports_jax("rlcli.runs(filter=['updater=ppo'])")


@pytest.mark.slow
def test_a_thousand_runs_are_listed_within_a_second(tmp_path):
    rows = [
        {"T": step, "seed": seed, "ep": 9, "avg_G": 1.0, "loss": 0.5, "time": 1e9}
        for step in range(1_000, 50_000, 1_000)
        for seed in range(5)
    ]
    text = "".join(json.dumps(row) + "\n" for row in rows)
    for i in range(1_000):
        run = tmp_path / f"recipe_{i % 7}" / f"2026-11-20T10-{i // 60:02d}-{i % 60:02d}"
        write_run(
            run,
            means=[float(i + seed) for seed in range(5)],
            status=("finished", "running")[i % 2],
            git={"commit": "0" * 40, "diff": "+\n" * 5_000, "diff_is_cut": False},
        )
        last = (run / "metrics.jsonl").read_text()
        (run / "metrics.jsonl").write_text(text + last)
    times = []
    for _ in range(3):
        start = time.process_time()  # other programs use the cores, too
        assert len(rlcli.runs(tmp_path)) == 1_000
        times.append(time.process_time() - start)
    assert min(times) < 1.0  # 0.4 s
