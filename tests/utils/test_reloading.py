"""Reloading: modules that record the order in which they are imported."""

import enum
import importlib
import sys

import pytest

from rlcli.utils import reload_recursive

FILES = {
    "shelf/__init__.py": "from shelf import upper\nfrom shelf.upper import VALUE",
    "shelf/upper.py": "import beside\nfrom shelf.lower import value\nVALUE = value()",
    "shelf/lower.py": "import json, math\nimport shelf\ndef value():\n    return 1",
    "beside.py": "NUMBER = 1",
}
NOTE = "\nimport builtins\nbuiltins.read_order.append(__name__)\n"


@pytest.fixture
def read(tmp_path, monkeypatch):
    """An imported package `shelf`; returns the list of later imports."""
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.setattr("builtins.read_order", [], raising=False)
    for name, text in FILES.items():
        file = tmp_path / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(text + NOTE)
    monkeypatch.syspath_prepend(tmp_path)
    importlib.import_module("shelf")
    import builtins

    builtins.read_order.clear()
    yield builtins.read_order
    for name in [*sys.modules]:
        if name.partition(".")[0] in ("shelf", "beside"):
            del sys.modules[name]


@pytest.mark.parametrize("given", ["module", "name"])
def test_a_package_is_reloaded_in_the_order_of_dependency(read, given):
    reload_recursive("shelf" if given == "name" else sys.modules["shelf"])
    assert read == ["shelf.lower", "shelf.upper", "shelf"]


def test_a_change_of_a_dependency_is_visible_in_the_package(read, tmp_path):
    lower = tmp_path / "shelf" / "lower.py"
    lower.write_text("def value():\n    return 2" + NOTE)
    assert sys.modules["shelf"].VALUE == 1
    reload_recursive("shelf")
    assert sys.modules["shelf"].VALUE == 2


def test_external_modules_are_reloaded_on_request(read):
    reload_recursive("shelf", reload_external_modules=True)
    assert sorted(read) == ["beside", "shelf", "shelf.lower", "shelf.upper"]
    assert read[2:] == ["shelf.upper", "shelf"]  # after both that it needs


def test_the_standard_library_is_not_reloaded(read):
    class Color(enum.Enum):
        RED = 1

    before = sys.modules["json"].dumps
    reload_recursive("shelf", reload_external_modules=True)
    assert sys.modules["json"].dumps is before
    assert Color(1) is Color.RED  # from Python 3.12 on, fails once `enum` is reloaded
