"""The benchmark of the zoo: files are made once, and can be measured again."""

import json
import shutil
import sys

import pytest

from benchmarks.zoo import __main__ as zoo
from rlcli.runs.run_folder import SUFFIX


@pytest.mark.parametrize(("options", "mean"), [([], 1.0), (["--measure"], 3.0)])
def test_a_file_is_measured_again_only_if_asked_and_keeps_its_command(
    options, mean, tmp_path, monkeypatch
):
    name, returns = "ppo_cartpole", [2.0, 4.0]
    shutil.copy(zoo.ZOO / f"{name}{SUFFIX}", tmp_path)
    stored = {"command": "the command", "mean": 1.0, "ci95": [1.0, 1.0]}
    stored |= {"bytes": 1, "sha256": "0"}
    (tmp_path / "results.json").write_text(json.dumps({name: stored}))
    for place, path in (("ZOO", ""), ("RESULTS", "results.json"), ("PAGE", "zoo.md")):
        monkeypatch.setattr(zoo, place, tmp_path / path)
    monkeypatch.setattr(
        zoo, "evaluate", lambda path, seed: [{"mean": 3.0, "returns": returns}]
    )
    monkeypatch.setattr(sys, "argv", ["zoo", name, *options])
    zoo.main()
    result = json.loads((tmp_path / "results.json").read_text())[name]
    assert (result["command"], result["mean"]) == ("the command", mean)
