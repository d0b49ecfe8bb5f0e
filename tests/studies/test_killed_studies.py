"""A study is killed half-way, and resumed: it has the table of an unbroken one."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from compilation import cache_programs, disable_optimization
from run_results import differences, read_result

import rlcli
from rlcli.runs.run_folder import Run
from rlcli.runs.study_record import find_study

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]  # of Ray
NETWORK = "network: {name: mlp, layers: [8]}\n"
RECIPES = {
    "ppo": f"updater: {{name: ppo, epochs: 1, minibatches: 1}}\n{NETWORK}",
    "a2c": f"updater: a2c\n{NETWORK}",
    "dqn": "updater: double_q_learning\n"
    "replay: {name: uniform, capacity: 500, batch_size: 8}\n" + NETWORK,
}
TRAIN = """\
environment: {name: CartPole-v1, num_envs: 2}
train:
  steps: 8_000
  unroll: 8
  log: {every: 400}
  evaluate: {every: 2_000, episodes: 2}
  checkpoint: {every: 800}
"""
STUDY = """\
recipes: [ppo.yaml, a2c.yaml, dqn.yaml]
environments: [CartPole-v1, Acrobot-v1, MountainCar-v0, GridWorld-v0]
seeds: 5
"""
CELLS = 12


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Iterator[Path]:
    """A folder with the unbroken study `whole`."""
    folder = tmp_path_factory.mktemp("studies")
    before = dict(os.environ)
    cache_programs(str(folder / "programs"))
    disable_optimization()
    # Workers of Ray have an environment of their own in which to find the package.
    os.environ["PYTHONPATH"] = str(Path(rlcli.__file__).parents[1])
    for name, text in RECIPES.items():
        (folder / f"{name}.yaml").write_text(text + TRAIN)
    (folder / "paper.yaml").write_text(STUDY)
    assert start(folder, "study", "paper.yaml", "--run", "whole").wait() == 0
    yield folder
    os.environ.clear()
    os.environ.update(before)


def start(folder: Path, *words: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "rlcli", *words, "--quiet", "--jobs", "2"]
    return subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL)


def states(study: Path) -> dict[str, str]:
    found = find_study(study)
    return {
        cell.label: str(Run(cell.folder).read_info().get("status"))
        for cell in (found.cells if found else ())
    }


def wait_for_half(study: Path, process: subprocess.Popen[bytes]) -> list[int]:
    """Waits until half of the cells have ended, and some have a checkpoint and train.

    Returns the processes that train them.
    """
    deadline = time.monotonic() + 300
    while True:
        assert process.poll() is None and time.monotonic() < deadline
        now = states(study)
        training = [study / each for each, status in now.items() if status == "running"]
        begun = [each for each in training if Run(each).list_checkpoints()]
        if [*now.values()].count("finished") >= CELLS // 2 and begun:
            return [int((each / ".lock").read_text()) for each in begun]
        time.sleep(0.02)


def check_equal(place: Path, name: str) -> None:
    """The study has the runs and the table of the unbroken one, and no other."""
    cells = {each.label: each for each in find_study(place / "whole").cells}
    found = {each.label: each for each in find_study(place / name).cells}
    assert [*found] == [*cells] and len(cells) == CELLS
    for label, cell in cells.items():
        ours, theirs = read_result(found[label].folder), read_result(cell.folder)
        assert differences(ours, theirs) == [], label
    runs = [each.parent for each in (place / name).rglob("run.json")]
    assert len(runs) == CELLS
    tables = []
    for each in (name, "whole"):
        data = rlcli.compare(place / each)
        tables.append(json.dumps(data["environments"]).replace(f"/{each}/", "/study/"))
    assert tables[0] == tables[1]
    assert tables[0].count('"results"') == CELLS


def test_a_driver_that_is_killed_is_resumed(place):
    process = start(place, "study", "paper.yaml", "--run", "driver")
    workers = wait_for_half(place / "driver", process)
    for each in (process.pid, *workers):  # as if the machine had failed
        with contextlib.suppress(ProcessLookupError):
            os.kill(each, signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    before = states(place / "driver")
    assert {*before.values()} > {"finished", "running"}
    assert start(place, "resume", "driver").wait() == 0
    check_equal(place, "driver")


def test_a_worker_that_is_killed_is_continued(place):
    process = start(place, "study", "paper.yaml", "--run", "worker")
    os.kill(wait_for_half(place / "worker", process)[0], signal.SIGKILL)
    assert process.wait() == 0
    check_equal(place, "worker")
    infos = [
        Run(place / "worker" / each).read_info() for each in states(place / "worker")
    ]
    assert sum(len(info.get("resumes", ())) for info in infos) == 1


def test_a_node_of_ray_that_is_lost_is_replaced(place):
    pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    try:
        node = cluster.add_node(num_cpus=1)
        words = ("study", "paper.yaml", "--run", "node", "--engine", "ray")
        process = start(place, *words, "--address", cluster.address)
        wait_for_half(place / "node", process)
        cluster.remove_node(node, allow_graceful=False)
        assert process.wait() == 0
    finally:
        cluster.shutdown()
    check_equal(place, "node")
