"""The types of rlcli, as the type checkers of users see them."""

import re
import sys
from pathlib import Path

import pytest
import typed_scripts

from rlcli import types


@pytest.mark.pages
def test_scripts_of_the_guides_and_functions_annotated_as_in_jax_have_no_type_error():
    assert typed_scripts.find_errors(sys.executable) == ""


@pytest.mark.pages
def test_the_check_of_scripts_finds_a_wrong_type(tmp_path, monkeypatch):
    (tmp_path / "docs" / "guides").mkdir(parents=True)
    guide = "```python\nfrom rlcli.types import key_as_noise\n\nkey_as_noise(1)\n```\n"
    (tmp_path / "docs" / "guides" / "wrong.md").write_text(guide)
    monkeypatch.setattr(typed_scripts, "ROOT", tmp_path)
    assert re.search(
        r"wrong/block0.py.*reportArgumentType",
        typed_scripts.find_errors(sys.executable),
        re.S,
    )


def test_the_package_says_that_it_has_types():
    import rlcli

    assert (Path(rlcli.__file__).parent / "py.typed").is_file()


RECORDS = (
    "Core",
    "Environment",
    "Host",
    "Policy",
    "Tracer",
    "Replay",
    "Updater",
    "Agent",
)


@pytest.mark.parametrize("name", RECORDS)
def test_a_contract_has_at_most_seven_functions_and_its_traits_are_data(name):
    def functions(record) -> list[str]:
        annotations = record.__annotations__
        return [each for each in annotations if "Callable" in str(annotations[each])]

    record = getattr(types, name)
    assert 1 <= len(functions(record)) <= 7
    assert "draw" in functions(types.Core)  # the annotations are read
    if "traits" in record._fields:
        assert not functions(getattr(types, f"{name}Traits"))


def test_no_field_belongs_to_some_environments_only():
    """A core has no batch, a vector no resources: each record has what it needs."""
    core, vector = {*types.Core._fields}, {*types.Environment._fields}
    assert core - vector == {"costly_reset", "agents"}
    assert vector - core == {"num_envs", "render_final", "host", "info"}
