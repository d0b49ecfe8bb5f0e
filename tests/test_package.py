"""The package: what it exports, what it imports, what it declares."""

import ast
import re
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

import rlcli
from rlcli import COMMANDS, command_name
from rlcli.training.tested_versions import read_pins

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))[
    "project"
]


def pins():
    """The pins of CI, as requirements."""
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    return [Requirement(line) for line in lines if not line.startswith("#")]


WITHOUT_JAX = (
    "rlcli",
    "rlcli.cli",
    "rlcli.xla.threads",
    "rlcli.monitor.watch",
    "rlcli.runs.diff",
    "rlcli.runs.description",
    "rlcli.runs.listing",
    "rlcli.runs.creation",
    "rlcli.runs.run_folder",
    "rlcli.training",
    "rlcli.results.compare",
    "rlcli.results.comparison",
    "rlcli.results.plot",
    "rlcli.results.curves",
    "rlcli.results.chart",
    "rlcli.results.report.report",
)


def test_importing_it_imports_no_jax():
    program = (
        "import importlib, sys\n"
        "for module in sys.argv[1:]:\n"
        "    importlib.import_module(module)\n"
        "    print(*[module] * ('jax' in sys.modules))"
    )
    result = subprocess.run(
        [sys.executable, "-c", program, *WITHOUT_JAX],
        capture_output=True,
        text=True,
        check=True,
    )
    assert result.stdout.split() == []


def test_every_command_is_a_function_of_the_package():
    assert {*COMMANDS} < set(rlcli.__all__) <= set(dir(rlcli))
    assert len(rlcli.__all__) == len(set(rlcli.__all__))
    for command in (*COMMANDS, "chunks", "load"):
        function = getattr(rlcli, command)
        assert callable(function)
        assert function.__name__.split(".")[-1] == command  # `rlcli.runs` is a package


def test_a_command_is_a_row_of_the_table_and_a_file():
    files = {
        path.stem
        for path in (ROOT / "rlcli" / "cli").glob("*.py")
        if "\ndef command(" in path.read_text(encoding="utf-8")
    }
    assert files == {*COMMANDS}


def test_type_checkers_see_the_functions_that_are_imported_lazily():
    tree = ast.parse((ROOT / "rlcli" / "__init__.py").read_text(encoding="utf-8"))
    (block,) = (
        node
        for node in tree.body
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    )
    imported = {alias.name: node.module for node in block.body for alias in node.names}
    assert imported == dict(rlcli._MODULES)


def test_the_documentation_lists_every_command():
    """The README as a command, and docs/python.md as a function."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    table = (ROOT / "docs" / "python.md").read_text(encoding="utf-8")
    shell = "\n".join(re.findall(r"```sh\n(.*?)```", readme, re.DOTALL))
    commands = set(re.findall(r"^rlcli ([\w-]+)", shell, re.MULTILINE))
    assert {*map(command_name, COMMANDS)} == commands - {"--install-completion"}
    functions = re.findall(r"`rlcli\.(\w+)\(", table.partition("\n## ")[0])
    assert {*functions} == {*COMMANDS, "chunks", "load"}


def test_continuous_integration_asks_the_table_for_the_commands():
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    program = re.search(r"python\" -c '(.*?)'", script, re.DOTALL)
    result = subprocess.run(
        [sys.executable, "-c", program[1]], capture_output=True, text=True, check=True
    )
    assert result.stdout.split() == [*map(command_name, COMMANDS)]


def test_a_name_it_has_not_is_an_attribute_error():
    with pytest.raises(AttributeError, match="has no attribute 'trian'"):
        _ = rlcli.trian


def test_the_version_is_that_of_the_project():
    assert rlcli.__version__ == PROJECT["version"]


def test_every_dependency_has_both_bounds_and_pins_within_them():
    extras = PROJECT["optional-dependencies"]
    dependencies = [*PROJECT["dependencies"], *extras["dev"], *extras["docs"]]
    tested = read_pins()
    for requirement in map(Requirement, dependencies):
        operators = {each.operator for each in requirement.specifier}
        assert operators == {">=", "<"}, requirement
        versions = tested[canonicalize_name(requirement.name)]
        assert all(each in requirement.specifier for each in versions), requirement


def test_every_library_of_an_extra_has_a_pin():
    unpinned = {"ray"}  # not in CI: a cluster
    for name, requirements in PROJECT["optional-dependencies"].items():
        for requirement in map(Requirement, requirements):
            own = canonicalize_name(requirement.name)
            assert own in read_pins() or own in unpinned, (name, requirement)


@pytest.mark.parametrize("python", ["3.11", "3.12", "3.13", "3.14"])
def test_constraints_are_one_pin_of_each_package_for_a_python(python):
    chosen = [
        canonicalize_name(pin.name)
        for pin in pins()
        if pin.marker is None or pin.marker.evaluate({"python_version": python})
    ]
    assert sorted(chosen) == sorted(read_pins())
    assert all(each.operator == "==" for pin in pins() for each in pin.specifier)


def test_the_oldest_and_the_newest_minor_version_of_jax_are_tested():
    (jax,) = (r for r in map(Requirement, PROJECT["dependencies"]) if r.name == "jax")
    bounds = {each.operator: Version(each.version) for each in jax.specifier}
    oldest, newest = (Version(each) for each in read_pins()["jax"])
    assert oldest.release[:2] == bounds[">="].release[:2]
    assert newest.minor + 1 == bounds["<"].minor


@pytest.mark.parametrize(
    "word",
    ["demo", "tutorial", "test", "test-slow", "docs", "check", "format", "bench"],
)
def test_the_makefile_knows_the_word(word):
    subprocess.run(
        ["make", "--dry-run", word], cwd=ROOT, check=True, stdout=subprocess.DEVNULL
    )


def license_of(distribution):
    """The licence that a distribution declares."""
    fields = distribution.metadata
    classifiers = fields.get_all("Classifier") or []
    names = [each for each in classifiers if each.startswith("License ::")]
    return fields.get("License-Expression") or " ".join(names) or fields["License"]


def test_the_licences_of_all_required_packages_are_permissive():
    permissive = ("MIT", "BSD", "Apache", "ISC", "PSF-2.0", "Zlib")
    todo, licences = ["rlcli"], {}
    while todo:
        name = canonicalize_name(todo.pop())
        if name in licences:
            continue
        distribution = metadata.distribution(name)
        licences[name] = license_of(distribution)
        requirements = map(Requirement, distribution.requires or ())
        todo += [
            each.name
            for each in requirements
            if each.marker is None or each.marker.evaluate({"extra": ""})
        ]
    assert len(licences) > 20
    unexpected = {
        name: text
        for name, text in licences.items()
        if "GPL" in text or not any(word in text for word in permissive)
    }
    assert not unexpected
