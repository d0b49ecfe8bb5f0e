"""Resume: a run that was cut off, by whatever, ends as if it had not been.

Each run is a process of its own, for it is killed.
"""

import functools
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import rlcli
from rlcli.runs.metrics import read_metrics

CLOCKS = {"dt", "steps_per_second", "updates_per_second", "time"}
NATIVE = """\
environment: {name: CartPole-v1, num_envs: 2}
network: {name: mlp, layers: [16]}
policy: {name: epsilon_greedy, epsilon: {from: 1.0, to: 0.02, over: 50%}}
tracer: {name: n_step, n: 2}
replay: {name: uniform, capacity: 1_000, batch_size: 8}
updater: {name: double_q_learning}
optimizer: {name: adam, learning_rate: {from: 1e-3, to: 0.0}}
train:
  steps: 60_000
  updates: {per_step: 0.25}
  log: {every: 700}
  evaluate: {every: 10_000, episodes: 2}
  checkpoint: {every: 1_500}
"""
HOST = """\
environment: gymnasium/CartPole-v1
network: {name: mlp, layers: [16]}
replay: {name: uniform, capacity: 1_000, batch_size: 8}
updater: q_learning
train:
  steps: 10_000
  log: {every: 700}
  evaluate: {every: 5_000, episodes: 2}
  checkpoint: {every: 600}
"""
ONLINE = """\
environment: {name: CartPole-v1, num_envs: 2}
network: {name: mlp, layers: [16]}
updater: {name: ppo, epochs: 2, minibatches: 2}
normalize: {observation: true, reward: true}
train:
  steps: 200_000
  unroll: 16
  log: {every: 7_000}
  checkpoint: {every: 5_000}
"""


def launch(folder: Path, *arguments: object, **options: Any) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-m", "rlcli", *map(str, arguments)],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


@pytest.fixture
def start_process(tmp_path):
    """Starts `rlcli`; whatever happens, it does not outlive the test."""
    processes = []

    def start(*arguments: object, **options: Any) -> subprocess.Popen:
        processes.append(launch(tmp_path, *arguments, **options))
        return processes[-1]

    yield start
    for process in processes:
        process.kill()
        process.communicate()


@pytest.fixture(scope="module")
def uninterrupted_run(tmp_path_factory):
    """The folder of a run that nothing happened to."""

    @functools.cache
    def run(recipe: str, seeds: int) -> Path:
        folder = tmp_path_factory.mktemp("uninterrupted")
        (folder / "mine.yaml").write_text(recipe)
        command = ("train", "mine.yaml", "--run", "run", "--quiet", "--seeds", seeds)
        assert wait_for_exit(launch(folder, *command)) == (0, "")
        return folder / "run"

    return run


def wait_for_exit(process: subprocess.Popen) -> tuple[int, str]:
    """The exit code and stderr."""
    _, err = process.communicate(timeout=300)
    return process.returncode, err


def wait_for(run: Path, step: int, process: subprocess.Popen) -> None:
    """Waits until a checkpoint at or past a step is there."""
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline and process.poll() is None:
        if (latest := latest_step(run)) is not None and latest >= step:
            return
        time.sleep(0.002)
    pytest.fail(f"no checkpoint at step {step:,}: {wait_for_exit(process)}")


def latest_step(run: Path) -> int | None:
    try:
        name = json.loads((run / "checkpoints.json").read_text())["latest"]
    except FileNotFoundError:
        return None
    return int(name.partition(".")[0])


def rows(run: Path) -> list[dict]:
    lines = (run / "metrics.jsonl").read_text().splitlines()
    found = [json.loads(line) for line in lines]
    return [{k: v for k, v in row.items() if k not in CLOCKS} for row in found]


def assert_alike(run: Path, reference: Path) -> None:
    """The same bytes in the last checkpoint and the policies, and the same rows."""
    assert latest_step(run) == latest_step(reference)
    names = ["policy.pkl.lz4", *(p.name for p in reference.glob("best.pkl.lz4"))]
    names += [f"checkpoints/{latest_step(reference):09d}.pkl.lz4"]
    for name in names:
        assert (run / name).read_bytes() == (reference / name).read_bytes(), name
    assert rows(run) == rows(reference)
    assert json.loads((run / "run.json").read_text())["status"] == "finished"


# The second kill hits the run that was resumed.
CASES = [
    pytest.param(NATIVE, 1, 12_000, 1, id="native", marks=pytest.mark.slow),
    pytest.param(NATIVE, 1, 12_000, 2, id="native-again", marks=pytest.mark.slow),
    pytest.param(NATIVE, 2, 12_000, 2, id="native-2", marks=pytest.mark.slow),
    pytest.param(HOST, 1, 4_000, 2, id="gymnasium", marks=pytest.mark.slow),
    pytest.param(HOST, 2, 4_000, 2, id="gymnasium-2", marks=pytest.mark.slow),
    pytest.param(ONLINE, 1, 60_000, 2, id="online", marks=pytest.mark.slow),
]


@pytest.mark.parametrize(("recipe", "seeds", "about", "kills"), CASES)
def test_a_killed_run_resumes_to_the_result_of_an_uninterrupted_one(
    recipe, seeds, about, kills, start_process, uninterrupted_run, tmp_path
):
    (tmp_path / "mine.yaml").write_text(recipe)
    command = ("train", "mine.yaml", "--quiet", "--seeds", seeds, "--run")
    draw = random.Random(4)
    run = tmp_path / "run"
    process = start_process(*command, run)
    for _ in range(kills):
        wait_for(run, draw.randrange(about), process)
        time.sleep(draw.random() * 0.05)
        process.kill()
        assert wait_for_exit(process)[0] == -signal.SIGKILL
        process = start_process("resume", run, "--quiet")
    assert wait_for_exit(process) == (0, "")
    assert_alike(run, uninterrupted_run(recipe, seeds))
    info = json.loads((run / "run.json").read_text())
    steps = [resume["step"] for resume in info["resumes"]]
    assert len(steps) == kills
    assert 0 < steps[0] <= steps[-1]


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="needs Linux")
def test_a_run_is_resumed_on_a_machine_with_fewer_cores(start_process, tmp_path):
    """With the layout that it began with: three seeds on two devices, for two cores."""
    chosen = {k: v for k, v in os.environ.items() if k not in ("NPROC", "XLA_FLAGS")}
    (tmp_path / "mine.yaml").write_text(ONLINE + "  seeds: 3\n  devices: 2\n")
    whole = start_process("train", "mine.yaml", "--run", "whole", "--quiet", env=chosen)
    assert wait_for_exit(whole) == (0, "")
    process = start_process("train", "mine.yaml", "--run", "run", "--quiet", env=chosen)
    wait_for(tmp_path / "run", 20_000, process)
    process.kill()
    process.communicate()

    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})  # the process inherits it
    try:
        resumed = start_process("resume", "run", "--quiet", env=chosen)
    finally:
        os.sched_setaffinity(0, cores)
    assert wait_for_exit(resumed) == (0, "")
    assert_alike(tmp_path / "run", tmp_path / "whole")


@pytest.mark.slow
def test_every_way_to_stop_has_its_exit_code_and_loses_nothing(
    start_process, uninterrupted_run, tmp_path
):
    (tmp_path / "mine.yaml").write_text(NATIVE)
    run = tmp_path / "run"
    process = start_process("train", "mine.yaml", "--run", run)
    wait_for(run, 1_500, process)
    process.send_signal(signal.SIGINT)
    code, err = wait_for_exit(process)
    assert code == 130
    assert err.splitlines()[-1].startswith("next: ")
    *_, verb, folder = err.split()  # as seen from where the command was given
    assert verb == "resume" and tmp_path / folder == run
    first = latest_step(run)

    process = start_process("resume", run)
    wait_for(run, first + 1, process)
    process.send_signal(signal.SIGTERM)
    assert wait_for_exit(process)[0] == 143
    second = latest_step(run)
    assert second > first

    # The time counts from the start of the process: this is over before it begins.
    assert wait_for_exit(start_process("resume", run, "--max-time", "1s"))[0] == 75
    assert latest_step(run) == second

    process = start_process("resume", run)
    wait_for(run, second + 1, process)
    process.kill()
    assert wait_for_exit(process)[0] == -signal.SIGKILL

    assert wait_for_exit(start_process("resume", run, "--quiet")) == (0, "")
    assert_alike(run, uninterrupted_run(NATIVE, 1))


@pytest.mark.slow
def test_a_schedule_in_percent_stretches_with_the_steps_of_a_resume(tmp_path):
    """From 1 to 0 over 4 steps, which are made; then over 8."""
    data = {
        "environment": "probe-constant-reward",
        "updater": "q_learning",
        "optimizer": {"name": "sgd", "learning_rate": {"from": 1.0, "to": 0.0}},
        "train": {"steps": 4, "log": {"every": 1}},
    }
    run = rlcli.train(data, run=tmp_path / "run", quiet=True)
    rlcli.resume(run, set=["train.steps=8"], quiet=True)
    rates = [row["optimizer.learning_rate"] for row in read_metrics(run)]
    assert rates == [1, 0.75, 0.5, 0.25, 0.5, 0.375, 0.25, 0.125]
