"""The end of a run whose tracker hangs, in a process of its own."""

import json
import signal
import subprocess
import sys
import time

import pytest

pytestmark = pytest.mark.slow  # each starts a process

TRACKER = """
import time
from pathlib import Path
from rlcli.trackers import Tracker

def hang():
    '''Hangs at the end, once it has said so.'''
    def finish(session, status):
        Path("waiting").write_text(status)
        time.sleep(100)
    return Tracker(lambda run: None, lambda session, records: None, finish)
"""
RECIPE = """
environment: FrozenLake-v1
updater: q_learning
train: {steps: %d, evaluate: null, trackers: [hanging:hang]}
"""


@pytest.fixture
def start(tmp_path):
    """Starts a quiet run of some steps with a tracker that hangs at the end."""
    processes = []

    def start(steps):
        (tmp_path / "hanging.py").write_text(TRACKER)
        (tmp_path / "mine.yaml").write_text(RECIPE % steps)
        command = [sys.executable, "-m", "rlcli", "train", "mine.yaml"]
        processes.append(
            subprocess.Popen(
                [*command, "--run", "run", "--quiet"],
                cwd=tmp_path,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
        return processes[-1]

    yield start
    for process in processes:
        process.kill()
        process.communicate()


def wait_until(is_true, process):
    deadline = time.monotonic() + 60
    while not is_true() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.02)
    assert is_true(), process.communicate(timeout=1)


def read_info(folder):
    return json.loads((folder / "run" / "run.json").read_text())


def test_a_run_that_is_killed_while_its_tracker_hangs_has_ended(start, tmp_path):
    process = start(10**9)
    metrics = tmp_path / "run" / "metrics.jsonl"
    wait_until(lambda: metrics.exists() and metrics.stat().st_size, process)
    process.send_signal(signal.SIGTERM)
    wait_until((tmp_path / "waiting").exists, process)
    process.kill()
    process.wait()
    info = read_info(tmp_path)
    assert info["status"] == "terminated" and info["ended"]
    assert info["reason"].startswith("at step ")


def test_one_ctrl_c_ends_the_wait_for_a_tracker_and_the_run_is_finished(
    start, tmp_path
):
    process = start(64)
    wait_until((tmp_path / "waiting").exists, process)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=10)
    assert process.returncode == 0
    assert "tracker `hanging:hang` has not finished before a request to stop" in err
    assert read_info(tmp_path)["status"] == "finished"


def test_two_ctrl_c_leave_the_status_of_a_finished_run(start, tmp_path):
    process = start(64)
    wait_until((tmp_path / "waiting").exists, process)
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=10)
    info = read_info(tmp_path)
    assert (info["status"], info["reason"]) == ("finished", "")
    assert process.returncode == 0
