import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from rlcli import recipe
from rlcli.recipe import documents

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def commands(word):
    """Returns the shell lines that begin with a word, without comments."""
    lines = [
        line.split("#")[0].split()
        for text in blocks("sh")
        for line in text.splitlines()
    ]
    return [line for line in lines if line[:1] == [word]]


def run(arguments, folder):
    return subprocess.run(
        [sys.executable, "-m", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("readme")


@pytest.mark.pages
def test_every_command_of_the_readme_runs_in_order(folder):
    """With small budgets: `--smoke` for training, and few episodes."""
    (folder / "paper.yaml").write_text(
        "recipes: [qlearning_frozenlake, sarsa_frozenlake]\nseeds: 5\n"
        "test: {baseline: sarsa_frozenlake, effect: 0.1, max_seeds: 20}\n"
    )
    (folder / "space.yaml").write_text("tracer.gamma: {uniform: [0.9, 0.99]}\n")
    rlcli_commands = commands("rlcli")
    assert len(rlcli_commands) >= 10
    for command in rlcli_commands:
        is_smoke = "--smoke" in command
        command = [word for word in command if word != "--smoke"]
        budget = {
            "board": ["--help"],  # it serves until it is stopped
            "train": ["--smoke"],
            "bsuite": ["--smoke"],
            "study": ["--smoke"],
            "eval": ["--episodes", "2"],
            "report": ["--episodes", "0"],
            "sweep": [
                *("--trials", "1", "--seeds", "1", "--confirm", "0"),
                *("--set", "train.steps=2_048", "--set", "train.evaluate.every=512"),
            ],
        }.get(command[1], [])
        if "--set" in command and not is_smoke:
            budget = ["--set", "train.steps=2_000", "--set", "train.start=100"]
        process = run([*command, *budget], folder)
        assert process.returncode == 0, (shlex.join(command), process.stderr)


def test_the_makefile_has_the_targets_of_the_readme():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = {command[1] for command in commands("make")}
    assert targets == {"demo", "test"}
    for target in targets:
        assert re.search(rf"^{target}:", makefile, re.MULTILINE)


def test_the_recipe_of_the_readme_equals_the_built_in_recipe():
    (text,) = blocks("yaml")
    documented = recipe.load_recipe(documents.load_document(text).data)
    built_in = recipe.load_recipe("dqn_cartpole")
    for part in ("environment", "network", "policy", "tracer", "updater", "optimizer"):
        assert getattr(documented, part) == getattr(built_in, part)


@pytest.mark.pages
def test_the_python_example_of_the_readme_solves_frozen_lake(folder):
    (code,) = blocks("python")
    process = run(["rlcli.__main__", "--version"], folder)
    assert process.returncode == 0
    script = folder / "script.py"
    script.write_text(code, encoding="utf-8")
    process = subprocess.run(
        [sys.executable, str(script)],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    assert "'mean': 1.0" in process.stdout


@pytest.mark.slow
def test_the_demo_learns_cartpole_in_a_fresh_clone(tmp_path):
    clone = tmp_path / "rlcli"
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
    process = subprocess.run(
        ["make", "demo"], cwd=clone, capture_output=True, text=True, check=False
    )
    assert process.returncode == 0, process.stderr
    assert list(clone.glob("runs/dqn_cartpole/*/render.gif"))
