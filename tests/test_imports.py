"""Imports: they run downward, over the floors of `docs/design.md`, without cycles."""

import ast
from collections import defaultdict
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "rlcli"
FLOORS = (  # from the bottom up; a package may import from the floors below its own
    ("quoting",),
    ("types", "errors"),
    ("xla",),
    ("registry",),
    ("spaces", "schedules"),
    ("distributions",),
    ("networks",),
    ("preprocessing",),
    ("environments", "policies", "tracers", "replays", "trackers"),
    ("updaters",),
    ("loop",),
    ("recipe",),
    ("assembly",),
    ("runs",),
    ("evaluation", "monitor"),
    ("training", "results"),
    ("utils", "studies"),
    ("",),
    ("cli",),
    ("__main__",),
)
FLOOR = {package: floor for floor, names in enumerate(FLOORS) for package in names}
MOST_MODULES = 4  # public modules at the top of rlcli, beside the packages
MOST_PACKAGES = 23
MAY_REPEAT = {"__init__", "contract"}  # a contract: the record of a kind of parts
MOST_FLOORS = {"rlcli.training": 7}  # modules in the longest chain of imports inside


def _name(path):
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {_name(path): path for path in sorted(PACKAGE.rglob("*.py"))}


def _imports(node):
    """The modules that a tree imports, within functions too; not for type checkers."""
    if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
        return
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    if isinstance(node, ast.ImportFrom):
        assert node.level == 0, "imports are absolute"
        for alias in node.names:
            full = f"{node.module}.{alias.name}"
            yield full if full in MODULES else node.module
    for child in ast.iter_child_nodes(node):
        yield from _imports(child)


def _graph():
    graph = {}
    for name, path in MODULES.items():
        found = set(_imports(ast.parse(path.read_text(encoding="utf-8"))))
        graph[name] = {each for each in found if each in MODULES}
    return graph


def _package(module):
    """The first name below `rlcli`; "" for rlcli itself."""
    return module.split(".")[1] if "." in module else ""


def test_every_module_and_package_has_a_floor():
    assert {_package(name) for name in MODULES} <= set(FLOOR)


@pytest.mark.slow
def test_imports_run_downward():
    upward = [
        f"{module} imports {other}"
        for module, others in _graph().items()
        for other in others
        if _package(module) != _package(other)
        and FLOOR[_package(module)] <= FLOOR[_package(other)]
    ]
    assert upward == []


@pytest.mark.slow
def test_haiku_is_an_affair_of_the_networks():
    importers = {
        _package(module)
        for module, path in MODULES.items()
        for each in _imports(ast.parse(path.read_text(encoding="utf-8")))
        if each.partition(".")[0] == "haiku"
    }
    assert importers == {"networks"}


def test_no_module_imports_itself_over_others():
    graph, left = _graph(), defaultdict(set)
    for module, others in graph.items():
        left[module] = others - {module}
    while free := [module for module in left if not left[module] & left.keys()]:
        for module in free:
            del left[module]
    assert sorted(left) == []


@pytest.mark.parametrize(("package", "most"), MOST_FLOORS.items())
@pytest.mark.slow
def test_a_chain_of_imports_inside_a_package_is_short(package, most):
    inside = {
        module: {other for other in others if other.startswith(f"{package}.")}
        for module, others in _graph().items()
        if module.startswith(f"{package}.")
    }
    chains: dict[str, list[str]] = {}

    def chain(module):
        if module not in chains:
            below = max(map(chain, inside[module]), key=len, default=[])
            chains[module] = [module, *below]
        return chains[module]

    longest = max(map(chain, inside), key=len)
    assert len(longest) <= most, " imports ".join(longest)


def test_a_file_name_stands_once():
    """But a command is named as its function, and a suite names its environments."""
    places = defaultdict(list)
    for path in MODULES.values():
        folder = path.relative_to(PACKAGE).parent.as_posix()
        if folder != "cli" and not folder.startswith("environments/native/"):
            places[path.stem].append(folder)
    repeated = {name: each for name, each in places.items() if len(each) > 1}
    assert sorted(repeated.keys() - MAY_REPEAT) == []


def test_the_top_of_the_package_is_short():
    assert len(list(PACKAGE.glob("[a-z]*.py"))) <= MOST_MODULES
    assert len(list(PACKAGE.glob("*/__init__.py"))) <= MOST_PACKAGES


@pytest.mark.parametrize(
    "package", [n for n, path in MODULES.items() if path.name == "__init__.py"][1:]
)
def test_a_package_says_what_belongs_there_and_what_it_may_import(package):
    text = ast.get_docstring(ast.parse(MODULES[package].read_text(encoding="utf-8")))
    assert text is not None
    assert "\nBelongs here: " in text
    assert "\nMay import: " in text
