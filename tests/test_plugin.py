"""The example of a plug-in: it installs, and what it adds is trained with."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

PLUGIN = Path(__file__).parents[1] / "examples" / "plugin"
RECIPE = """
environment: Ring-v0
network: {name: gated, width: 16}
updater: mellowmax
replay: {name: uniform, capacity: 1_000}
optimizer: {name: adam, learning_rate: 1e-2}
train: {steps: 2_000, start: 100}
"""
RUNS = {  # run -> changes of the recipe
    "rule": [],
    "objective": ["updater=spo", "replay=null", "train.unroll=32", "train.start=0"],
}


def test_the_plugin_has_at_most_sixty_lines_of_its_own():
    files = [*PLUGIN.glob("*.py"), *PLUGIN.glob("*.toml")]
    written = [line for file in files for line in file.read_text().splitlines()]
    assert len([line for line in written if line.strip()]) <= 60


@pytest.mark.slow
def test_a_plugin_that_is_installed_is_trained_with(tmp_path):
    """Where nothing but the plug-in itself is to be had, and no network is."""
    there = tmp_path / "site"
    options = ["--no-deps", "--no-build-isolation", "--no-index", "--quiet"]
    install = [sys.executable, "-m", "pip", "install", *options]
    subprocess.run([*install, "--target", str(there), str(PLUGIN)], check=True)
    path = os.pathsep.join([str(there), *sys.path])
    environment = {**os.environ, "PYTHONPATH": path}

    def rlcli(*arguments):
        command = [sys.executable, "-m", "rlcli", *arguments]
        done = subprocess.run(
            command, env=environment, cwd=tmp_path, check=True, capture_output=True
        )
        return done.stdout.decode()

    (tmp_path / "ring.yaml").write_text(RECIPE)
    assert "time_limit: 30" in rlcli("show", "environment", "Ring-v0")
    assert "Asadi and Littman" in rlcli("show", "updater", "mellowmax")
    assert "Xie et al." in rlcli("show", "updater", "spo")
    for run, changes in RUNS.items():
        sets = [word for change in changes for word in ("--set", change)]
        rlcli("train", "ring.yaml", "--run", run, "--quiet", *sets)
        result = json.loads(rlcli("eval", run, "--episodes", "5", "--json"))
        assert result["return"]["mean"] == 1, run
        assert result["seeds"][0]["length"] <= 5, run
