"""The examples: they run or are valid, and the documentation shows them."""

import importlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import haiku as hk
import jax
import numpy as np
import pytest
import yaml

from rlcli.recipe.reading import read_recipe
from rlcli.runs.metrics import read_metrics
from rlcli.runs.run_folder import Run
from rlcli.studies.search.space import check_space, load_space

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
        "python": f'exec {sys.executable} "$@"',
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


@pytest.fixture
def lab(tmp_path):
    """A copy of the example of a day of research."""
    return shutil.copytree(EXAMPLES / "research_day", tmp_path / "lab")


@pytest.mark.slow
def test_the_network_of_the_research_day_reads_objects_in_any_order(lab, monkeypatch):
    monkeypatch.syspath_prepend(lab)
    mine = importlib.import_module("mine")
    read = hk.without_apply_rng(hk.transform(lambda obs: mine.net().features(obs)))
    hand, objects = jax.random.normal(jax.random.key(0), (4, 2)), np.zeros((4, 3, 3))
    objects += np.arange(9).reshape(3, 3)
    params = read.init(jax.random.key(1), {"hand": hand, "objects": objects})
    features = read.apply(params, {"hand": hand, "objects": objects})
    assert features.shape == (4, 64)
    other = read.apply(params, {"hand": hand, "objects": objects[:, ::-1]})
    np.testing.assert_allclose(other, features, atol=1e-5)
    del sys.modules["mine"]


@pytest.mark.pages
def test_a_day_of_research_needs_no_trust(bash, lab, tmp_path):
    assert bash("cd lab && bash day.sh").wait() == 0
    paper = tmp_path / "lab-paper"
    assert not lab.exists()
    assert "--trust" not in read("research_day/day.sh")
    table = (paper / "success.tex").read_text()
    assert "success rate, evaluation" in table and table.count(r"\textbf") >= 3
    for variant in ("attention", "no\\_curriculum", "mlp"):
        assert re.search(rf"^{re.escape(variant)} & 5 & .*\[.*\]", table, re.M)
    cells = json.loads((paper / "results.ipynb").read_text())["cells"]
    shown = [cell["outputs"] for cell in cells if cell["cell_type"] == "code"]
    assert all(shown) and "<table>" in str(shown[1])
    runs = [Run(path) for path in sorted((paper / "runs/day").glob("*/"))]
    assert all(run.read_info()["status"] == "finished" for run in runs)
    steps = [
        each["step"] for run in runs for each in run.read_info().get("resumes", [])
    ]
    assert 4_096 in steps  # in the folder that was moved
    assert any(0 < step < 4_096 for step in steps)  # after it was killed
    run = runs[0]
    rows = [*read_metrics(run.folder)]
    assert max(row["T"] for row in rows) == 5_120
    radii = [row["goal_radius"] for row in rows if "goal_radius" in row]
    assert radii[0] == 0.6 and radii[-1] < 0.6  # the curriculum has gone on


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
