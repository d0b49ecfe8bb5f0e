"""`rlcli export`: prints the files that it writes, or JSON."""

import functools
import json
from pathlib import Path

import pytest

import rlcli
from rlcli.cli import main
from rlcli.evaluation.export import formats

RESULT = {"format": "numpy", "files": ["a/policy.py", "a/policy.npz"], "bytes": 7}


@pytest.fixture
def calls(monkeypatch):
    calls = []

    @functools.wraps(rlcli.export)  # with its parameters
    def function(**keywords):
        calls.append(keywords)
        return RESULT

    monkeypatch.setitem(vars(rlcli), "export", function)
    monkeypatch.setattr(formats, "check_export", lambda path, **keywords: None)
    return calls


def test_every_option_reaches_the_function_of_its_name(calls):
    options = "--format numpy --output a/policy.py --best --seed 3 --trust"
    assert main(["export", "runs/x", *options.split()]) == 0
    keywords = {
        "run": Path("runs/x"),
        "format": "numpy",
        "output": Path("a/policy.py"),
        "best": True,
        "seed": 3,
        "trust": True,
    }
    assert calls == [keywords]


def test_it_prints_the_files_and_how_to_load_them(calls, capsys):
    assert main(["export", "runs/x", "--format", "numpy"]) == 0
    out, err = capsys.readouterr()
    assert out.splitlines() == RESULT["files"]
    assert err == "next: import policy; action, state = policy.act(observation)\n"


def test_json_is_the_result_of_the_function(calls, capsys):
    assert main(["export", "runs/x", "--format", "numpy", "--json"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out) == RESULT and err == ""
