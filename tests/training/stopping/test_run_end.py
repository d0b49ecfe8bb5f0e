"""The end of a run: what it records of a process that ends between two checkpoints."""

import json

import pytest
from folders import snapshot

from rlcli.runs.creation import create_run
from rlcli.training.stopping import run_end
from rlcli.training.stopping.signals import own_process


@pytest.fixture
def run(tmp_path):
    return create_run("dqn", run=tmp_path / "run")


@pytest.fixture(autouse=True)
def exits(monkeypatch):
    """The exit codes of processes that would have ended."""
    codes = []
    monkeypatch.setattr(run_end, "exit_now", lambda code, **texts: codes.append(code))
    return codes


def test_a_run_records_that_its_process_ended_at_once(run, exits):
    with own_process():
        run_end.catch_signals([run]).abandon("terminated")
    assert json.loads(run.info.read_text())["status"] == "terminated"
    assert exits == [143]


def test_a_resume_that_ends_while_it_loads_the_run_leaves_it_as_it_was(run, exits):
    before = snapshot(run.folder)
    with own_process():
        run_end.catch_signals([run], is_resume=True).abandon("interrupted")
    assert snapshot(run.folder) == before
    assert exits == [130]


def test_a_run_that_has_ended_keeps_its_status_while_it_waits_for_trackers(run, exits):
    run.write_info(status="finished", reason="", ended="2026-01-01T00:00:00Z")
    before = snapshot(run.folder)
    with own_process():
        run_end.catch_signals([run]).abandon("interrupted")
    assert snapshot(run.folder) == before
    assert exits == [0]
