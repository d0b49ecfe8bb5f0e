"""Return by value: episodes, grouped by the numbers of their environment."""

import numpy as np
import pytest

from rlcli.evaluation.evaluate import return_by_value
from rlcli.schedules import RandomNumber

RNG = np.random.default_rng(0)
RETURNS = RNG.normal(size=(3, 200))


def test_a_range_has_five_groups_of_equal_probability():
    source = RandomNumber("log_uniform", (0.01, 1_000.0))
    values = np.float32(10.0 ** RNG.uniform(-2, 3, RETURNS.shape))
    groups = return_by_value(RETURNS, {"mass": values}, {"mass": source})["mass"]
    assert [round(np.log10(each["from"]), 4) for each in groups] == [-2, -1, 0, 1, 2]
    assert sum(each["episodes"] for each in groups) == RETURNS.size
    for power, group in zip(range(-2, 3), groups, strict=True):
        inside = (values >= 10.0**power) & (values < 10.0 ** (power + 1))
        assert group["episodes"] == inside.sum()
        means = [row[mask].mean() for row, mask in zip(RETURNS, inside, strict=True)]
        assert group["mean"] == pytest.approx(np.mean(means))
        assert min(means) <= group["ci95"][0] <= group["ci95"][1] <= max(means)


@pytest.mark.parametrize(
    "source", [RandomNumber("choice", (2.0, 0.1, 1.0)), [0.1, 1.0, 2.0]]
)
def test_each_of_several_values_is_a_group(source):
    values = RNG.choice(np.float32([0.1, 1, 2]), RETURNS.shape)
    groups = return_by_value(RETURNS, {"a": values}, {"a": source})["a"]
    assert [(each["from"], each["to"]) for each in groups] == [
        (value, value) for value in (0.1, 1.0, 2.0)
    ]
    for group, value in zip(groups, np.float32([0.1, 1, 2]), strict=True):
        assert group["episodes"] == np.sum(values == value)


def test_a_seed_without_an_episode_in_a_group_has_no_part_in_it():
    values = np.float32([[0.1, 0.9], [0.9, 0.9]])
    source = RandomNumber("uniform", (0.0, 1.0))
    returns = np.array([[1.0, 2.0], [3.0, 5.0]])
    low, high = return_by_value(returns, {"a": values}, {"a": source})["a"]
    assert (low["mean"], low["episodes"], low["ci95"]) == (1.0, 1, None)
    assert (high["mean"], high["episodes"]) == (3.0, 3)


def test_levels_are_not_grouped():
    levels = RNG.integers(0, 100, RETURNS.shape)
    assert return_by_value(RETURNS, {"level": levels}, {}) == {}
