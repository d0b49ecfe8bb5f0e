"""Differences of two recipes."""

import pytest

from rlcli.errors import RlcliError
from rlcli.runs import checkpoint
from rlcli.runs.differences import (
    continue_differences,
    differing_arrays,
    find_differences,
)
from rlcli.runs.run_folder import Run


def test_the_differing_values_are_listed_by_dotted_key():
    first = {"a": {"b": 1, "c": {"d": 2}}, "e": [1, 2], "same": {"x": None}}
    second = {"a": {"b": 1, "c": {"d": 3}}, "e": [1], "same": {"x": None}, "new": 4}
    assert find_differences(first, second) == {
        "a.c.d": (2, 3),
        "e": ([1, 2], [1]),
        "new": (None, 4),
    }
    assert find_differences(first, first) == {}


def test_a_value_that_becomes_a_mapping_differs_as_a_whole():
    schedule = {"from": 1.0, "to": 0.0}
    assert find_differences({"a": {"b": 1}}, {"a": {"b": schedule}}) == {
        "a.b": (1, schedule)
    }


def test_later_differences_continue_earlier_ones():
    before = {"train.steps": (10, 20), "a.b": (1, 2)}
    later = {"train.steps": (20, 30), "a.b": (2, 1), "c": (None, 5)}
    assert continue_differences(before, later) == {
        "train.steps": (10, 30),
        "c": (None, 5),
    }


def test_checkpoints_of_another_form_are_refused_and_not_compared(tmp_path):
    for name, progress in (("a", {"iteration": 3}), ("b", [])):
        (tmp_path / name / "checkpoints").mkdir(parents=True)
        content = {"kind": "checkpoint", "progress": progress}
        checkpoint.write(Run(tmp_path / name).checkpoint(5), content)
    with pytest.raises(RlcliError, match="neither a checkpoint nor a policy"):
        differing_arrays(Run(tmp_path / "a"), Run(tmp_path / "b"), 5)
