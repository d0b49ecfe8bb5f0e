import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from rlcli import recipe

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def commands(word):
    """The lines of the shell blocks that begin with a word, without their comments."""
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


def test_every_command_of_the_readme_runs_in_its_order(folder):
    """With tiny budgets: `--smoke` for training, and two episodes for evaluation."""
    known = commands("rlcli")
    assert len(known) >= 10
    for command in known:
        command = [word for word in command if word != "--smoke"]
        tiny = {"train": ["--smoke"], "eval": ["--episodes", "2"]}.get(command[1], [])
        if "--set" in command:
            tiny = ["--set", "train.steps=2_000", "--set", "train.start=100"]
        done = run([*command, *tiny], folder)
        assert done.returncode == 0, (shlex.join(command), done.stderr)


def test_the_makefile_knows_the_words_that_the_readme_says():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    words = {command[1] for command in commands("make")}
    assert words == {"demo", "test"}
    for word in words:
        assert re.search(rf"^{word}:", makefile, re.MULTILINE)


def test_the_recipe_of_the_readme_is_the_one_that_ships():
    (text,) = blocks("yaml")
    shown = recipe.load_recipe(recipe.documents.load_document(text).data)
    shipped = recipe.load_recipe("dqn_cartpole")
    for part in ("environment", "network", "policy", "tracer", "updater", "optimizer"):
        assert getattr(shown, part) == getattr(shipped, part)


def test_the_python_of_the_readme_learns_the_way_over_the_lake(folder):
    (code,) = blocks("python")
    done = run(["rlcli.__main__", "--version"], folder)
    assert done.returncode == 0
    script = folder / "script.py"
    script.write_text(code, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, str(script)],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "'mean': 1.0" in done.stdout


@pytest.mark.slow
def test_the_demo_learns_cartpole_in_a_fresh_clone(tmp_path):
    clone = tmp_path / "rlcli"
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
    done = subprocess.run(
        ["make", "demo"], cwd=clone, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert list(clone.glob("runs/dqn_cartpole/*/render.gif"))
