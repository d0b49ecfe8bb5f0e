"""The types of rlcli, as the type checkers of users see them."""

import re
import sys
from pathlib import Path

import pytest
import typed_scripts


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
