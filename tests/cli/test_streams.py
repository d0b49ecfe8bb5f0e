"""Streams that are closed, or break: training goes on, and the exit code is its own."""

import json
import subprocess
import sys

import pytest
from tiers import quick_first

RECIPE = """\
environment: CartPole-v1
network: {name: mlp, layers: [8]}
updater: ppo
train: {steps: 2_000, unroll: 20, log: {every: 100}, checkpoint: {every: 1_000}}
"""


@pytest.fixture
def recipe(tmp_path):
    (tmp_path / "mine.yaml").write_text(RECIPE)
    return "mine.yaml"


def shell(command, folder):
    text = command.replace("rlcli", f"{sys.executable} -m rlcli")
    return subprocess.run(
        ["bash", "-o", "pipefail", "-c", text],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )


def status(run):
    return json.loads((run / "run.json").read_text())["status"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "streams", ["2>&1 | head -1", "<&- >&- 2>&-", "2>&1 | true", "2>&-", ">&-"]
)
def test_training_goes_on_when_nobody_listens(streams, recipe, tmp_path):
    done = shell(f"rlcli train {recipe} --run run {streams}", tmp_path)
    assert done.returncode == 0
    assert status(tmp_path / "run") == "finished"
    assert (tmp_path / "run/checkpoints/000002000.pkl.lz4").is_file()
    lines = (tmp_path / "run/metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["T"] for line in lines] == [*range(100, 2_001, 100)]
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_the_exit_code_is_that_of_the_training_and_not_of_the_pipe(recipe, tmp_path):
    command = f"rlcli train {recipe} --run run --max-time 1s 2>&1 | true"
    assert shell(command, tmp_path).returncode == 75


@pytest.mark.parametrize(
    "command", quick_first(["list", "list environments", "--help"])
)
def test_a_reader_that_has_read_enough_is_no_error(command, tmp_path):
    done = shell(f"rlcli {command} | head -1", tmp_path)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.slow
def test_no_file_of_a_run_gets_the_number_of_a_closed_stream(recipe, tmp_path):
    """What a library writes to stderr would land in it."""
    code = (
        "import os, sys, rlcli.cli\n"
        "code = rlcli.cli.main(sys.argv[1:])\n"
        "file = open('mine.yaml')\n"
        "sys.exit(100 + file.fileno() if file.fileno() < 3 else code)\n"
    )
    done = subprocess.run(
        ["bash", "-c", f'{sys.executable} -c "{code}" check mine.yaml <&- >&- 2>&-'],
        cwd=tmp_path,
        check=False,
    )
    assert done.returncode == 0
