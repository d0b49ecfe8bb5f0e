"""Environments that fail: `train.on_error` ends the run, or restarts them."""

import functools
import json

import pytest
from folders import read_rows

import rlcli
from rlcli.assembly import build
from rlcli.errors import RlcliError
from rlcli.recipe import load_recipe

DATA = {
    "environment": {"name": "fragile:Fragile", "num_envs": 2},
    "network": {"name": "linear"},
    "updater": "q_learning",
    "train": {
        "steps": 200,
        "seeds": 2,
        "log": {"every": 20},
        "checkpoint": {"every": 4},
        "on_error": "restart",
    },
}


@pytest.fixture(scope="module")
def whole_run(tmp_path_factory):
    """The folder of a run in which environments have failed."""

    @functools.cache
    def run():
        folder = tmp_path_factory.mktemp("restarts") / "whole"
        return rlcli.train(DATA, run=folder, quiet=True)

    return run


@pytest.mark.slow
def test_a_run_whose_environments_fail_reaches_its_end(whole_run):
    folder = whole_run()
    assert json.loads((folder / "run.json").read_text())["status"] == "finished"
    for seed in (0, 1):
        counts = [
            row.get("restarts", 0) for row in read_rows(folder) if row["seed"] == seed
        ]
        assert counts == sorted(counts) and counts[0] < counts[-1]
    log = (folder / "log.txt").read_text()
    assert "environment `fragile:Fragile` (number " in log
    assert ", step 3) failed in `step`: ZeroDivisionError: by nothing" in log


@pytest.mark.slow
def test_a_run_that_fails_is_continued_with_restarts_to_the_same_result(
    whole_run, tmp_path
):
    stop = {**DATA, "train": {**DATA["train"], "on_error": "stop"}}
    with pytest.raises(RlcliError, match=r"of seed [01], episode \d+, step 3\) failed"):
        rlcli.train(stop, run=tmp_path / "run", quiet=True)
    info = json.loads((tmp_path / "run" / "run.json").read_text())
    assert info["status"] == "failed" and "step 3" in info["reason"]
    rlcli.resume(
        tmp_path / "run", set=["train.on_error=restart"], quiet=True, trust=True
    )
    assert read_rows(tmp_path / "run") == read_rows(whole_run())


def test_a_compiled_environment_cannot_be_restarted():
    data = {"environment": "CartPole-v1", "updater": "q_learning"}
    recipe = load_recipe({**data, "train": {"on_error": "restart"}})
    with pytest.raises(RlcliError, match="`on_error: restart` has no effect"):
        build(recipe)
