"""stdout has the data of a command, whatever code of others prints there."""

import json
import subprocess
import sys

import pytest

import rlcli
from rlcli.cli import main
from rlcli.recipe import key_completion

NOISE = """
import atexit, ctypes, os, subprocess, sys

def make_noise(*words, **options):
    print("noise by print")
    (sys.__stdout__ or sys.stdout).write("noise by the first stdout\\n")
    os.write(1, b"noise by the descriptor\\n")
    ctypes.CDLL(None).puts(b"noise by a library in C")  # which has a buffer
    subprocess.run(["echo", "noise by a child process"], check=True)
    atexit.register(print, "noise at the exit")
    return "data"
"""
KINDS = 6
PROGRAM = f"""{NOISE}
import rlcli, rlcli.cli
vars(rlcli)["show"] = make_noise
sys.argv = ["rlcli", "show", "x"]
sys.exit(rlcli.cli.main())
"""


def run(command, folder):
    return subprocess.run(
        ["bash", "-o", "pipefail", "-c", command],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def program(tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM)
    return f"{sys.executable} program.py"


def test_a_program_in_a_pipe_gets_the_data_only(program, tmp_path):
    done = run(f"{program} | cat", tmp_path)
    assert (done.returncode, done.stdout) == (0, "data\n")
    lines = done.stderr.splitlines()
    assert len([line for line in lines if line.startswith("noise")]) == KINDS


@pytest.mark.parametrize("streams", [">&-", "2>&-", ">&- 2>&-", "| true"])
def test_streams_that_are_closed_are_no_error(streams, program, tmp_path):
    done = run(f"{program} {streams}", tmp_path)
    assert done.returncode == 0
    assert "Traceback" not in done.stderr
    assert done.stdout == ("data\n" if streams == "2>&-" else "")


ABANDONED = """
import sys, rlcli.cli, rlcli.training
from rlcli.registry.paths import enter
from rlcli.runs.creation import create_run
from rlcli.training.stopping import run_end

def train(recipe, *, run, **keywords):
    new = create_run("mine", run=enter(run))
    run_end.catch_signals([new]).abandon("terminated")

vars(rlcli)["train"] = train
sys.argv = ["rlcli", "train", "dqn_cartpole", "--run", "a run"]
rlcli.cli.main()
"""


def test_a_process_that_ends_at_once_prints_its_folder_as_typed_to_stdout(tmp_path):
    (tmp_path / "program.py").write_text(ABANDONED)
    done = run(f"{sys.executable} program.py | cat", tmp_path)
    assert (done.returncode, done.stdout) == (143, "a run\n")
    assert done.stderr.endswith(" resume 'a run'\n")


def test_afterwards_a_python_program_has_its_stdout_again(monkeypatch, capfd):
    namespace = {}
    exec(NOISE.replace("atexit.register", "print"), namespace)
    monkeypatch.setitem(vars(rlcli), "show", namespace["make_noise"])
    stdout = sys.stdout
    assert main(["show", "x"]) == 0
    assert sys.stdout is stdout
    subprocess.run(["echo", "mine"], check=True)
    out, err = capfd.readouterr()
    assert out.replace("noise by the first stdout\n", "") == "data\nmine\n"
    assert err.count("noise") >= KINDS - 1


def test_functions_leave_the_stdout_of_a_script_alone(monkeypatch, capfd):
    monkeypatch.setitem(vars(rlcli), "show", lambda: print("mine"))
    rlcli.show()
    assert capfd.readouterr().out == "mine\n"


def test_what_a_module_prints_is_no_candidate_of_a_completion(monkeypatch, capsys):
    def complete(*arguments):
        print("noise")
        return ["train.steps="]

    monkeypatch.setattr(key_completion, "complete_setting", complete)
    monkeypatch.setenv("_RLCLI_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", "rlcli\ntrain\ndqn_cartpole\n--set\ntr")
    monkeypatch.setenv("COMP_CWORD", "4")
    assert main([]) == 0
    assert capsys.readouterr().out == "train.steps=\n"


SIMULATOR = (
    NOISE
    + """
import gymnasium, numpy as np
make_noise()

class Sim(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self):
        make_noise()

    def reset(self, *, seed=None, options=None):
        self.time = 0
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self.time += 1
        os.write(1, b"noise of a step")
        return np.zeros(2, np.float32), 1.0, self.time >= 5, False, {}
"""
)
RECIPE = """
environment: {name: simulator:Sim, num_envs: 2, vectorization: %s}
updater: dqn
network: {name: mlp, layers: [8]}
train: {steps: 100, evaluate: null, checkpoint: null}
"""


@pytest.mark.slow
@pytest.mark.parametrize("vectorization", ["sync", "async"])
def test_the_output_of_an_environment_is_no_data(vectorization, tmp_path):
    (tmp_path / "simulator.py").write_text(SIMULATOR)
    (tmp_path / "recipe.yaml").write_text(RECIPE % vectorization)
    rlcli = f"{sys.executable} -m rlcli"
    done = run(f"{rlcli} train recipe.yaml --run run --quiet", tmp_path)
    assert (done.returncode, done.stdout) == (0, "run\n"), done.stderr
    assert "noise of a step" in done.stderr
    assert "noise at the exit" in done.stderr
    done = run(f"{rlcli} eval run --episodes 2 --json --trust", tmp_path)
    assert json.loads(done.stdout)["return"]["mean"] == 5
