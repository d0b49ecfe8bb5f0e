"""Descriptions: a run in words."""

import time

import pytest
from folders import imports_jax, write_run

import rlcli
from rlcli.errors import RlcliError
from rlcli.runs import checkpoint, formatting
from rlcli.runs.description import describe_run
from rlcli.runs.locate import shipped_policies
from rlcli.runs.records import read_record


@pytest.fixture(autouse=True)
def two_hours_later(monkeypatch):
    monkeypatch.setattr(time, "time", lambda: 1_795_168_800 + 7_200.0)


def test_a_run_is_shown_in_words(tmp_path):
    run = write_run(
        tmp_path / "run",
        name="base",
        tags=["paper", "v2"],
        status="failed",
        reason="all seeds are frozen",
        changes={"optimizer.learning_rate": [0.001, 5e-4], "train.seeds": [1, 2]},
    )
    assert rlcli.show(str(run)).splitlines() == [
        f"run      {run}",
        "recipe   dqn_cartpole",
        "name     base",
        "tags     paper, v2",
        "status   failed: all seeds are frozen",
        "steps    50,000 of 50,000, 1,000 steps/s",
        "seeds    0, 1",
        "return   mean 12, IQM 12 (95 % bootstrap interval 10 to 14 over 2 seeds), "
        "evaluation at step 50,000",
        "created  2026-11-20T10:00:00Z, 2 h ago, ended 2026-11-20T10:05:00Z",
        "command  rlcli train dqn_cartpole",
        "",
        "options that differ from the recipe file:",
        "  optimizer.learning_rate  0.0005  (was 0.001)",
        "  train.seeds              2  (was 1)",
    ]


def test_what_a_run_has_started_from_is_shown_with_its_hash(tmp_path):
    init = {"file": "base/1.lz4", "sha256": "a1", "seeds": [0, 3], "steps": [9_000] * 2}
    run = write_run(tmp_path / "run", init=init)
    line = "init     base/1.lz4, seeds 0, 3, at step 9,000, SHA-256 a1"
    assert line in rlcli.show(str(run)).splitlines()
    assert read_record(run)["init"] == init


def test_the_return_of_one_seed_has_no_interval(tmp_path):
    run = write_run(tmp_path / "run", means=(10.0,), is_evaluated=False)
    assert formatting.format_return(read_record(run)["return"]) == (
        "11 (95 % interval over seeds: n/a: 1 seed), running mean of training at step "
        "50,000"
    )


def test_a_broken_run_is_shown_with_the_reason(tmp_path):
    run = write_run(tmp_path / "run")
    (run / "run.json").write_text("{")
    lines = rlcli.show(str(run)).splitlines()
    assert lines[1].startswith("status  broken: ")
    assert "is damaged" in lines[1]


def test_control_characters_of_a_run_are_escaped(tmp_path):
    changes = {"a.\x1b[2J": ["\x1b", "\x07"]}
    run = write_run(tmp_path / "run", recipe="\x1b[2J", changes=changes)
    assert "\x1b" not in describe_run(read_record(run))
    assert "\x07" not in describe_run(read_record(run))


def test_a_folder_without_a_run_is_refused(tmp_path):
    with pytest.raises(RlcliError, match="is not the folder of a run"):
        rlcli.show(str(tmp_path))


def test_a_run_is_shown_without_jax(tmp_path):
    run = write_run(tmp_path / "run")
    assert not imports_jax(f"rlcli.show({str(run)!r})")


@pytest.mark.parametrize(
    "changes",
    [
        {"seeds": [float("inf")]},
        {"steps": [float("inf")]},
        {"seeds": [-1]},
        {"kind": ["policy"]},
        {"recipe": ["a"]},
    ],
)
def test_a_policy_file_with_forged_fields_is_refused(changes, tmp_path):
    file = tmp_path / "forged.pkl.lz4"
    policy = next(iter(shipped_policies().values()))
    checkpoint.write(file, checkpoint.read(policy) | changes)
    with pytest.raises(RlcliError, match="neither a checkpoint nor a policy"):
        rlcli.show(str(file))


@pytest.mark.parametrize("environment", ["CartPole-v1", "[1]", "null"])
def test_a_policy_file_is_shown_whatever_its_recipe_is(environment, tmp_path):
    file = tmp_path / "other.pkl.lz4"
    policy = checkpoint.read(next(iter(shipped_policies().values())))
    recipe = f"environment: {environment}\nupdater: {{name: ppo}}\n"
    checkpoint.write(file, policy | {"recipe": recipe})
    line = next(
        each for each in rlcli.show(str(file)).splitlines() if "updater" in each
    )
    assert line.split() == ["updater", "ppo"]
