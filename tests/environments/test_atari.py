"""Atari: the standard preprocessing, beside Gymnasium's wrappers by hand."""

from __future__ import annotations

import sys

import gymnasium
import numpy as np
import pytest
from gymnasium.envs.registration import EnvSpec

from rlcli.environments import atari
from rlcli.environments.copies import seed_of
from rlcli.environments.gymnasium import gymnasium_adapter
from rlcli.errors import RlcliError

GAME = EnvSpec("ALE/Made-v5", "nowhere:Made")


def prepared(changes, steps=None):
    options = {}
    spec = atari.preprocessed(GAME, changes, options, steps)
    return {each.name: each.kwargs for each in spec.additional_wrappers}, options


@pytest.fixture
def cv2(monkeypatch):
    monkeypatch.setitem(sys.modules, "cv2", sys)  # only asked for


def test_the_standard_is_that_of_the_papers(cv2):
    wrappers, options = prepared("standard")
    assert options == {"frameskip": 1}
    told = wrappers["AtariPreprocessing"]
    assert (told["noop_max"], told["frame_skip"], told["screen_size"]) == (30, 4, 84)
    assert told["grayscale_obs"] and not told["terminal_on_life_loss"]
    assert wrappers["TransformObservation"]["observation_space"].shape == (84, 84, 4)


def test_its_numbers_may_be_changed_and_it_may_be_left_out(cv2):
    wrappers, _ = prepared({"stack": 2, "grayscale_obs": False, "scale_obs": True})
    assert wrappers["ReshapeObservation"]["shape"] == (84, 84, 6)
    assert wrappers["TransformObservation"]["observation_space"].dtype == np.float32
    assert [*prepared({"stack": 1})[0]] == ["AtariPreprocessing"]
    assert prepared("raw") == ({}, {})
    with pytest.raises(RlcliError, match="`atari` has no `stak`") as caught:
        prepared({"stak": 1})
    assert caught.value.hint == "did you mean `stack`?"


def test_the_time_limit_counts_the_agents_steps(cv2):
    wrappers, _ = prepared("standard", 100)
    assert list(wrappers)[-1] == "TimeLimit"  # outside of what skips frames
    assert wrappers["TimeLimit"] == {"max_episode_steps": 100}


@pytest.mark.parametrize("package", ["cv2", "ale_py"])
def test_a_missing_package_names_the_extra(package, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(RlcliError) as caught:
        prepared("standard") if package == "cv2" else atari.registered()
    assert caught.value.hint == 'pip install "rlcli[atari]"'


def test_breakout_is_what_gymnasiums_wrappers_make_of_it():
    pytest.importorskip("ale_py")
    pytest.importorskip("cv2")
    ours = gymnasium_adapter("ALE/Breakout-v5", 1, 1, None, None)
    state, obs = ours.reset(np.array([3], np.uint32))
    game = gymnasium.make("ALE/Breakout-v5", frameskip=1)
    game = gymnasium.wrappers.AtariPreprocessing(game)
    hand = gymnasium.wrappers.FrameStackObservation(game, 4)
    seen, _ = hand.reset(seed=seed_of(3, 0, 0))
    for action in np.random.default_rng(0).integers(0, 4, 60):
        np.testing.assert_array_equal(obs[0, 0], np.moveaxis(seen, 0, -1))
        state, answer = ours.step(state, np.array([[action]]))
        seen, reward, terminated, *_ = hand.step(action)
        assert answer.reward[0, 0] == reward
        if terminated:
            break
        obs = answer.obs
    ours.close(state)
