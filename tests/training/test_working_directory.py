"""Environments and modules that change the working directory move no file of a run."""

import json
import os
import subprocess
import sys

import pytest

MODULE = """
import os, tempfile
import gymnasium, numpy as np

def move():
    os.chdir(tempfile.mkdtemp(dir=os.environ["ELSEWHERE"]))

class Sim(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)
    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}

    def __init__(self, when, render_mode=None):
        self.when, self.render_mode = when, render_mode
        if when == "init":
            move()

    def reset(self, *, seed=None, options=None):
        self.time = 0
        if self.when == "reset":
            move()
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self.time += 1
        if self.when == "step":
            move()
        return np.zeros(2, np.float32), 1.0, self.time >= 5, False, {}

    def render(self):
        return np.zeros((8, 8, 3), np.uint8)
"""
MOVING_MODULE = MODULE + "\nmove()\n"
RECIPE = """
environment: {name: sims:Sim, when: %s, num_envs: 2}
updater: dqn
network: {name: mlp, layers: [8]}
train: {steps: 40, unroll: 2, start: 8, evaluate: {every: 20, episodes: 2}}
"""


@pytest.fixture
def home(tmp_path, monkeypatch):
    home = tmp_path / "home"
    home.mkdir()
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.setenv("ELSEWHERE", str(tmp_path / "elsewhere"))
    (home / "sims.py").write_text(MODULE)
    return home


def files_elsewhere(home):
    return [
        path for path in home.parent.joinpath("elsewhere").rglob("*") if path.is_file()
    ]


def command(home, *words):
    done = subprocess.run(
        [sys.executable, "-m", "rlcli", *words],
        cwd=home,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert files_elsewhere(home) == []
    return done


@pytest.mark.slow
@pytest.mark.parametrize("when", ["import", "init", "reset", "step"])
def test_a_run_is_where_the_user_was(when, home):
    if when == "import":
        (home / "sims.py").write_text(MOVING_MODULE)
    (home / "mine.yaml").write_text(RECIPE % when)
    done = command(home, "train", "mine.yaml", "--run", "runs/a")
    assert done.stdout == "runs/a\n"
    assert done.stderr.endswith(" eval runs/a\n")
    info = json.loads((home / "runs/a/run.json").read_text())
    assert info["status"] == "finished"
    assert [*info["code"]] == ["sims.py"]
    shown = json.loads(command(home, "eval", "runs/a", "--json", "--trust").stdout)
    assert shown["run"] == "runs/a"
    assert shown["return"]["mean"] == 5


PROGRAM = """
import os, sys, rlcli

home = os.getcwd()
sys.path[:0] = [""]
recipe, keywords = "mine.yaml", {"quiet": True}
first = rlcli.train(recipe, run="runs/first", **keywords)
assert os.getcwd() != home  # the simulator has moved this process
second = rlcli.train(recipe, run="runs/second", set=["train.seed=1"], **keywords)
assert str(first) == f"{home}/runs/first", first
assert str(second) == f"{home}/runs/second", second
rlcli.resume("runs/first", set=["train.steps=60"], trust=True, **keywords)
assert rlcli.eval("runs/first", episodes=2, trust=True)["run"] == str(first)
assert str(rlcli.render("runs/first", output="a.gif", trust=True)) == f"{home}/a.gif"
rlcli.render("runs/first", trust=True)
rlcli.collect("runs/first", episodes=2, output="data.npz", trust=True)
rlcli.export("runs/first", output="policy.py", format="numpy", trust=True)
assert rlcli.load("runs/second", trust=True).file.parent == second
assert rlcli.check(recipe)
again = rlcli.reproduce("runs/second", to="runs/again", trust=True, **keywords)
assert again["identical"]
for chunk in rlcli.chunks(recipe, runs="runs/in", name="loop", **keywords):
    assert str(chunk.run) == f"{home}/runs/in/mine/loop"
vary = {"vary": ["network.layers=[4],[8]"], "run": "runs/vary", "jobs": 1}
ended = rlcli.study([recipe], **vary, **keywords)
assert [each.code for each in ended] == [0, 0], ended
"""


@pytest.mark.slow
def test_functions_take_relative_paths_from_where_the_user_was(home):
    (home / "mine.yaml").write_text(RECIPE % "init")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=home,
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert done.returncode == 0, done.stderr
    assert files_elsewhere(home) == []
    found = {path.relative_to(home).as_posix() for path in home.rglob("*")}
    assert {
        "a.gif",
        "data.npz",
        "policy.py",
        "runs/first/render.gif",
        "runs/second/run.json",
        "runs/again/metrics.jsonl",
        "runs/in/mine/loop/run.json",
        "runs/vary/layers=4/run.json",
    } <= found
