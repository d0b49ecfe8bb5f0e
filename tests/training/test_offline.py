"""Runs with a data set: exact resume, and no data in checkpoints."""

import pytest
from data_sets import bandit_data, write_data

import rlcli
from rlcli.errors import RlcliError
from rlcli.runs import checkpoint

RECIPE = """\
environment: probe-reward-depends-on-action
updater: iql
network: linear
replay: {path: data.npz, batch_size: 16}
train: {steps: 200, seeds: 2, checkpoint: {every: 100}}
"""
PREFILLED = """\
environment: probe-reward-depends-on-action
updater: dqn
network: linear
replay: {prefill: data.npz, batch_size: 16}
train: {steps: 200, start: 0, checkpoint: {every: 100}}
"""


@pytest.fixture(
    params=[
        pytest.param(RECIPE, id="offline"),
        pytest.param(PREFILLED, id="prefilled", marks=pytest.mark.slow),
    ]
)
def recipe(request, tmp_path):
    write_data(tmp_path / "data.npz", bandit_data(0.5))
    path = tmp_path / "mine.yaml"
    path.write_text(request.param, encoding="utf-8")
    return path


@pytest.mark.slow
def test_a_resumed_run_ends_as_an_uninterrupted_one(recipe, tmp_path):
    once = rlcli.train(recipe, run=tmp_path / "once", quiet=True)
    sets = ["train.steps=100"]
    twice = rlcli.train(recipe, set=sets, run=tmp_path / "twice", quiet=True)
    rlcli.resume(twice, set=["train.steps=200"], quiet=True)
    name = "checkpoints/000000200.pkl.lz4"
    first, second = (checkpoint.read(run / name)["progress"] for run in (once, twice))
    assert first.keys() == second.keys()
    assert all(first[key].tobytes() == second[key].tobytes() for key in first)
    assert not any(key.startswith("data") for key in first)
    write_data(tmp_path / "data.npz", bandit_data(0.4))
    with pytest.raises(RlcliError, match=r"mine|data\.npz` has changed"):
        rlcli.resume(twice, set=["train.steps=300"], quiet=True)
