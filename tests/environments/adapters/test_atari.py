"""Atari: the standard preprocessing, compared with Gymnasium's wrappers."""

from __future__ import annotations

import dataclasses
import sys

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import AutoresetMode

from rlcli.environments.adapters import atari
from rlcli.environments.adapters.gymnasium import gymnasium_adapter
from rlcli.environments.adapters.host_vector import episode_seed
from rlcli.environments.adapters.pools import NO_TIME_LIMIT
from rlcli.errors import RlcliError
from rlcli.registry.libraries import install_command

GAME = EnvSpec(
    "ALE/Made-v5", "nowhere:Made", kwargs={"max_num_frames_per_episode": 108_000}
)


def wrapper_keywords(changes, limit=None):
    """The wrappers' keywords, by name, and those of the game."""
    spec = atari.preprocess_spec(GAME, changes, limit, False)
    return {each.name: each.kwargs for each in spec.additional_wrappers}, spec.kwargs


class FrameVector(gymnasium.vector.VectorEnv):
    """A vector with the keywords of ALE's; one of two episodes ends at each step."""

    metadata = {"autoreset_mode": AutoresetMode.SAME_STEP}  # noqa: RUF012

    def __init__(self, *, num_envs, stack_num, grayscale, **keywords):
        self.num_envs, self.keywords = num_envs, keywords
        shape = (stack_num, 6, 7) if grayscale else (stack_num, 6, 7, 3)
        self.single_observation_space = spaces.Box(0, 255, shape, np.uint8)
        self.single_action_space = spaces.Discrete(2)
        self.random = np.random.default_rng(0)

    def seen(self):
        shape = (self.num_envs, *self.single_observation_space.shape)
        return self.random.integers(0, 256, shape, np.uint8)

    def reset(self, *, seed=None, options=None):
        self.shown = self.seen()
        return self.shown, {}

    def step(self, actions):
        self.shown, self.final = self.seen(), self.seen()
        ended = np.array([True, False])
        return self.shown, np.ones(2), ended, ~ended, {"final_obs": self.final}


def vector_keywords(changes, limit=None):
    game = dataclasses.replace(GAME, vector_entry_point=FrameVector)
    spec = atari.preprocess_spec(game, changes, limit, True)
    return gymnasium.make_vec(spec, 2, "vector_entry_point")


@pytest.fixture
def cv2(monkeypatch):
    monkeypatch.setitem(sys.modules, "cv2", sys)  # only asked for


def test_the_standard_preprocessing_is_that_of_the_papers(cv2):
    wrappers, options = wrapper_keywords("standard")
    assert options == {"frameskip": 1, "max_num_frames_per_episode": 108_000}
    keywords = wrappers["AtariPreprocessing"]
    assert (keywords["noop_max"], keywords["frame_skip"], keywords["screen_size"]) == (
        30,
        4,
        84,
    )
    assert keywords["grayscale_obs"] and not keywords["terminal_on_life_loss"]
    assert wrappers["TransformObservation"]["observation_space"].shape == (84, 84, 4)


def test_the_preprocessing_can_be_changed_and_disabled(cv2):
    wrappers, _ = wrapper_keywords(
        {"stack": 2, "grayscale_obs": False, "scale_obs": True}
    )
    assert wrappers["ReshapeObservation"]["shape"] == (84, 84, 6)
    assert wrappers["TransformObservation"]["observation_space"].dtype == np.float32
    assert [*wrapper_keywords({"stack": 1})[0]] == ["AtariPreprocessing"]
    assert wrapper_keywords("raw") == ({}, GAME.kwargs)
    with pytest.raises(RlcliError, match="`atari` has no `stak`") as caught:
        wrapper_keywords({"stak": 1})
    assert caught.value.hint == "did you mean `stack`?"


def test_the_time_limit_counts_steps_of_the_agent(cv2):
    for changes in ("standard", "raw"):
        wrappers, options = wrapper_keywords(changes, 100)
        assert list(wrappers)[-1] == "TimeLimit"  # outside of what skips frames
        assert wrappers["TimeLimit"] == {"max_episode_steps": 100}
        assert options["max_num_frames_per_episode"] == 0  # which is no limit
    keywords = vector_keywords({"frame_skip": 5}, 100).env.keywords
    assert (keywords["frameskip"], keywords["max_num_frames_per_episode"]) == (5, 500)
    keywords = vector_keywords("standard", NO_TIME_LIMIT).env.keywords
    assert keywords["max_num_frames_per_episode"] == NO_TIME_LIMIT


@pytest.mark.parametrize("grey", [True, False])
@pytest.mark.parametrize("stack", [1, 3])
def test_the_vectors_frames_have_the_axes_of_the_wrappers(grey, stack):
    env = vector_keywords({"stack": stack, "grayscale_obs": grey})
    shape = (6, 7, stack * (1 if grey else 3))
    shape = (6, 7) if shape == (6, 7, 1) else shape
    assert env.single_observation_space == spaces.Box(0, 255, shape, np.uint8)

    def expected(frames):  # newest last, colour channels adjacent
        frames = frames.reshape(2, stack, 6, 7, -1)
        planes = [frames[:, time] for time in range(stack)]
        return np.concatenate(planes, -1).reshape(env.observation_space.shape)

    np.testing.assert_array_equal(env.reset()[0], expected(env.env.shown))
    obs, *_, infos = env.step(np.zeros(2))
    np.testing.assert_array_equal(obs, expected(env.env.shown))
    np.testing.assert_array_equal(infos["final_obs"], expected(env.env.final))


@pytest.mark.parametrize("changes", ["raw", {"scale_obs": True}])
def test_options_that_ales_vector_does_not_support_are_refused(changes):
    with pytest.raises(RlcliError, match="does not work with `vectorization: own`"):
        vector_keywords(changes)


@pytest.mark.parametrize("package", ["cv2", "ale_py"])
def test_a_missing_package_names_the_extra(package, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(RlcliError) as caught:
        wrapper_keywords("standard") if package == "cv2" else atari.register_games()
    assert caught.value.hint == install_command("atari")


def test_observations_of_breakout_match_gymnasiums_wrappers():
    pytest.importorskip("ale_py")
    pytest.importorskip("cv2")
    ours = gymnasium_adapter("ALE/Breakout-v5", 1, 1, None, None)
    state, obs = ours.reset(np.array([3], np.uint32))
    game = gymnasium.make("ALE/Breakout-v5", frameskip=1)
    game = gymnasium.wrappers.AtariPreprocessing(game)
    hand = gymnasium.wrappers.FrameStackObservation(game, 4)
    seen, _ = hand.reset(seed=episode_seed(3, 0, 0))
    for action in np.random.default_rng(0).integers(0, 4, 60):
        np.testing.assert_array_equal(obs[0, 0], np.moveaxis(seen, 0, -1))
        state, timestep = ours.step(state, np.array([[action]]))
        seen, reward, terminated, *_ = hand.step(action)
        assert timestep.reward[0, 0] == reward
        if terminated:
            break
        obs = timestep.obs
    ours.host.close(state)


def test_ales_vector_returns_the_observations_of_the_wrappers():
    pytest.importorskip("ale_py")
    pytest.importorskip("cv2")
    plays = []
    for way in ("sync", "own"):  # without what they draw differently
        env = gymnasium_adapter(
            "ALE/Breakout-v5",
            1,
            1,
            190,
            None,
            options={"repeat_action_probability": 0.0},
            vectorization=way,
            atari={"noop_max": 0},
        )
        state, _ = env.reset(np.array([3], np.uint32))
        drawn = np.random.default_rng(0).integers(0, 4, (600, 1, 1))
        plays.append([env.step(state, action)[1] for action in drawn])
        env.host.close(state)
    ended = [time for time, each in enumerate(plays[0]) if each.last]
    assert len(ended) > 2 and any(each.discount == 0 for each in plays[0])
    since = 0
    for ours, theirs in zip(*plays, strict=True):
        # At the start the wrapper repeats the first frame, while ALE has black frames.
        # If ALE truncates, the newest frame is not the maximum of two.
        seen = slice(-min(since + 2, 4), -1 if ours.last and ours.discount else None)
        same = ours.next_obs[..., seen] == theirs.next_obs[..., seen]
        assert same.size and same.all()
        assert ours[2:5] == theirs[2:5]
        since = 0 if ours.last else since + 1


@pytest.mark.slow
@pytest.mark.parametrize("way", ["sync", "own"])
def test_without_a_time_limit_a_game_goes_on_beyond_its_own(way):
    pytest.importorskip("ale_py")
    env = gymnasium_adapter("ALE/Breakout-v5", 1, 1, None, None, vectorization=way)
    state, _ = env.reset(np.array([3], np.uint32))
    waiting = np.zeros((1, 1), int)
    for _ in range(108_000 // 4 + 1):
        assert not env.step(state, waiting)[1].last
    env.host.close(state)
