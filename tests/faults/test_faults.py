"""Faults: no failed call on a file of a run loses anything; `make faults` tries all."""

import random
import shutil

import pytest
from fault_injection import PythonInjector
from fault_scenarios import Campaign, sharing_a_program


@pytest.fixture(scope="module")
def campaign(tmp_path_factory):
    with sharing_a_program() as programs:
        yield Campaign(PythonInjector(), tmp_path_factory.mktemp("faults"))
    assert len(programs) == 1


@pytest.mark.slow
def test_the_undisturbed_run_is_the_same_every_time(campaign):
    assert campaign.check("train", "", 0) == "survived"


@pytest.mark.parametrize(
    ("scenario", "faults"),
    [
        ("train", ["kill", "ENOSPC"]),
        ("resume", ["EIO", "kill"]),
        pytest.param("train", ["EIO", "short"], marks=pytest.mark.slow),
        pytest.param("resume", ["ENOSPC", "short"], marks=pytest.mark.slow),
    ],
)
def test_a_run_survives_or_ends_in_one_error_and_is_resumed(campaign, scenario, faults):
    draw = random.Random(f"{scenario} {faults}")
    count = campaign.counts[scenario]
    assert count > 100
    for fault in faults:
        campaign.check(scenario, fault, draw.randint(1, count))


def find_operation(campaign, folder, start):
    """The number of the first operation of a run that begins in this way."""
    assert campaign.interrupt("train", folder) == "survived"
    operations = campaign.injector.operations
    return next(i for i, name in enumerate(operations, 1) if name.startswith(start))


def test_a_run_that_cannot_be_created_leaves_no_folder_behind(campaign, tmp_path):
    at = find_operation(campaign, tmp_path / "whole", "create /.recipe.yaml")
    shutil.rmtree(tmp_path / "whole")
    assert campaign.interrupt("train", tmp_path / "run", "ENOSPC", at) == "one error"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_killed_creation_leaves_nothing_after_the_next_one(campaign, tmp_path):
    at = find_operation(campaign, tmp_path / "whole", "write /.run.json")
    outcome = campaign.interrupt("train", tmp_path / "run", "kill", at)
    assert outcome == "killed"
    assert list((tmp_path / "run").glob(".*.tmp"))
    assert campaign.interrupt("train", tmp_path / "run") == "survived"
    assert not list((tmp_path / "run").glob(".*.tmp"))
