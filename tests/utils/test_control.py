"""DeepMind Control: against a stand-in for its suite, which is no dependency."""

import sys
from types import ModuleType, SimpleNamespace
from typing import NamedTuple

import gymnasium
import numpy as np
import pytest

from rlcli.errors import RlcliError
from rlcli.utils import make_dmc


class Answer(NamedTuple):
    observation: dict
    reward: float | None
    discount: float
    ended: bool

    def last(self):
        return self.ended


class Task:
    """Adds actions up; ends by itself beyond 2, and by its clock after 4 steps."""

    def __init__(self, seed):
        self.seed, self.physics = seed, self

    def observation_spec(self):
        free, sized = SimpleNamespace(shape=()), SimpleNamespace(shape=(2,))
        bounded = SimpleNamespace(
            shape=(2,), minimum=-1.0, maximum=np.array([1.0, 3.0])
        )
        return {"height": free, "velocity": sized, "touch": bounded}

    def action_spec(self):
        return SimpleNamespace(shape=(2,), minimum=np.array([-1.0, -2.0]), maximum=1.0)

    def control_timestep(self):
        return 0.02

    def _answer(self, reward, discount, ended):
        seen = {
            "height": self.total,
            "velocity": np.array([self.seed, self.time]),
            "touch": np.zeros(2),
        }
        return Answer(seen, reward, discount, ended)

    def reset(self):
        self.total, self.time = 0.0, 0
        return self._answer(None, 1.0, False)

    def step(self, action):
        assert action.dtype == np.float64
        self.total += action.sum()
        self.time += 1
        fell = self.total > 2
        return self._answer(0.5, 0.0 if fell else 1.0, fell or self.time == 4)

    def render(self, height, width, camera_id):
        return np.full((height, width, 3), camera_id, np.uint8)

    def close(self):
        self.closed = True


@pytest.fixture(autouse=True)
def suite(monkeypatch):
    def load(domain, task, task_kwargs):
        if (domain, task) != ("walker", "walk"):
            raise ValueError("unknown")
        return Task(task_kwargs["random"])

    monkeypatch.setitem(sys.modules, "dm_control", ModuleType("dm_control"))
    tasks = SimpleNamespace(load=load)
    monkeypatch.setitem(sys.modules, "dm_control.suite", tasks)


def test_spaces_concatenate_those_of_the_task():
    env = make_dmc("walker", "walk")
    inf = np.inf
    np.testing.assert_array_equal(env.observation_space.low, [-inf] * 3 + [-1, -1])
    np.testing.assert_array_equal(env.observation_space.high, [inf] * 3 + [1, 3])
    np.testing.assert_array_equal(env.action_space.low, [-1, -2])
    assert env.action_space.dtype == env.observation_space.dtype == np.float32
    assert env.unwrapped.metadata["render_fps"] == 50


def test_observations_are_flat_and_the_task_is_seeded():
    env = make_dmc("walker", "walk", seed=7)
    obs, info = env.reset()
    assert obs.tolist() == [0, 7, 0, 0, 0]
    assert info == {}
    assert env.observation_space.contains(obs)
    assert env.reset(seed=8)[0][1] == 8
    assert env.reset()[0][1] == 8


def test_ends_of_the_task_terminate_and_time_limits_truncate():
    env = make_dmc("walker", "walk")
    env.reset()
    strong, none = np.ones(2, np.float32), np.zeros(2, np.float32)
    assert env.step(strong)[1:4] == (0.5, False, False)
    assert env.step(strong)[2:4] == (True, False)
    env.reset()
    assert [env.step(none)[2:4] for _ in range(4)][2:] == [
        (False, False),
        (False, True),
    ]
    short = make_dmc("walker", "walk", max_episode_steps=2)
    short.reset()
    assert [short.step(none)[2:4] for _ in range(2)] == [(False, False), (False, True)]


def test_images_have_the_given_size_and_camera():
    env = make_dmc("walker", "walk", height=4, width=6, camera_id=3)
    picture = env.render()
    assert (picture.shape, picture.max()) == ((4, 6, 3), 3)
    assert make_dmc("walker", "walk").render().shape == (84, 84, 3)
    assert isinstance(env, gymnasium.Env)
    env.close()
    assert env.unwrapped._control.closed


def test_a_missing_task_is_an_error_that_names_it(monkeypatch):
    with pytest.raises(RlcliError, match="no task `fly` in domain `walker`"):
        make_dmc("walker", "fly")
    monkeypatch.setitem(sys.modules, "dm_control.suite", None)
    with pytest.raises(RlcliError, match="cannot be imported") as error:
        make_dmc("walker", "walk")
    assert 'pip install "dm_control"' in error.value.hint
