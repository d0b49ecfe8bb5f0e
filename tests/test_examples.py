"""The examples: they run or are valid, and the documentation shows them."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from rlcli.recipe.reading import read_recipe
from rlcli.studies.search.space import load_space
from rlcli.studies.search.validation import check_space

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"
LAKE = "environment: FrozenLakeNonSlippery-v0\nnetwork: table\nupdater: q_learning\n"


def read(name):
    return (EXAMPLES / name).read_text(encoding="utf-8")


@pytest.fixture
def bash(tmp_path):
    """Starts a script in an empty folder, with `rlcli` and a `scontrol` that notes."""
    programs = tmp_path / "bin"
    programs.mkdir()
    lines = {
        "rlcli": f'exec {sys.executable} -m rlcli "$@"',
        "scontrol": f'echo "$@" >> {tmp_path}/scontrol.txt',
    }
    for name, line in lines.items():
        (programs / name).write_text(f"#!/bin/sh\n{line}\n")
        (programs / name).chmod(0o755)
    path = f"{programs}:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "SLURM_JOB_ID": "7"}

    def start(script, *arguments):
        return subprocess.Popen(
            ["bash", "-c", script, "script", *arguments], cwd=tmp_path, env=environment
        )

    return start


@pytest.mark.parametrize(
    ("page", "language", "names"),
    [
        ("preemption", "sh", ["cluster/slurm.sh"]),
        ("preemption", "yml", ["cluster/kubernetes.yaml"]),
        ("ci", "yml", ["ci/github.yml", "ci/gitlab.yml"]),
    ],
)
def test_the_documented_files_equal_the_examples(page, language, names):
    text = (ROOT / "docs" / "guides" / f"{page}.md").read_text(encoding="utf-8")
    blocks = re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert blocks == [read(name) for name in names]


@pytest.mark.parametrize("path", [*EXAMPLES.glob("spaces/*")], ids=lambda p: p.stem)
def test_the_spaces_have_options_of_their_recipes(path):
    check_space(read_recipe(path.stem), load_space(path))


@pytest.mark.pages
def test_the_slurm_script_requeues_until_the_run_is_finished(bash, tmp_path):
    script = read("cluster/slurm.sh").replace("3h50m", "1s")
    assert bash(script, "qlearning_frozenlake", "runs/lake").wait() == 75
    assert (tmp_path / "scontrol.txt").read_text() == "requeue 7\n"
    script = script.replace("1s", "1h")
    assert bash(script, "qlearning_frozenlake", "runs/lake").wait() == 0
    assert (tmp_path / "scontrol.txt").read_text() == "requeue 7\n"


@pytest.mark.pages
def test_the_slurm_script_saves_and_requeues_when_it_is_preempted(bash, tmp_path):
    process = bash(read("cluster/slurm.sh"), "dqn_breakout", "runs/long")
    info = tmp_path / "runs" / "long" / "run.json"
    deadline = time.monotonic() + 120
    while not info.exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    process.send_signal(signal.SIGTERM)
    assert process.wait(120) == 143
    assert (tmp_path / "scontrol.txt").read_text() == "requeue 7\n"


@pytest.mark.pages
def test_the_container_of_the_kubernetes_job_trains_and_then_resumes(bash, tmp_path):
    job = yaml.safe_load(read("cluster/kubernetes.yaml"))
    (container,) = job["spec"]["template"]["spec"]["containers"]
    (script,) = container["args"]
    script = script.replace("ppo_cartpole", "qlearning_frozenlake")
    script = script.replace("/data/ppo", str(tmp_path / "lake"))
    assert bash(script).wait() == 0
    assert bash(script).wait() == 0  # resumes a finished run


def commands(name):
    """The commands of a CI example that need no network."""
    data = yaml.safe_load(read(name))
    if "jobs" in data:
        steps = data["jobs"]["smoke"]["steps"]
        lines = [step["run"] for step in steps if "run" in step]
    else:
        lines = data["smoke"]["script"]
    return [line for line in lines if not line.startswith("pip ")]


def test_both_ci_services_run_the_same_commands():
    assert commands("ci/github.yml") == commands("ci/gitlab.yml")
    assert len(commands("ci/github.yml")) == 2


@pytest.mark.pages
def test_the_commands_of_ci_accept_good_recipes_and_refuse_bad_ones(bash, tmp_path):
    (tmp_path / "recipes").mkdir()
    (tmp_path / "recipes" / "lake.yaml").write_text(LAKE)
    for command in commands("ci/github.yml"):
        assert bash(command).wait() == 0
    (tmp_path / "recipes" / "a_bad.yaml").write_text(f"{LAKE}tracer: {{gama: 0.9}}\n")
    for command in commands("ci/github.yml"):
        assert bash(command).wait() == 1
