"""Old import paths: what documentation named before a module moved stays importable."""

import importlib
import subprocess
import sys

import pytest

import rlcli
from rlcli._old_paths import MOVED


@pytest.mark.parametrize(("old", "new"), MOVED.items())
def test_an_old_path_imports_the_very_module(old, new):
    module = importlib.import_module(new)
    assert importlib.import_module(old) is module
    assert module.__name__ == new


def test_old_paths_are_imported_in_a_fresh_process():
    program = (
        "from rlcli.checkpoint import flatten_tree\n"
        "import rlcli.datasets.names, rlcli.replays.datasets.names\n"
        "assert rlcli.datasets.names is rlcli.replays.datasets.names\n"
        "print(rlcli.checkpoint.__name__, rlcli.datasets.names.__name__)"
    )
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert result.stdout.split() == [
        "rlcli.runs.checkpoint",
        "rlcli.replays.datasets.names",
    ]


def test_an_old_submodule_is_an_attribute_of_the_package():
    from rlcli.runs import checkpoint

    assert rlcli.checkpoint is checkpoint


def test_a_module_that_never_was_is_not_found():
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("rlcli.agent")
