"""Signs of observations and targets; the others are in the guide."""

import dataclasses

import numpy as np
import pytest

from rlcli.evaluation.inspection.inspect import describe_array
from rlcli.evaluation.inspection.inspection_records import Inspection
from rlcli.evaluation.inspection.signs import find_signs

ROWS = np.arange(8.0).reshape(1, 8)


def signs(**arrays):
    """The signs of a batch `[1, 8]` with these arrays, without those of its reward."""
    usual = {"reward": ROWS, "discount": ROWS, "last": ROWS, "weight": ROWS + 1}
    batch = [
        describe_array(name, array, np.ones((1, 8), bool))
        for name, array in {**usual, **arrays}.items()
    ]
    fields = dict.fromkeys(each.name for each in dataclasses.fields(Inspection))
    lists = {"layers": [], "activations": [], "actions": []}
    return find_signs(Inspection(**fields | lists | {"batch": batch}))


@pytest.mark.parametrize(
    ("observations", "expected"),
    [
        ({"obs": ROWS}, []),
        (
            {"obs/goal": ROWS * 0 + 3},
            ["`obs/goal` is the same in every row of the batc"],
        ),
        (
            {"obs": ROWS[..., None] * 0 + [1, 2]},
            ["`obs` is the same in every row of t"],
        ),
        (
            {"obs": 1e3 * ROWS},
            ["`obs` has mean 3,500 and standard deviation 2,291: sca"],
        ),
        ({"obs/action_mask": ROWS * 0 + 1}, []),
        ({"obs": ROWS[..., None, None, None] * 30 * np.ones((2, 2, 3))}, []),
        ({"next_obs": 1e3 * ROWS}, []),
    ],
)
def test_observations_that_are_constant_or_large_are_signs(observations, expected):
    found = signs(**observations)
    assert len(found) == len(expected)
    assert all(map(str.startswith, found, expected))


@pytest.mark.parametrize(
    ("name", "estimate", "target", "is_sign"),
    [
        ("q", ROWS, 10 * ROWS, False),
        ("q", ROWS, 11 * ROWS, True),
        ("q", -ROWS, -11 * ROWS, True),
        ("value", 0 * ROWS, ROWS, False),  # a new network, and rewards near 1
        ("value", 0 * ROWS, 2 * ROWS, True),
        ("other", 0 * ROWS, 2 * ROWS, False),
    ],
)
def test_targets_ten_times_as_large_as_estimates_are_a_sign(
    name, estimate, target, is_sign
):
    found = signs(**{name: estimate, "target": target})
    assert len(found) == is_sign
    assert all("`target` is " in each and f"but `{name}` is " in each for each in found)
