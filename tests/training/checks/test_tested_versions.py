"""What `rlcli doctor` says about versions that CI has not tested."""

import importlib.metadata

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

import rlcli
from rlcli.registry.paths import shipped_path
from rlcli.training.checks import doctor
from rlcli.training.checks.doctor import untested_packages


@pytest.fixture
def installed(monkeypatch):
    """A function: pretends that packages have these versions, None if missing."""
    version = importlib.metadata.version

    def place(**versions):
        def look_up(name):
            found = versions[name] if name in versions else version(name)
            if found is None:
                raise importlib.metadata.PackageNotFoundError(name)
            return found

        monkeypatch.setattr(importlib.metadata, "version", look_up)

    return place


@pytest.mark.parametrize(
    ("version", "tested", "expected"),
    [
        ("0.10.2", ["0.10.2"], ""),
        ("0.9.10", ["0.10.2"], "older"),
        ("0.11", ["0.10.2", "0.12.0.1"], ""),
        ("0.12.0.1", ["0.10.2", "0.12.0.1"], ""),
        ("0.12.0.2", ["0.10.2", "0.12.0.1"], "newer"),
        ("1.2", ["1.2.0"], ""),
        ("10.0", ["1"], "newer"),
        ("1.10.0.post1", ["1.9.0"], "newer"),
        ("2.0.0rc1", ["2.0.0"], ""),
        ("1!0.5", ["1!0.6"], "older"),
    ],
)
def test_releases_are_compared_by_number(
    version, tested, expected, installed, monkeypatch
):
    monkeypatch.setattr(doctor, "read_pins", lambda: {"optax": tested})
    installed(optax=version)
    found = [(item["installed"], item["is"]) for item in untested_packages(["optax"])]
    assert found == ([(version, expected)] if expected else [])


def test_the_pins_are_read_as_packaging_reads_them():
    expected = {}
    for line in shipped_path("constraints.txt").read_text().splitlines():
        if not line.startswith("#"):
            pin = Requirement(line)
            name = pin.name.replace("_", "-").replace(".", "-").lower()
            (version,) = (Version(each.version) for each in pin.specifier)
            expected.setdefault(name, set()).add(version)
    found = doctor.read_pins()
    assert {name: {*map(Version, pins)} for name, pins in found.items()} == expected
    for versions in found.values():
        assert versions == sorted(versions, key=Version)


def test_doctor_names_what_is_newer_or_older_than_tested(installed):
    installed(optax="99.0", onnx="1.0", numpy=None)
    found = {item["name"]: item for item in rlcli.doctor()["untested"]}
    assert (found["optax"]["installed"], found["optax"]["is"]) == ("99.0", "newer")
    assert (found["onnx"]["installed"], found["onnx"]["is"]) == ("1.0", "older")
    assert found["onnx"]["tested"] == doctor.read_pins()["onnx"]
    assert "numpy" not in found


def test_an_untested_version_is_no_problem(installed):
    before = rlcli.doctor()["problems"]
    installed(optax="99.0")
    assert rlcli.doctor()["problems"] == before
