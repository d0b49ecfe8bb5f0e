"""`rlcli new`, `rlcli schema` and `rlcli doctor` on the command line."""

import json

import pytest

import rlcli
from rlcli.cli import main

REPORT = {
    "ok": True,
    "problems": [],
    "rlcli": "0.1.0",
    "python": "3.11.7",
    "platform": "Linux",
    "packages": {"jax": "0.10.2", "optax": None},
    "untested": [
        {"name": "jax", "installed": "0.13", "tested": ["0.10", "0.12"], "is": "newer"}
    ],
    "devices": [{"platform": "cpu", "kind": "cpu", "count": 2}],
    "cores": {"machine": 4, "usable": 2},
    "extras": [
        {"name": "mp4", "purpose": "videos", "installed": False, "install": "pip i"}
    ],
    "plug_ins": [
        {"kind": "network", "name": "n", "source": "a plug-in", "error": "no module"}
    ],
    "terminal": {"term": "", "columns": 80, "lines": 24, "panel": False},
    "folders": [{"purpose": "runs", "path": "/a/runs", "error": ""}],
}


@pytest.fixture
def replace(monkeypatch):
    """Replaces a function of the package, and records its calls."""

    def place(name, result):
        calls = []

        def function(*positional, **keywords):
            calls.append((positional, keywords))
            if isinstance(result, Exception):
                raise result
            return result

        monkeypatch.setitem(vars(rlcli), name, function)
        return calls

    return place


def test_new_prints_the_file_and_the_next_command(replace, capsys):
    calls = replace("new", "my file.yaml")
    assert main(["new", "dqn_cartpole", "--output", "my file.yaml"]) == 0
    (positional, keywords) = calls[0]
    assert positional == ("dqn_cartpole",)
    assert {key: str(value) for key, value in keywords.items()} == {
        "environment": "None",
        "output": "my file.yaml",
    }
    out, err = capsys.readouterr()
    assert out == "my file.yaml\n"
    assert err == "next: rlcli train 'my file.yaml'\n"


def test_new_with_another_environment_checks_the_recipe(replace, capsys):
    replace("new", "a.yaml")
    checked = replace("check", rlcli.RlcliError("no such luck", "try another"))
    assert main(["new", "dqn_cartpole", "--environment", "Acrobot-v1"]) == 0
    assert checked == [((["a.yaml"],), {})]
    err = capsys.readouterr().err
    warning = "warning: the recipe does not work with this environment yet"
    assert err.startswith(f"{warning}: no such luck\n\nhint:")
    assert err.endswith("next: rlcli train a.yaml\n")


def test_schema_goes_to_stdout_or_to_a_file(replace, capsys, tmp_path):
    calls = replace("schema", {"title": "rlcli recipe"})
    assert main(["schema"]) == 0
    assert json.loads(capsys.readouterr().out) == {"title": "rlcli recipe"}
    assert main(["schema", "--output", str(tmp_path / "s.json")]) == 0
    assert capsys.readouterr().out == f"{tmp_path / 's.json'}\n"
    assert [keywords["output"] for _, keywords in calls] == [None, tmp_path / "s.json"]


def test_doctor_prints_every_topic(replace, capsys):
    replace("doctor", REPORT)
    assert main(["doctor"]) == 0
    out = capsys.readouterr().out
    for line in (
        "rlcli 0.1.0, Python 3.11.7, Linux",
        "  optax  missing",
        "older or newer than tested",
        "  jax  0.13  newer than 0.10, 0.12",
        "  2 cpu  cpu",
        "  usable  2 of 4",
        "  mp4  missing  videos: pip i",
        "  network n  broken: no module",
        "  TERM    not set",
        "  runs  writable  /a/runs",
        "no problems",
    ):
        assert line in out.splitlines()


def test_doctor_as_json_is_the_report(replace, capsys):
    replace("doctor", REPORT)
    assert main(["doctor", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == REPORT


def test_doctor_exits_with_an_error_if_something_required_is_broken(replace, capsys):
    problems = [
        {"message": "package `jax` is missing", "hint": "install it", "required": True},
        {"message": "a plug-in", "hint": "update it", "required": False},
    ]
    replace("doctor", {**REPORT, "ok": False, "problems": problems})
    for arguments in (["doctor"], ["doctor", "--json"]):
        assert main(arguments) == 1
    out = capsys.readouterr().out
    assert "  error: package `jax` is missing\n    hint: install it\n" in out
    assert "  warning: a plug-in\n    hint: update it\n" in out
