"""`rlcli doctor`: what is reported, and what counts as broken."""

import importlib
import importlib.metadata
import json
import os
import subprocess
import sys

import pytest

import rlcli
from rlcli import registry
from rlcli.errors import RlcliError
from rlcli.registry import libraries
from rlcli.training.checks import doctor


def test_a_sound_installation_has_no_error():
    report = rlcli.doctor()
    assert report["ok"]
    assert [p for p in report["problems"] if p["required"]] == []
    assert report["rlcli"] == importlib.metadata.version("rlcli")
    assert report["packages"]["jax"] == importlib.metadata.version("jax")
    assert report["packages"]["pyyaml"] and "scipy" not in report["packages"]
    assert report["devices"][0]["platform"] == "cpu"
    assert [item["name"] for item in report["extras"]] == [*libraries.EXTRAS]
    for item in report["extras"]:
        assert item["install"].startswith("pip install ")


def test_a_missing_extra_is_no_problem(monkeypatch):
    monkeypatch.setitem(sys.modules, "av", None)
    report = rlcli.doctor()
    extras = {item["name"]: item for item in report["extras"]}
    assert not extras["mp4"]["installed"]
    assert report["ok"]


def test_a_missing_package_is_an_error(monkeypatch):
    version = importlib.metadata.version

    def missing(name):
        if name == "optax":
            raise importlib.metadata.PackageNotFoundError(name)
        return version(name)

    monkeypatch.setattr(importlib.metadata, "version", missing)
    report = rlcli.doctor()
    assert not report["ok"] and report["packages"]["optax"] is None
    (problem,) = [p for p in report["problems"] if p["required"]]
    assert problem["message"] == "package `optax` is missing"


def test_a_jax_that_does_not_work_is_an_error(monkeypatch):
    import_module = importlib.import_module

    def broken(name):
        if name == "jax":
            raise RuntimeError("jaxlib version 0.1 is too old")
        return import_module(name)

    monkeypatch.setattr(importlib, "import_module", broken)
    report = rlcli.doctor()
    assert not report["ok"] and report["devices"] == []
    assert "jaxlib version 0.1 is too old" in report["problems"][0]["message"]


def test_an_unsupported_platform_is_an_error(monkeypatch):
    def refuse():
        raise RlcliError("not on this machine")

    monkeypatch.setattr(doctor, "check_platform", refuse)
    assert not rlcli.doctor()["ok"]


def test_a_broken_plug_in_is_a_warning(tmp_path, monkeypatch):
    folder = tmp_path / "shaky-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: shaky\nVersion: 1.0\n"
    )
    (folder / "entry_points.txt").write_text(
        "[rlcli.v1.networks]\nbroken = not_there:x\nfine = rlcli.networks.torsos:mlp\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    registry.entry_points.cache_clear()
    try:
        report = rlcli.doctor()
    finally:
        registry.entry_points.cache_clear()
    plug_ins = {item["name"]: item for item in report["plug_ins"]}
    assert "cannot be loaded" in plug_ins["broken"]["error"]
    assert plug_ins["fine"]["error"] == ""
    assert "`shaky 1.0`" in plug_ins["fine"]["source"]
    assert report["ok"] and "not_there" in report["problems"][0]["message"]


def test_a_folder_that_cannot_be_written_to_is_a_warning(tmp_path, monkeypatch):
    (tmp_path / "runs").write_text("a file")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", str(tmp_path / "cache"))
    report = rlcli.doctor()
    runs, programs = report["folders"]
    assert "cannot be written to" in runs["error"] and programs["error"] == ""
    assert programs["path"] == str(tmp_path / "cache")
    assert report["ok"] and "`--runs`" in report["problems"][0]["hint"]


def test_a_gpu_that_jax_does_not_use_is_a_warning(monkeypatch):
    monkeypatch.setattr(doctor.glob, "glob", lambda pattern: ["/dev/nvidia0"])
    report = rlcli.doctor()
    (problem,) = report["problems"]
    assert "JAX uses the CPU" in problem["message"]
    assert problem["hint"] == libraries.install_command("cuda13")


@pytest.mark.parametrize("version", [(3, 10, 1), (3, 9, 0)])
def test_an_old_python_is_an_error(version, monkeypatch):
    monkeypatch.setattr(doctor.sys, "version_info", version)
    with pytest.raises(RlcliError, match=r"needs Python 3\.11 or newer"):
        doctor._check_python()


@pytest.mark.slow
def test_a_flag_that_xla_does_not_know_is_a_problem_and_ends_nothing():
    """XLA ends a process with an unknown flag, so another process is asked."""
    environment = {**os.environ, "XLA_FLAGS": "--xla_no_such_flag=1"}
    command = [sys.executable, "-m", "rlcli", "doctor", "--json"]
    result = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert result.returncode == 1
    report = json.loads(result.stdout)
    assert report["devices"] == []
    (problem,) = [each for each in report["problems"] if each["required"]]
    assert "--xla_no_such_flag=1" in problem["message"]
