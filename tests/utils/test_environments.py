"""Environments: Gymnasium's, and one that records its calls."""

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.wrappers import TimeLimit
from PIL import Image

from rlcli.errors import RlcliError
from rlcli.utils import (
    generate_gif,
    get_env_attr,
    get_transition_batch,
    has_env_attr,
    render_episode,
)


class Corridor(gymnasium.Env):
    """Counts its steps; the image shows their number."""

    metadata = {"render_modes": ["rgb_array"]}  # noqa: RUF012 - Gymnasium's own
    observation_space = spaces.Box(0, 9, (1,))
    action_space = spaces.Discrete(2)
    secret = "inner"

    def __init__(self, length=3):
        self.render_mode = "rgb_array"
        self.length, self.calls, self.closed = length, [], False

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.calls.append("reset")
        self.cell = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.calls.append(int(action))
        self.cell += 1
        obs = np.array([self.cell], np.float32)
        return obs, 2.0, self.cell == self.length, False, {}

    def render(self):
        self.calls.append("render")
        return np.full((6, 8, 3), 40 * self.cell, np.uint8)

    def close(self):
        self.closed = True


def test_attributes_are_those_of_the_outermost_environment():
    env = TimeLimit(TimeLimit(Corridor(), 5), 6)
    assert get_env_attr(env, "secret") == "inner"
    assert get_env_attr(env, "_max_episode_steps") == 6
    assert has_env_attr(env, "secret")
    assert not has_env_attr(env, "nothing")
    assert get_env_attr(env, "nothing", default=None) is None
    with pytest.raises(AttributeError, match="has no attribute `nothing`"):
        get_env_attr(env, "nothing")


def test_the_search_stops_at_max_depth():
    env = TimeLimit(TimeLimit(Corridor(), 5), 6)
    assert has_env_attr(env, "secret", max_depth=2)
    assert not has_env_attr(env, "secret", max_depth=1)
    assert get_env_attr(env, "secret", "none", max_depth=1) == "none"


def test_an_episode_is_rendered_at_every_step():
    env = Corridor()
    render_episode(env, policy=lambda obs: int(obs[0]) % 2)
    assert env.calls == ["reset", "render", 0, "render", 1, "render", 0, "render"]


def test_a_random_action_is_legal():
    class Masked(Corridor):
        def reset(self, *, seed=None, options=None):
            _, info = super().reset(seed=seed)
            return {"action_mask": np.array([0, 1], np.int8)}, info

        def step(self, action):
            assert action == 1
            _, *rest = super().step(action)
            return {"action_mask": np.array([0, 1], np.int8)}, *rest

    env = Masked(length=6)
    for _ in range(5):
        render_episode(env)
    assert env.calls.count(1) == 30


def test_an_episode_of_gymnasium_is_rendered_until_its_time_limit(monkeypatch):
    waits = []
    monkeypatch.setattr("time.sleep", waits.append)
    env = gymnasium.make("MountainCar-v0", render_mode="rgb_array", max_episode_steps=4)
    monkeypatch.setattr(env, "render", lambda: None)
    render_episode(env, step_delay_ms=20)
    assert waits == [0.02] * 5


def test_a_gif_contains_every_image_with_size_and_duration(tmp_path):
    path = tmp_path / "new" / "episode.gif"
    generate_gif(Corridor(), str(path), duration=70, resize_to=(16, 12))
    with Image.open(path) as gif:
        assert (gif.n_frames, gif.size, gif.info["loop"]) == (4, (16, 12), 0)
        for number in range(4):
            gif.seek(number)
            assert gif.info["duration"] == 70
            grey = np.asarray(gif.convert("RGB")).mean()
            assert grey == pytest.approx(40 * number, abs=3)


def test_a_gif_ends_at_the_given_limit_or_that_of_the_environment(tmp_path):
    path = tmp_path / "episode.gif"
    generate_gif(Corridor(length=9), path, lambda obs: 0, max_episode_steps=5)
    with Image.open(path) as gif:
        assert gif.n_frames == 6
    env = Corridor(length=9)
    env.spec = gymnasium.envs.registration.EnvSpec("Corridor-v0", max_episode_steps=2)
    generate_gif(env, path)
    assert env.calls.count("render") == 3


def test_an_environment_without_images_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr(Corridor, "render", lambda self: None)
    with pytest.raises(RlcliError, match="renders no images") as error:
        generate_gif(Corridor(), tmp_path / "episode.gif")
    assert "rgb_array" in error.value.hint
    assert not any(tmp_path.iterdir())


def test_transitions_are_first_steps_of_episodes_with_discounts():
    going, ending = Corridor(length=2), Corridor(length=1)
    for env, discount in [(going, 0.5), (ending, 0.0)]:
        batch = get_transition_batch(env, batch_size=4, gamma=0.5, random_seed=0)
        assert env.closed
        assert env.calls.count("reset") == 4
        assert batch.obs.shape == batch.next_obs.shape == (1, 4, 1)
        np.testing.assert_array_equal(batch.next_obs - batch.obs, 1)
        assert batch.discount.tolist() == [[discount] * 4]
        assert (batch.reward.tolist(), batch.reward.dtype) == ([[2] * 4], np.float32)
        assert batch.first.all()
        assert batch.last.tolist() == [[discount == 0] * 4]
        actions = [call for call in env.calls if call != "reset"]
        assert batch.action.tolist() == [actions]


def test_transitions_depend_only_on_the_seed_and_equal_those_of_the_environment():
    batches = [
        get_transition_batch(gymnasium.make("CartPole-v1"), 8, random_seed=seed)
        for seed in (1, 1, 2)
    ]
    np.testing.assert_array_equal(batches[0].obs, batches[1].obs)
    np.testing.assert_array_equal(batches[0].action, batches[1].action)
    assert not np.array_equal(batches[0].obs, batches[2].obs)
    assert {*batches[0].action.ravel().tolist()} == {0, 1}
    env = gymnasium.make("CartPole-v1").unwrapped
    for index in range(8):
        env.reset()
        env.state = batches[0].obs[0, index]
        expected = env.step(int(batches[0].action[0, index]))[0]
        np.testing.assert_allclose(batches[0].next_obs[0, index], expected, atol=1e-6)
    assert get_transition_batch(gymnasium.make("CartPole-v1")).discount == 0.9


def test_a_transition_is_a_copy_of_what_an_environment_may_overwrite():
    class Reuses(Corridor):
        """One buffer for all observations; overwrites its action."""

        action_space = spaces.MultiBinary(2)
        buffer = np.zeros(1, np.float32)

        def reset(self, *, seed=None, options=None):
            assert seed < 2**31
            super().reset(seed=seed)
            self.buffer[0] = 7
            return self.buffer, {}

        def step(self, action):
            action[...] = 9
            self.buffer[0] = 8
            return self.buffer, 1.0, True, False, {}

        def close(self):
            raise RuntimeError("already closed")

    batch = get_transition_batch(Reuses(), batch_size=40, random_seed=0)
    np.testing.assert_array_equal(batch.obs, np.full((1, 40, 1), 7))
    np.testing.assert_array_equal(batch.next_obs, np.full((1, 40, 1), 8))
    assert set(np.unique(batch.action)) == {0, 1}


def test_the_environment_is_closed_even_if_it_fails(monkeypatch):
    def fail(self, action):
        raise ArithmeticError

    monkeypatch.setattr(Corridor, "step", fail)
    env = Corridor()
    with pytest.raises(ArithmeticError):
        get_transition_batch(env)
    assert env.closed


@pytest.mark.parametrize("bad", [{"batch_size": 0}, {"gamma": 1.1}, {"gamma": -0.1}])
def test_invalid_arguments_of_a_batch_are_refused(bad):
    with pytest.raises(ValueError, match="expected a batch_size"):
        get_transition_batch(Corridor(), **bad)
