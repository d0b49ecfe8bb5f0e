"""Processes of rlcli import nothing of the current folder, which may be foreign."""

import time
from pathlib import Path

import pytest

from rlcli.studies.engines.jobs import Job
from rlcli.studies.engines.local_engine import LocalEngine


class Show(Job):
    """A job that only shows a recipe."""

    @property
    def arguments(self):
        return ["show", "ppo_cartpole"]


@pytest.mark.parametrize("name", ["typer", "numbers", "yaml"])
@pytest.mark.slow
def test_a_module_in_the_current_folder_is_not_that_of_a_process(
    name, tmp_path, monkeypatch
):
    (tmp_path / f"{name}.py").write_text("import os\nos._exit(77)\n")
    monkeypatch.chdir(tmp_path)
    engine = LocalEngine(1)
    engine.start(Show(Path("study"), ("a",)))
    while not (ends := engine.collect()):
        time.sleep(0.01)
    assert [(end.code, end.message) for end in ends] == [(0, "")]
