"""The package: what it exports, what it imports, what it declares."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import rlcli

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))[
    "project"
]


def pins():
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pairs = [line.split("==") for line in lines if not line.startswith("#")]
    return {canonicalize_name(name): version for name, version in pairs}


@pytest.mark.parametrize(
    "module", ["rlcli", "rlcli.cli", "rlcli.xla.threads", "rlcli.runs.run_folder"]
)
def test_importing_it_imports_no_jax(module):
    program = f"import sys, {module}; print('jax' in sys.modules)"
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert result.stdout == "False\n"


def test_every_verb_is_a_function_of_the_package():
    verbs = {"train", "chunks", "resume", "eval", "render", "list", "show", "check"}
    assert verbs < set(rlcli.__all__)
    assert set(rlcli.__all__) <= set(dir(rlcli))
    for verb in verbs:
        assert getattr(rlcli, verb).__name__ == verb


def test_a_name_it_has_not_is_an_attribute_error():
    with pytest.raises(AttributeError, match="has no attribute 'trian'"):
        _ = rlcli.trian


def test_the_version_is_that_of_the_project():
    assert rlcli.__version__ == PROJECT["version"]


def test_every_dependency_has_both_bounds_and_a_pin_within_them():
    dependencies = [*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["dev"]]
    for requirement in map(Requirement, dependencies):
        operators = {each.operator for each in requirement.specifier}
        assert operators == {">=", "<"}, requirement
        assert pins()[canonicalize_name(requirement.name)] in requirement.specifier


def test_constraints_are_plain_pins():
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    for line in lines:
        assert line.startswith("#") or re.fullmatch(r"[\w.-]+==[\w.]+", line), line


@pytest.mark.parametrize(
    "word", ["demo", "test", "test-slow", "check", "format", "bench"]
)
def test_the_makefile_knows_the_word(word):
    subprocess.run(
        ["make", "--dry-run", word], cwd=ROOT, check=True, stdout=subprocess.DEVNULL
    )
