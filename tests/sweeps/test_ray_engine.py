"""The Ray engine: tasks that end, fail, are cancelled, and lose their worker."""

import json
import os
import signal
import time
from pathlib import Path

import pytest
import yaml

from rlcli.runs.metrics import read_metrics
from rlcli.sweeps.jobs import Job

ray = pytest.importorskip("ray")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore"),  # of Ray
]
LAKE = """
environment: FrozenLakeNonSlippery-v0
network: table
updater: {name: q_learning, loss: mse}
train: {steps: 500_000_000, evaluate: {every: 1_000_000, episodes: 2}}
"""


@pytest.fixture(scope="module")
def engine():
    from rlcli.sweeps.ray_engine import RayEngine

    # Workers have an environment of their own in which to find the package.
    os.environ["PYTHONPATH"] = str(Path(__file__).parents[2])
    made = RayEngine(2)
    yield made
    made.close()


def wait_for(condition, seconds=240):
    deadline = time.monotonic() + seconds
    while not (result := condition()):
        assert time.monotonic() < deadline
        time.sleep(0.2)
    return result


def test_a_task_returns_the_exit_code_and_the_error(engine, tmp_path):
    engine.start(Job("good", (tmp_path / "a",), ["--version"]))
    engine.start(Job("bad", (tmp_path / "b",), ["train", "nope"]))
    assert not engine.has_room
    ended = {}

    def collect():
        ended.update({each.key: each for each in engine.collect()})
        return len(ended) == 2

    wait_for(collect)
    assert ended["good"].code == 0
    assert ended["bad"].code == 1
    assert "there is no recipe `nope`" in ended["bad"].message


def test_a_run_continues_after_its_worker_is_killed_and_stops_when_cancelled(
    engine, tmp_path
):
    (tmp_path / "lake.yaml").write_text(LAKE)
    folder = tmp_path / "run"
    recipe = str(tmp_path / "lake.yaml")
    arguments = ["train", "--quiet", "--run", str(folder), "--", recipe]
    engine.start(Job("long", (folder,), arguments))
    wait_for(lambda: read_metrics(folder))  # before, a signal may leave no checkpoint

    def read_info():
        return json.loads((folder / "run.json").read_text())

    process = int((folder / ".lock").read_text())
    status = Path(f"/proc/{process}/status").read_text()
    worker = next(line for line in status.splitlines() if line.startswith("PPid"))
    os.kill(int(worker.split()[1]), signal.SIGKILL)
    wait_for(lambda: read_info().get("resumes"))
    wait_for(lambda: read_info()["status"] == "running")
    engine.send_signal(signal.SIGTERM, "long")
    (end,) = wait_for(engine.collect)
    assert end.code == 143
    wait_for(lambda: read_info()["status"] == "terminated")
    assert [*(folder / "checkpoints").iterdir()]


def test_a_sweep_that_loses_a_node_has_the_trials_of_an_undisturbed_one(tmp_path):
    from benchmarks import cluster

    if ray.is_initialized():
        ray.shutdown()
    sizes = {"trials": 4, "seeds": 2}
    local = cluster.sweep(tmp_path / "local", jobs=2, **sizes)
    disturbed = cluster.sweep_with_a_lost_node(tmp_path / "cluster", **sizes)
    assert disturbed["lost_at"] >= 2
    assert disturbed["counts"] == {"complete": 4}
    assert cluster.summarize(disturbed) == cluster.summarize(local)


def test_the_example_of_a_cluster_is_valid():
    jsonschema = pytest.importorskip("jsonschema")
    root = Path(__file__).parents[2]
    schema = Path(ray.__file__).parent / "autoscaler" / "ray-schema.json"
    example = (root / "examples" / "cluster" / "ray.yaml").read_text()
    jsonschema.validate(yaml.safe_load(example), json.loads(schema.read_text()))
