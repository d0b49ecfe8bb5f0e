"""What cannot be exported is refused before JAX is imported."""

from pathlib import Path

import pytest

from rlcli.errors import RlcliError
from rlcli.evaluation.export import formats
from rlcli.evaluation.export.formats import check_export
from rlcli.registry import libraries

ZOO = "zoo/ppo_cartpole"


def test_the_default_file_of_a_policy_of_the_zoo_is_in_the_current_folder():
    assert check_export(ZOO, format="numpy") == Path.cwd() / "ppo_cartpole.py"


def test_the_default_file_of_another_policy_is_in_its_folder(tmp_path):
    (tmp_path / "a.pkl.lz4").touch()
    expected = tmp_path / "policy.py"
    assert check_export(tmp_path / "a.pkl.lz4", format="numpy") == expected


@pytest.mark.parametrize(
    ("format", "output", "message", "hint"),
    [
        ("torch", None, "no export format `torch`", "`stablehlo`, `onnx`, `numpy`"),
        ("numpy", "policy.onnx", "a file in the format `numpy`", "end with `.py`"),
        ("numpy", "my-policy.py", "`my-policy` is not a name of Python", "letters"),
        ("numpy", "class.py", "`class` is a keyword of Python", "another name"),
        ("numpy", "json.py", "`json` is another module's name", "another name"),
        ("numpy", "numpy.py", "`numpy` is another module's name", "another name"),
        ("numpy", "taken.py", "taken.npz` is a folder", "another file"),
        ("numpy", "missing.py/policy.py", "cannot", ""),
    ],
)
def test_files_that_cannot_be_written_are_refused(
    format, output, message, hint, folder
):
    (folder / "missing.py").touch()
    (folder / "taken.npz").mkdir()
    with pytest.raises(RlcliError, match=message) as caught:
        check_export(ZOO, format=format, output=output)
    assert hint in caught.value.hint


def test_a_missing_extra_is_named(monkeypatch):
    monkeypatch.setattr(libraries, "missing_modules", lambda extra: [extra])
    with pytest.raises(RlcliError, match="format `onnx` requires `onnx`"):
        check_export(ZOO, format="onnx")


@pytest.mark.parametrize("format", formats.FORMATS)
def test_every_format_says_how_to_load_its_file(format):
    result = {"format": format, "files": ["runs/x/policy.py"]}
    assert formats.load_hint(result)
