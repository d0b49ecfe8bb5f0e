"""What a process runs on, as a run remembers it."""

import importlib.metadata
import platform
import shutil
import subprocess
import sys

import pytest

from rlcli.files import to_json
from rlcli.provenance import DIFF_LIMIT, circumstances


def git(*arguments):
    who = ["-c", "user.name=a", "-c", "user.email=a@b.c"]
    subprocess.run(["git", *who, *arguments], check=True, capture_output=True)


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    monkeypatch.chdir(tmp_path)
    git("init")
    (tmp_path / "a.txt").write_text("one\n")
    git("add", "a.txt")
    git("commit", "-m", "first")
    return tmp_path


def test_versions_are_those_that_are_installed(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["rlcli", "train", "my recipe.yaml"])
    found = circumstances()
    assert found["python"] == platform.python_version()
    assert found["versions"]["jax"] == importlib.metadata.version("jax")
    assert found["command"] == "rlcli train 'my recipe.yaml'"
    assert found["cores"]["machine"] >= found["cores"]["usable"] >= 1
    assert to_json(found)


def test_the_commit_and_what_differs_from_it_are_kept(checkout):
    (checkout / "a.txt").write_text("two\n")
    found = circumstances()["git"]
    assert len(found["commit"]) == 40
    assert "-one\n+two\n" in found["diff"]
    assert not found["diff_is_cut"]


def test_a_long_difference_is_cut(checkout):
    (checkout / "a.txt").write_text("many words\n" * 100_000)
    found = circumstances()["git"]
    assert len(found["diff"]) == DIFF_LIMIT
    assert found["diff_is_cut"]


def test_outside_of_a_checkout_or_without_git_there_is_no_commit(
    checkout, tmp_path_factory, monkeypatch
):
    with monkeypatch.context() as inside:
        inside.setenv("PATH", "")
        assert circumstances()["git"] is None
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    assert circumstances()["git"] is None
