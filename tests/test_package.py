"""The package: what it exports, what it imports, what it declares."""

import ast
import importlib
import inspect
import re
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
import typer
import yaml
from hatchling.metadata.core import ProjectMetadata
from hatchling.plugin.manager import PluginManager
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

import rlcli
from rlcli import COMMANDS, command_name
from rlcli.training.checks.doctor import read_pins

ROOT = Path(__file__).parents[1]
_SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PROJECT, TOOLS = _SETTINGS["project"], _SETTINGS["tool"]


def pins():
    """The pins of CI, as requirements."""
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    return [Requirement(line) for line in lines if not line.startswith("#")]


WITHOUT_JAX = (
    "rlcli",
    "rlcli.cli",
    "rlcli.xla.threads",
    "rlcli.monitor.watch",
    "rlcli.runs.differences",
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
    "rlcli.results.board.board",
    "rlcli.results.board.page_parts",
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


# These take any keyword: an environment's own options, and extras of a transition.
TAKES_ANY = ("make", "transition")


def test_the_signature_of_a_function_has_all_of_its_keywords():
    """So `help`, editors and type checkers know them, and find a misspelled one."""
    public = [
        importlib.import_module("rlcli.runs.listing").runs
    ]  # `rlcli.runs` is both
    names = {*rlcli.__all__} - {*TAKES_ANY, "runs"}
    public += [value for n in names if inspect.isfunction(value := getattr(rlcli, n))]
    for function in public:
        kinds = {each.kind for each in inspect.signature(function).parameters.values()}
        assert inspect.Parameter.VAR_KEYWORD not in kinds, function


def test_functions_that_do_the_same_have_the_same_keywords():
    def keywords(function):
        parameters = [*inspect.signature(function).parameters.values()]
        return [(each.name, each.default) for each in parameters[1:]]

    assert keywords(rlcli.chunks) == keywords(rlcli.train)
    assert keywords(rlcli.episodes) == keywords(rlcli.eval)


# How a result is shown, and options of several runs or of another verb.
ON_SCREEN = {"json", "quiet", "open", "watch", "dry_run"}
OF_OTHERS = {"train": ("study",), "resume": ("study",), "sweep": ("export_sweep",)}


@pytest.mark.parametrize("name", COMMANDS)
def test_the_options_of_a_command_are_keywords_of_its_function(name):
    command = importlib.import_module(f"rlcli.cli.{name}").command
    parameters = inspect.signature(command).parameters.values()
    options = {
        each.name.removesuffix("_")
        for each in parameters
        if not isinstance(each.default, typer.models.ArgumentInfo)
    }
    keywords = set()
    for function in (name, *OF_OTHERS.get(name, ())):
        own = getattr(importlib.import_module(rlcli._MODULES[function]), function)
        keywords |= set(inspect.signature(own).parameters)
    assert options - ON_SCREEN <= keywords


def test_a_misspelled_keyword_is_named_by_the_function_that_was_called():
    with pytest.raises(TypeError, match="unexpected keyword argument 'sedes'"):
        rlcli.train("dqn_cartpole", sedes=3)


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
    assert {*functions} == {*COMMANDS, "chunks", "load", "metrics", "episodes"}


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


ADDRESS = "https://host.invalid/someone/rlcli"


def build_metadata():
    """The metadata of the wheel, as hatchling writes it."""
    return ProjectMetadata(str(ROOT), PluginManager()).core


def links_of(text):
    return re.findall(r"(!?)\[[^\]]*\]\(([^)\s]+)\)", text)


def test_the_version_is_written_once():
    """In `rlcli/__init__.py`; the citation and the changelog are compared with it."""
    assert "version" not in PROJECT
    assert ProjectMetadata(str(ROOT), PluginManager()).version == rlcli.__version__


def test_links_of_the_long_description_lead_to_the_files_of_the_release(monkeypatch):
    monkeypatch.setenv("RLCLI_REPOSITORY", f"{ADDRESS}/")
    core = build_metadata()
    assert core.readme_content_type == "text/markdown"
    files = [
        (mark, target)
        for mark, target in links_of((ROOT / "README.md").read_text(encoding="utf-8"))
        if not target.startswith("https://")
    ]
    pictures = [target for mark, target in files if mark]
    assert len(pictures) == 3 and len(files) > 30
    found = [link for link in links_of(core.readme) if link[1].startswith(ADDRESS)]
    tag = f"v{rlcli.__version__}"
    assert found == [
        (mark, f"{ADDRESS}/{'raw' if mark else 'blob'}/{tag}/{target}")
        for mark, target in files
    ]
    assert all((ROOT / target.partition("#")[0]).exists() for _, target in files)
    assert core.urls["Source"] == ADDRESS
    for name in ("Documentation", "Changelog"):
        path = core.urls[name].removeprefix(f"{ADDRESS}/blob/{tag}/")
        assert (ROOT / path).is_file()


def test_without_an_address_the_long_description_has_no_relative_link(monkeypatch):
    monkeypatch.delenv("RLCLI_REPOSITORY", raising=False)
    core = build_metadata()
    assert [url for _, url in links_of(core.readme) if "://" not in url] == []
    assert "The tutorial takes ten minutes" in core.readme and core.urls == {}


def test_an_installation_brings_no_nightly_and_no_rlax():
    """The packages that the wheel requires, with all that these require."""
    todo, found = [*build_metadata().dependencies], set()
    while todo:
        requirement = Requirement(todo.pop())
        name = canonicalize_name(requirement.name)
        extras = ["", *requirement.extras]
        if name not in found and (
            requirement.marker is None
            or any(requirement.marker.evaluate({"extra": extra}) for extra in extras)
        ):
            found.add(name)
            todo += metadata.distribution(name).requires or ()
    assert {"jax", "dm-haiku", "optax", "ml-dtypes"} < found
    assert not {"rlax", "distrax", "tensorflow-probability", "tfp-nightly"} & found
    for name in found:
        assert not Version(metadata.version(name)).is_prerelease, name


def test_the_container_gets_every_file_that_the_build_reads():
    """What the Dockerfile copies is there, sent to the builder, and enough."""
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    lines = re.findall(r"^COPY (?!--from)(.+) \S+$", text, re.MULTILINE)
    copied = {name for line in lines for name in line.split()}
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    assert {line[1:] for line in ignored if line.startswith("!")} == copied
    assert all((ROOT / name).exists() for name in copied)
    wheel = TOOLS["hatch"]["build"]["targets"]["wheel"]
    read = {*wheel["packages"], *wheel["force-include"], *PROJECT["license-files"]}
    assert {*read, "pyproject.toml", "hatch_build.py", "README.md"} <= copied


def test_the_workflow_tests_every_python_and_publishes_without_a_password():
    path = ROOT / ".github" / "workflows" / "package.yml"
    jobs = yaml.safe_load(path.read_text(encoding="utf-8"))["jobs"]
    matrix = jobs["test"]["strategy"]["matrix"]
    classifiers = [each.split(" :: ") for each in PROJECT["classifiers"]]
    pythons = [words[2] for words in classifiers if words[1:2] == ["Python"]]
    assert matrix["python"] == [each for each in pythons if "." in each]
    assert [name.partition("-")[0] for name in matrix["system"]] == ["ubuntu", "macos"]
    publish = jobs["publish"]
    assert publish["permissions"] == {"id-token": "write"}
    assert publish["needs"] == "test" and jobs["test"]["needs"] == "build"
    assert "refs/tags/v" in publish["if"]
    assert "secrets." not in path.read_text(encoding="utf-8")


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
    unpinned = {"ray", "jaxmarl"}  # not in CI: a cluster, and an older JAX
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
