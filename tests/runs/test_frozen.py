"""The record of frozen seeds: its words, what it suggests, and how it is stored."""

import pytest

from rlcli.recipe import load_recipe
from rlcli.runs.frozen import (
    LONGEST,
    FrozenSeed,
    describe_frozen_seeds,
    dump_frozen_seeds,
    format_frozen_count,
    load_frozen_seeds,
    suggest_remedy,
)

DATA = {"environment": "CartPole-v1", "updater": "ppo"}
DIVERGED = FrozenSeed(12, "the loss is not finite")
SPOILT = FrozenSeed(30, "the loss is not finite: environment `x` returned …", True)
LARGE = "or set `normalize.reward` if rewards are large"


@pytest.mark.parametrize(
    ("count", "seeds", "said"),
    [
        (1, 1, "the seed is frozen"),
        (1, 3, "1 of 3 seeds is frozen"),
        (2, 5, "2 of 5 seeds are frozen"),
    ],
)
def test_how_many_seeds_are_frozen_is_said_in_words(count, seeds, said):
    assert format_frozen_count(count, seeds) == said


def test_the_reasons_of_all_frozen_seeds_are_named():
    frozen = {4: DIVERGED, 6: SPOILT}
    assert describe_frozen_seeds(frozen, 3) == (
        f"2 of 3 seeds are frozen: seed 4: {DIVERGED.reason}; seed 6: {SPOILT.reason}"
    )
    assert describe_frozen_seeds({}, 3) == ""


@pytest.mark.parametrize(
    ("sections", "remedy"),
    [
        (
            {},
            "lower `optimizer.learning_rate`, or set `optimizer.clip_norm` (for "
            f"example to 0.5), {LARGE}",
        ),
        (
            {"optimizer": {"name": "sgd", "clip_norm": 10}},
            f"lower `optimizer.learning_rate`, `optimizer.clip_norm`, {LARGE}",
        ),
        (
            {
                "optimizer": {"policy": {"name": "adam", "clip_norm": 1}},
                "normalize": {"reward": True},
            },
            "lower `optimizer.default.learning_rate`, `optimizer.policy.learning_rate`,"
            " `optimizer.policy.clip_norm`, or set `optimizer.default.clip_norm` (for "
            "example to 0.5)",
        ),
    ],
)
def test_what_to_try_depends_on_what_the_recipe_has(sections, remedy):
    assert suggest_remedy(load_recipe(DATA | sections), {4: DIVERGED}) == remedy


def test_what_to_try_is_about_the_environment_where_that_is_to_blame():
    recipe, mend = (
        load_recipe(DATA),
        "make environment `CartPole-v1` return finite numbers",
    )
    assert suggest_remedy(recipe, {4: SPOILT}) == mend
    both = suggest_remedy(recipe, {4: SPOILT, 5: DIVERGED})
    assert both.startswith(f"{mend}; lower `optimizer.learning_rate`")
    assert suggest_remedy(recipe, {}) == ""


def test_the_record_comes_back_from_plain_data():
    frozen = {4: DIVERGED, 6: SPOILT}
    assert load_frozen_seeds(dump_frozen_seeds(frozen), [4, 5, 6]) == frozen
    with pytest.raises(ValueError, match="by seed"):
        load_frozen_seeds(dump_frozen_seeds(frozen), [4, 5])


def test_a_reason_of_any_length_is_stored():
    long = {4: FrozenSeed(1, "x" * 3 * LONGEST)}
    assert load_frozen_seeds(dump_frozen_seeds(long), [4])[4].reason == "x" * LONGEST
