"""`make outdated`: what is tried, and what the table says about it."""

import shlex

import pytest

from benchmarks import outdated
from rlcli import recipe
from rlcli.registry.libraries import EXTRAS


class Machine:
    """An index, and environments in which some versions fail."""

    def __init__(self, newest, failing=()):
        self.index, self.failing, self.tried = newest, failing, []

    def __call__(self, folder, python, base):
        return Fake(self, {**(base.packages if base else {})})


class Fake:
    def __init__(self, machine, packages):
        self.machine, self.packages = machine, packages

    def install(self, requirement):
        name, _, version = requirement.partition("==")
        if version:
            self.packages[name] = version
        else:  # rlcli with an extra
            self.packages |= {"gymnax": "1.0", "gymnasium": "1.3"}
        return ""

    def newest(self, package):
        return self.machine.index.get(package, "unknown")

    def versions(self, words):
        return {name: self.packages[name] for name in words if name in self.packages}

    def conflict(self, package):
        return ""

    def smoke(self, name):
        self.machine.tried.append((name, dict(self.packages)))
        failing = [
            each for each in self.machine.failing if each in self.packages.items()
        ]
        return f"{failing[0]} is broken" if failing else ""


@pytest.fixture
def rows(monkeypatch, tmp_path, capsys):
    """A function: the conclusions about the extra gymnax on a machine."""
    bounds = {"gymnax": outdated.SpecifierSet(">=1.0,<2")}
    bounds["gymnasium"] = outdated.SpecifierSet("<1.4")
    monkeypatch.setattr(outdated, "requirements_of", lambda name: bounds)

    def look(machine):
        monkeypatch.setattr(outdated, "Environment", machine)
        found = outdated.check("gymnax", machine("", "", None), "", tmp_path)
        lines = capsys.readouterr().out.splitlines()
        assert lines == [outdated.line(row) for row in found]
        return {row.package: row for row in found}

    return look


def test_a_newest_version_within_the_bounds_needs_no_other_environment(rows):
    machine = Machine({"gymnax": "1.0", "gymnasium": "1.3"})
    found = rows(machine)
    assert [row.conclusion for row in found.values()] == ["passes"] * 2
    assert machine.tried == [("gymnax", {"gymnax": "1.0", "gymnasium": "1.3"})]


def test_a_version_above_the_bound_is_tried_alone(rows):
    machine = Machine({"gymnax": "1.0", "gymnasium": "1.4"})
    found = rows(machine)
    assert machine.tried[1] == ("gymnax", {"gymnax": "1.0", "gymnasium": "1.4"})
    assert "raise the bound" in found["gymnasium"].conclusion
    assert found["gymnasium"].installed == "1.3"
    assert found["gymnax"].conclusion == "passes"


def test_a_bound_that_is_needed_stays(rows):
    machine = Machine({"gymnasium": "1.4"}, {("gymnasium", "1.4")})
    conclusion = rows(machine)["gymnasium"].conclusion
    assert conclusion.startswith("passes; the newest fails: ('gymnasium', '1.4')")


def test_a_failure_within_the_bounds_is_named_in_every_row(rows):
    found = rows(Machine({}, {("gymnax", "1.0")}))
    assert all(row.conclusion.startswith("FAILS: ") for row in found.values())


def test_every_extra_is_tried_with_recipes_that_exist():
    """Except for those that need a device."""
    assert {*EXTRAS} - {*outdated.SMOKE} == {"cuda12", "cuda13", "tpu"}
    assert {*outdated.SMOKE} - {*EXTRAS} == {"core"}
    for lines in outdated.SMOKE.values():
        for command, name, *_ in map(shlex.split, filter(lambda x: " " in x, lines)):
            if command in ("train", "sweep"):
                assert name in recipe.shipped_recipes()


def test_bounds_are_those_of_the_package():
    assert "0.10.1" in outdated.requirements_of("core")["jax"]
    assert {*outdated.requirements_of("gymnax")} == {"gymnax", "gymnasium"}
    assert outdated.requirements_of("mujoco") == {}  # Gymnasium bounds it


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("loading\nerror: no device\n\nhint: buy one\n", "error: no device"),
        ("Traceback\n  File\nValueError: bad shape\n", "ValueError: bad shape"),
        ("killed\n", "killed"),
        ("", "no message"),
    ],
)
def test_the_reason_is_one_line(text, expected):
    assert outdated.first_error(text) == expected
