"""Optional libraries: what an error says about a missing one."""

import email
import importlib.metadata
import sys
import tomllib
from pathlib import Path

import pytest
from hatchling.metadata.core import ProjectMetadata
from hatchling.metadata.spec import construct_metadata_file_2_4
from hatchling.plugin.manager import PluginManager
from packaging.requirements import Requirement
from wording import mentions

from rlcli.errors import RlcliError
from rlcli.registry import libraries

PROJECT = Path(__file__).parents[2] / "pyproject.toml"
EXTRAS = tomllib.loads(PROJECT.read_text())["project"]["optional-dependencies"]


@pytest.fixture(scope="module")
def metadata():
    """The metadata of the wheel, as hatchling writes them."""
    project = ProjectMetadata(str(PROJECT.parent), PluginManager())
    return email.message_from_string(construct_metadata_file_2_4(project))


def test_the_table_has_the_extras_of_the_project_in_their_order():
    assert [*libraries.EXTRAS] == [
        name for name in EXTRAS if name not in ("dev", "docs")
    ]


@pytest.mark.parametrize("extra", libraries.EXTRAS)
def test_the_command_installs_the_requirements_of_the_extra(
    extra, metadata, monkeypatch
):
    entries = metadata.get_all("Requires-Dist")
    monkeypatch.setattr(importlib.metadata, "requires", lambda name: entries)
    command, *requirements = libraries.install_command(extra).split(' "')
    assert command == "pip install"
    found = {Requirement(name.rstrip('"')) for name in requirements}
    assert found == {Requirement(name) for name in EXTRAS[extra]}


def test_the_command_for_another_library_names_it():
    assert libraries.install_command("dm_control") == 'pip install "dm_control"'


def test_without_metadata_the_command_names_the_extra_of_a_checkout(monkeypatch):
    def fail(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "requires", fail)
    assert libraries.install_command("mp4") == 'pip install ".[mp4]"'


def test_missing_modules_are_found_without_importing_them(monkeypatch):
    monkeypatch.setitem(sys.modules, "ale_py", None)
    monkeypatch.setitem(sys.modules, "cv2", None)
    assert libraries.missing_modules("atari") == ["ale_py", "cv2"]
    with pytest.raises(RlcliError) as error:
        libraries.require_extra("atari", "this")
    assert mentions(error.value.message, "`ale_py`", "`cv2`", "not installed")
    assert error.value.hint == libraries.install_command("atari")
