"""The table of ids is bsuite's own."""

import bsuite
import numpy as np
import pytest
from bsuite import sweep

from rlcli import registry
from rlcli.errors import RlcliError
from rlcli.studies.bsuite.experiments import (
    EXPERIMENTS,
    TAGS,
    group_ids,
    select_ids,
)

IDS = [(name, index) for name, index in select_ids([]) if not name.startswith("mnist")]


def test_ids_settings_episodes_and_tags_are_those_of_bsuite():
    ids = {f"{name}/{index}": EXPERIMENTS[name] for name, index in select_ids([])}
    assert ids.keys() == {*sweep.SWEEP}
    for id, experiment in ids.items():
        assert experiment.settings[int(id.partition("/")[2])] == sweep.SETTINGS[id]
        assert experiment.environment.episodes == sweep.EPISODES[id]
    assert sorted(sweep.TAGS) == list(TAGS)
    for tag, tagged in sweep.TAGS.items():
        assert {id for id, each in ids.items() if tag in each.tags} == {*tagged}


def make(name, index):
    options = EXPERIMENTS[name].options(index)
    wrappers = options.pop("wrappers")
    return registry.find("environment", options.pop("name")).factory(
        **options
    ), wrappers


@pytest.mark.parametrize("name", dict.fromkeys(name for name, _ in IDS))
def test_the_environments_of_an_experiment_have_its_spaces_and_wrappers(name):
    for index in (0, len(EXPERIMENTS[name].settings) - 1):
        theirs = bsuite.load_from_id(f"{name}/{index}")
        core, wrappers = make(name, index)
        assert core.observation.shape == theirs.observation_spec().shape
        assert core.action.n == theirs.action_spec().num_values
        noise = {"name": "reward_noise", "scale": getattr(theirs, "_noise_scale", None)}
        scale = {
            "name": "scale_reward",
            "factor": getattr(theirs, "_reward_scale", None),
        }
        assert (noise in wrappers) == name.endswith("_noise")
        assert (scale in wrappers) == name.endswith("_scale")


@pytest.mark.parametrize(
    "id", ["catch/0", "deep_sea/3", "memory_len/20", "umbrella_length/5", "cartpole/0"]
)
def test_no_episode_is_longer_than_the_table_says(id):
    env, steps = bsuite.load_from_id(id), 0
    timestep = env.reset()
    while not timestep.last():
        if id.startswith("cartpole"):  # balance by a simple rule
            sine, angular = timestep.observation[0, 2], timestep.observation[0, 4]
            action = int(np.sign(3 * sine + angular)) + 1
        else:
            action = 0
        timestep = env.step(action)
        steps += 1
    name, _, index = id.partition("/")
    assert steps == EXPERIMENTS[name].max_length(int(index))


@pytest.mark.parametrize(
    ("words", "count"),
    [([], 468), (["memory"], 40), (["catch", "catch/3"], 20), (["bandit_noise/7"], 1)],
)
def test_words_select_ids_experiments_and_tags(words, count):
    assert len(select_ids(words)) == count
    assert set(select_ids(words)) <= set(select_ids([]))


@pytest.mark.parametrize(
    ("word", "hint"),
    [
        ("catch/20", "`catch/0` to `catch/19`"),
        ("catch/x", "`catch/0` to `catch/19`"),
        ("cach", "did you mean `catch`?"),
    ],
)
def test_an_unknown_word_is_an_error_with_a_hint(word, hint):
    with pytest.raises(RlcliError, match="bsuite") as caught:
        select_ids([word])
    assert hint in caught.value.hint


def test_ids_with_equal_settings_are_the_seeds_of_one_run():
    noise = group_ids(select_ids(["catch_noise"]))
    assert [(group.indices, group.seed) for group in noise] == [
        ((4 * i, 4 * i + 1, 4 * i + 2, 4 * i + 3), 0) for i in range(5)
    ]
    others = group_ids(select_ids(["deep_sea/1", "deep_sea/2"]))
    assert [group.indices for group in others] == [(1,), (2,)]
    parts = group_ids(select_ids(["catch/1", "catch/2", "catch/5"]))
    assert [(group.indices, group.seed) for group in parts] == [((1, 2), 1), ((5,), 5)]
    assert len(group_ids(select_ids(["bandit"]))) == 20
