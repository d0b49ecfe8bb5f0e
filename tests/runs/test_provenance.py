"""What a process runs on, as a run remembers it."""

import importlib.metadata
import platform
import shutil
import subprocess
import sys

import pytest

from rlcli.runs.files import to_json
from rlcli.runs.provenance import DIFF_LIMIT, collect_provenance, program


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
    found = collect_provenance()
    assert found["python"] == platform.python_version()
    assert found["versions"]["jax"] == importlib.metadata.version("jax")
    assert found["command"] == "rlcli train 'my recipe.yaml'"
    assert found["cores"]["machine"] >= found["cores"]["usable"] >= 1
    assert to_json(found)


def test_the_commit_and_what_differs_from_it_are_kept(checkout):
    (checkout / "a.txt").write_text("two\n")
    found = collect_provenance()["git"]
    assert len(found["commit"]) == 40
    assert "-one\n+two\n" in found["diff"]
    assert not found["diff_is_cut"]


def test_a_long_difference_is_cut(checkout):
    (checkout / "a.txt").write_text("many words\n" * 100_000)
    found = collect_provenance()["git"]
    assert len(found["diff"]) == DIFF_LIMIT
    assert found["diff_is_cut"]


def test_outside_of_a_checkout_or_without_git_there_is_no_commit(
    checkout, tmp_path_factory, monkeypatch
):
    with monkeypatch.context() as inside:
        inside.setenv("PATH", "")
        assert collect_provenance()["git"] is None
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    assert collect_provenance()["git"] is None


@pytest.mark.parametrize(
    ("setting", "attributes"),
    [
        ("core.fsmonitor", ""),
        ("filter.a=b c.clean", '*.txt filter="a=b c"'),
        ("filter.mine.clean", "*.txt filter=mine"),
        ("filter.mine.process", "*.txt filter=mine"),
        ("diff.external", ""),
        ("diff.mine.textconv", "*.txt diff=mine"),
        ("diff.mine.command", "*.txt diff=mine"),
    ],
)
def test_no_program_that_the_checkout_names_is_run(checkout, setting, attributes):
    trace = checkout.parent / "trace"
    program = checkout / "program"
    program.write_text(f"#!/bin/sh\ntouch {trace}\ncat\n")
    program.chmod(0o755)
    (checkout / ".gitattributes").write_text(attributes)
    (checkout / "a.txt").write_text("two\n")
    git("config", setting, str(program))
    found = collect_provenance()["git"]
    assert not trace.exists()
    assert "-one\n+two\n" in found["diff"]


@pytest.mark.parametrize(
    ("argv", "on_path", "expected"),
    [
        ("bin/rlcli", "bin", "rlcli"),
        ("bin/rlcli", "other", "bin/rlcli"),
        ("a b/rlcli", "other", "'a b/rlcli'"),
        ("x/rlcli/__main__.py", "other", f"{sys.executable} -m rlcli"),
        ("/usr/bin/pytest", "bin", "rlcli"),
    ],
)
def test_the_program_is_how_a_shell_finds_this_rlcli(
    tmp_path, monkeypatch, argv, on_path, expected
):
    for folder in ("bin", "other"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "rlcli").write_text("#!/bin/sh\n")
        (tmp_path / folder / "rlcli").chmod(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path / on_path))
    monkeypatch.setattr(sys, "argv", [argv])
    assert program() == expected
