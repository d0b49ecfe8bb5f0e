"""Names of runs, and the overrides in the names of their folders."""

import shlex

import pytest

from rlcli.errors import RlcliError
from rlcli.runs.naming import (
    LONGEST_NAME,
    check_name,
    check_tags,
    describe_overrides,
    shorten_keys,
)


@pytest.mark.parametrize(
    ("sets", "expected"),
    [
        ([], ""),
        (["optimizer.learning_rate=5e-4"], "learning_rate=5e-4"),
        (["train.seed=3", "updater.name=ppo"], "seed=3,updater=ppo"),
        (["updater=ppo"], "updater=ppo"),
        (["a.x=1", "a.x=2"], "x=2"),  # the last one holds
        (["optimizer.q.b1=1", "optimizer.p.b1=2"], "q.b1=1,p.b1=2"),
        (["policy.name=greedy", "memory.policy=2"], "policy=greedy,memory.policy=2"),
        (["a.name=1", "b.a=2"], "a=1,b.a=2"),
        (["network.layers=[64, 64]"], "layers=64-64"),
        (["a.b={from: 1.0, to: -1}"], "b=from-1.0-to--1"),
        (["a.path=../../etc/x y"], "path=..-..-etc-x-y"),
        (["a.text=äöü\n"], "text="),
    ],
)
def test_overrides_are_short_and_readable(sets, expected):
    assert describe_overrides(sets) == expected


def test_overrides_that_do_not_fit_are_counted():
    sets = [f"part.an_option_{i}={'9' * 40}" for i in range(10)]
    text = describe_overrides(sets)
    assert len(text) <= LONGEST_NAME
    assert text.startswith(f"an_option_0={'9' * 24},")
    assert text.endswith(",+8")
    assert describe_overrides(["a." + "k" * 200 + "=1"]) == "+1"


def test_overrides_are_safe_in_shells_and_file_names():
    text = describe_overrides(["a.b=$(rm -rf /);'\"`|&", "c.d=*?[!]\\", "/e/f=~"])
    assert shlex.quote(text) == text
    assert "/" not in text


def test_keys_lose_their_section_unless_two_would_be_equal():
    assert shorten_keys(["x.name", "a.b.c", "train.steps"]) == ["x", "b.c", "steps"]
    assert shorten_keys(["a.x", "b.x", "c.y"]) == ["a.x", "b.x", "y"]


@pytest.mark.parametrize("name", ["", ".", "..", ".x", "-x", "a/b", "a b", "é", "a\n"])
def test_a_name_that_no_folder_should_have_is_refused(name):
    with pytest.raises(RlcliError, match="cannot be the name of a run"):
        check_name(name)
    with pytest.raises(RlcliError, match="cannot be the tag of a run"):
        check_tags([name])


def test_a_name_may_be_eighty_characters_long():
    assert check_name("x" * LONGEST_NAME)
    with pytest.raises(RlcliError, match="cannot be the name"):
        check_name("x" * (LONGEST_NAME + 1))


def test_tags_are_listed_once_in_their_order():
    assert check_tags(["b", "a", "b"]) == ["b", "a"]
    with pytest.raises(RlcliError, match="expected a list of tags"):
        check_tags("paper")
