"""Faults: no failed call on a file of a run loses anything; `make faults` tries all."""

import random
import shutil

import pytest
from fault_injection import PythonInjector
from fault_scenarios import Campaign, sharing_a_program

SEED = 7
CASES = 4  # of each scenario


@pytest.fixture(scope="module")
def campaign(tmp_path_factory):
    with sharing_a_program():
        yield Campaign(PythonInjector(), tmp_path_factory.mktemp("faults"))


def test_the_undisturbed_run_is_the_same_every_time(campaign):
    assert campaign.check("train", "", 0) == "survived"


@pytest.mark.parametrize("scenario", ["train", "resume"])
def test_a_run_survives_or_ends_in_one_error_and_is_resumed(campaign, scenario):
    draw = random.Random(SEED)
    count = campaign.counts[scenario]
    assert count > 100
    for index, at in enumerate(sorted(draw.sample(range(1, count + 1), CASES))):
        fault = ("kill", "ENOSPC", "EIO", "short")[index % 4]
        campaign.check(scenario, fault, at)


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


def test_a_killed_creation_leaves_nothing_after_the_next_one(campaign, tmp_path):
    at = find_operation(campaign, tmp_path / "whole", "write /.run.json")
    outcome = campaign.interrupt("train", tmp_path / "run", "kill", at)
    assert outcome == "killed"
    assert list((tmp_path / "run").glob(".*.tmp"))
    assert campaign.interrupt("train", tmp_path / "run") == "survived"
    assert not list((tmp_path / "run").glob(".*.tmp"))
