"""Runs of one agent on several devices, and in several processes."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from wording import mentions

import rlcli
from rlcli.errors import RlcliError
from rlcli.runs import checkpoint

PPO = """\
environment: {name: CartPole-v1, num_envs: 8}
network: {name: mlp, layers: [32]}
updater: {name: ppo, epochs: 2, minibatches: 2}
optimizer: {name: adam, learning_rate: 3e-3}
train: {steps: 40_000, unroll: 32, log: {every: 4_000}}
"""
DQN = """\
environment: {name: bsuite/Catch, num_envs: 8}
network: {name: mlp, layers: [32]}
updater: {name: double_q_learning, target: {every: 50}}
policy: {name: epsilon_greedy, epsilon: {from: 1.0, to: 0.05, over: 30%}}
replay: {name: uniform, capacity: 8_000, batch_size: 64}
optimizer: {name: adam, learning_rate: 1e-3}
train: {steps: 16_000, log: {every: 2_000}, evaluate: null}
"""
SMALL_PPO = {
    "environment": {"name": "CartPole-v1", "num_envs": 4},
    "network": {"name": "mlp", "layers": [8]},
    "updater": {"name": "ppo", "epochs": 1, "minibatches": 1},
    "train": {"steps": 64, "unroll": 8, "data_parallel": 2},
}
SMALL_DQN = {
    "environment": {"name": "CartPole-v1", "num_envs": 4},
    "network": {"name": "mlp", "layers": [8]},
    "updater": "dqn",
    "replay": {"name": "uniform", "capacity": 400, "batch_size": 8},
    "train": {"steps": 400, "data_parallel": 2},
}


def info_of(run: Path) -> dict:
    return json.loads((run / "run.json").read_text())


def progress_of(run: Path) -> dict:
    name = json.loads((run / "checkpoints.json").read_text())["latest"]
    return checkpoint.read(run / "checkpoints" / name)["progress"]


@pytest.mark.slow
@pytest.mark.parametrize("data", [SMALL_PPO, SMALL_DQN], ids=["ppo", "dqn"])
def test_a_run_on_two_devices_is_continued_on_one(data, tmp_path):
    run = rlcli.train(data, run=tmp_path / "run", quiet=True)
    assert info_of(run)["layout"]["devices"] == 2
    before = progress_of(run)
    steps = 2 * data["train"]["steps"]
    changes = [f"train.steps={steps}", "train.data_parallel=1"]
    rlcli.resume(run, set=changes, quiet=True)
    info = info_of(run)
    assert (info["status"], info["layout"]["devices"]) == ("finished", 1)
    assert "the agent was divided among 2 devices" in info["resumes"][0]["inexact"]
    assert progress_of(run)["iteration"] == 2 * before["iteration"]


@pytest.mark.slow
def test_a_replay_that_cannot_be_divided_anew_is_refused(tmp_path):
    replay = {"name": "prioritized", "capacity": 400, "batch_size": 8}
    data = {**SMALL_DQN, "replay": replay}
    run = rlcli.train(data, run=tmp_path / "run", quiet=True)
    before = info_of(run)
    with pytest.raises(RlcliError, match="replay `prioritized` of 2 devices") as error:
        rlcli.resume(run, set=["train.steps=800", "train.data_parallel=1"], quiet=True)
    assert mentions(error.value.hint, "`--set train.data_parallel=2`")
    assert info_of(run) == before


def start(folder: Path, *arguments: object) -> subprocess.Popen:
    """Starts `rlcli` with the devices and threads that it chooses itself."""
    chosen = {k: v for k, v in os.environ.items() if k not in ("NPROC", "XLA_FLAGS")}
    return subprocess.Popen(
        [sys.executable, "-m", "rlcli", *map(str, arguments)],
        cwd=folder,
        env=chosen,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def start_pair(folder: Path, *arguments: object) -> list[subprocess.Popen]:
    """Starts two processes that train one agent."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        address = f"localhost:{free.getsockname()[1]}"
    return [
        start(folder, *arguments, "--coordinator", address, "--process", f"{i}/2")
        for i in range(2)
    ]


def end(process: subprocess.Popen) -> tuple[int, str]:
    out, err = process.communicate(timeout=500)
    assert "Traceback" not in err, err
    return process.returncode, out


@pytest.mark.slow
def test_two_processes_train_the_agent_of_two_devices(tmp_path):
    (tmp_path / "mine.yaml").write_text(PPO.replace("40_000", "2_048"))
    command = ("train", "mine.yaml", "--quiet", "--seeds", 2)
    command += ("--set", "train.data_parallel=2", "--run")
    pair = start_pair(tmp_path, *command, "pair")
    assert [end(process) for process in pair] == [(0, "pair\n"), (0, "")]
    assert end(start(tmp_path, *command, "one")) == (0, "one\n")
    one, both = (progress_of(tmp_path / name) for name in ("one", "pair"))
    assert one.keys() == both.keys()
    for path, leaf in one.items():
        np.testing.assert_allclose(both[path], leaf, 1e-3, 1e-4, err_msg=path)


@pytest.mark.slow
def test_a_signal_to_any_process_stops_all_after_a_checkpoint(tmp_path):
    (tmp_path / "mine.yaml").write_text(PPO.replace("40_000", "400_000_000"))
    pair = start_pair(
        tmp_path,
        "train",
        "mine.yaml",
        "--quiet",
        "--run",
        "run",
        "--set",
        "train.data_parallel=2",
        "--set",
        "train.evaluate.every=null",
        "--set",
        "train.checkpoint.every=10_000",
    )
    run = tmp_path / "run"
    while not (run / "checkpoints.json").exists():
        assert [process.poll() for process in pair] == [None, None]
    pair[1].send_signal(signal.SIGTERM)
    codes = [end(process)[0] for process in pair]
    assert codes[0] == codes[1] == rlcli.errors.TERMINATED
    assert info_of(run)["status"] == "terminated"
    iteration = int(progress_of(run)["iteration"])
    info = info_of(run)
    longer = ("--set", f"train.steps={(iteration + 2) * 256}")
    resumed = [
        end(each) for each in start_pair(tmp_path, "resume", "run", "--quiet", *longer)
    ]
    assert resumed == [(0, "run\n"), (0, "")]
    assert progress_of(run)["iteration"] == iteration + 2
    (entry,) = info_of(run)["resumes"]
    assert not entry.get("inexact") and info_of(run)["layout"] == info["layout"]
    iteration += 2
    resumed = start(
        tmp_path,
        "resume",
        "run",
        "--quiet",
        "--set",
        f"train.steps={(iteration + 4) * 256}",
        "--set",
        "train.data_parallel=1",
    )
    assert end(resumed)[0] == 0
    assert progress_of(run)["iteration"] == iteration + 4


@pytest.mark.slow
@pytest.mark.parametrize(("recipe", "learned"), [(PPO, 40), (DQN, 0.2)])
def test_eight_devices_learn_as_one_does(recipe, learned, tmp_path):
    """The learning curves: no difference at p = 0.001, and both have learned."""
    from scipy import stats

    (tmp_path / "mine.yaml").write_text(recipe)
    curves = {}
    for devices in (1, 8):
        parallel = f"train.data_parallel={devices}"
        process = start(
            tmp_path,
            "train",
            "mine.yaml",
            "--quiet",
            "--seeds",
            8,
            "--set",
            parallel,
            "--run",
            f"run-{devices}",
        )
        assert end(process)[0] == 0
        lines = (tmp_path / f"run-{devices}" / "metrics.jsonl").read_text().splitlines()
        rows = [row for row in map(json.loads, lines) if "avg_G" in row]
        curves[devices] = np.array(
            [
                np.mean([row["avg_G"] for row in rows if row["seed"] == seed])
                for seed in range(8)
            ]
        )
    assert stats.ttest_ind(curves[1], curves[8], equal_var=False).pvalue > 0.001
    assert min(curve.mean() for curve in curves.values()) > learned


SCRIPT = """
import os
import rlcli
import jax
if os.environ.get("USES_JAX"):
    jax.numpy.ones(2).sum()
recipe = {"environment": {"name": "FrozenLake-v1", "num_envs": 2}, "updater": "ppo"}
recipe |= {"network": {"name": "mlp", "layers": [4]}}
recipe["train"] = {"steps": 64, "unroll": 16, "evaluate": None, "data_parallel": 2}
print(rlcli.train(recipe, run="run", quiet=True))
"""


@pytest.mark.slow
def test_a_script_that_imports_jax_gets_devices_and_one_that_used_it_a_remedy(tmp_path):
    (tmp_path / "script.py").write_text(SCRIPT)
    chosen = {k: v for k, v in os.environ.items() if k not in ("NPROC", "XLA_FLAGS")}

    def run(prefix=""):
        command = f"{prefix} python script.py".replace("python", sys.executable)
        return subprocess.run(
            ["bash", "-c", command],
            cwd=tmp_path,
            env=chosen,
            capture_output=True,
            text=True,
            check=False,
        )

    done = run()
    assert done.returncode == 0, done.stderr
    assert info_of(tmp_path / "run")["layout"]["devices"] == 2
    shutil.rmtree(tmp_path / "run")
    chosen["USES_JAX"] = "1"
    failed = run()
    assert "JAX finds only 1 devices" in failed.stderr
    (remedy,) = re.findall(r"start Python with `(.+) python \.\.\.`", failed.stderr)
    done = run(remedy)
    assert done.returncode == 0, done.stderr
