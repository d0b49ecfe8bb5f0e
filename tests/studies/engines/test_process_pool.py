"""Processes of rlcli import nothing of the current folder, which may be foreign."""

import time

import pytest

from rlcli.studies.engines.process_pool import ProcessPool


@pytest.mark.parametrize("name", ["typer", "numbers", "yaml"])
def test_a_module_in_the_current_folder_is_not_that_of_a_process(
    name, tmp_path, monkeypatch
):
    (tmp_path / f"{name}.py").write_text("import os\nos._exit(77)\n")
    monkeypatch.chdir(tmp_path)
    pool = ProcessPool(1)
    pool.start("a", ["show", "ppo_cartpole"])
    while not (ends := pool.collect()):
        time.sleep(0.01)
    assert [(end.code, end.message) for end in ends] == [(0, "")]
