"""Host vectors: async and native vectors, compared with sequential stepping."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import cloudpickle
import gymnasium
import jax
import numpy as np
import odd_environments
import pytest
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.vector.utils import batch_space

from rlcli.environments.adapters.conversion import InvalidOutputError
from rlcli.environments.adapters.gymnasium import gymnasium_adapter
from rlcli.environments.adapters.host import (
    ExternalEnvironment,
    host_environment,
    sync_host_environment,
)
from rlcli.environments.adapters.pools import (
    AsyncVector,
    NativeVector,
    SyncVector,
    host_timestep,
)
from rlcli.errors import RlcliError

SEEDS = np.array([7, 8], np.uint32)
STEPS = 40


class Walk(gymnasium.Env):
    """Walks by the action plus a seeded random step; ends beyond 5."""

    observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space = spaces.Discrete(3)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.at = np.array([self.np_random.random(), 0], np.float32)
        return self.at, {}

    def step(self, action):
        self.at = self.at + np.array([self.np_random.random(), action], np.float32)
        return self.at, float(action), bool(self.at[1] > 5), False, {}


class Broken(Walk):
    def step(self, action):
        if action == 2:
            raise ZeroDivisionError("by nothing")
        return super().step(action)


class Slow(Walk):
    def step(self, action):
        time.sleep(20 * (action == 2))
        return super().step(action)


SPACES = (Walk.observation_space, Walk.action_space)


@pytest.fixture(autouse=True, scope="module")
def pickled_module():
    """Pickles this module by value: worker processes cannot import it."""
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    yield
    cloudpickle.unregister_pickle_by_value(sys.modules[__name__])


def make_async_vector(kind, timeout=None):
    external = ExternalEnvironment(
        f"environment `{kind.__name__}`", "gymnasium", timeout
    )
    return host_environment(
        external, SPACES, lambda count: AsyncVector(kind, count, timeout), 2, 2
    )


class Strict(SyncVectorEnv):
    """Accepts int32 seeds only, as vectors in C++ such as ALE's do."""

    def reset(self, *, seed=None, options=None):
        assert seed is None or seed + self.num_envs < 2**31
        return super().reset(seed=seed, options=options)


def make_native_vector(mode, num_envs=2):
    def make():
        return Strict([Walk] * num_envs, autoreset_mode=mode)

    external = ExternalEnvironment("environment `Walk`", "gymnasium")
    return host_environment(
        external, SPACES, lambda count: NativeVector(make, 2), num_envs, 2
    )


def play(env, steps=STEPS):
    """Plays at random; returns the state, first observations, timesteps `[T, S, B]`."""
    rng = np.random.default_rng(1)
    state, first = env.reset(SEEDS)
    timesteps = []
    for action in rng.integers(0, 3, (steps, *first.shape[:2])):
        state, timestep = env.step(state, action)
        timesteps.append(timestep)
    return state, first, jax.tree.map(lambda *each: np.stack(each), *timesteps)


def test_async_and_sync_vectors_return_the_same_timesteps():
    state, *actual = play(make_async_vector(Walk))
    _, *expected = play(
        sync_host_environment(
            ExternalEnvironment("environment `Walk`", "gymnasium"), Walk, 2, 2
        )
    )
    jax.tree.map(np.testing.assert_array_equal, actual, expected)
    assert actual[1].last.sum() > 10
    make_async_vector(Walk).host.close(state)


@pytest.mark.parametrize("name", sorted(odd_environments.ACTIONS))
def test_each_environment_gets_an_element_of_its_action_space(name):
    """In the form of Gymnasium's own samples: a Box of shape () has arrays."""
    space = odd_environments.ACTIONS[name]
    elements = []

    class Recorder(odd_environments.Host):
        def step(self, action):
            elements.append(action)
            return super().step(action)

    vector = SyncVector(lambda: Recorder(action=name), 2, None)
    vector.begin(np.arange(2), [0, 1])
    batch = batch_space(space, 2)
    batch.seed(0)
    vector.step(batch.sample())
    for element in elements:
        assert space.contains(element)
        assert jax.tree.all(jax.tree.map(_is_same_kind, element, space.sample()))


def _is_same_kind(one, other):
    return isinstance(one, np.ndarray) == isinstance(other, np.ndarray)


def test_an_error_in_a_process_names_the_environment():
    env = make_async_vector(Broken)
    state, _ = env.reset(SEEDS)
    label = r"`Broken` \(number 0 of seed 8, episode 0, step 1\) failed in `step`"
    with pytest.raises(RlcliError, match=f"{label}: ZeroDivision"):
        env.step(state, np.array([[0, 1], [2, 1]]))
    env.host.close(state)


def test_processes_that_take_too_long_are_interrupted_and_stopped():
    env = make_async_vector(Slow, timeout=0.5)
    state, _ = env.reset(SEEDS)
    began = time.perf_counter()
    with pytest.raises(RlcliError, match=r"`step` took longer than 0\.5 s"):
        env.step(state, np.array([[0, 2], [0, 1]]))
    env.host.close(state)
    assert time.perf_counter() - began < 15


@pytest.mark.parametrize("mode", [AutoresetMode.SAME_STEP, AutoresetMode.DISABLED])
def test_a_vector_that_resets_in_time_returns_both_observations(mode):
    _, first, timesteps = play(make_native_vector(mode))
    last = timesteps.last
    assert last.sum() > 10
    assert np.all(timesteps.next_obs[last][:, 1] > 5)
    assert np.all(timesteps.obs[last][:, 1] == 0)
    assert np.all(timesteps.discount == 1 - last)
    np.testing.assert_array_equal(timesteps.obs[~last], timesteps.next_obs[~last])
    before = np.concatenate([first[None], timesteps.obs[:-1]])
    moved = timesteps.next_obs[..., 1] - before[..., 1]
    np.testing.assert_array_equal(moved, timesteps.reward)


def test_a_vector_that_resets_late_starts_episodes_with_an_idle_step():
    _, first, timesteps = play(make_native_vector(AutoresetMode.NEXT_STEP))
    last = timesteps.last
    before = np.concatenate([first[None], timesteps.obs[:-1]])
    idle = np.concatenate([np.zeros_like(last[:1]), last[:-1]])
    # If all episodes end simultaneously, all are reset without an idle step.
    idle &= ~np.concatenate([np.zeros_like(last[:1]), last[:-1]]).all((1, 2))[
        :, None, None
    ]
    assert idle.sum() > 10
    assert np.all(timesteps.reward[idle] == 0)
    assert np.all(timesteps.next_obs[idle][:, 1] == 0)
    assert not last[idle].any()
    moved = timesteps.next_obs[..., 1] - before[..., 1]
    np.testing.assert_array_equal(moved[~idle], timesteps.reward[~idle])


class Refuses(Walk):
    def close(self):
        raise RuntimeError("already closed")


def test_processes_whose_environments_cannot_be_closed_end(capfd):
    env = make_async_vector(Refuses)
    state, *_ = play(env, 3)
    env.host.close(state)
    assert all(process.exitcode == 0 for process in state.vector.env.processes)
    assert "Traceback" not in capfd.readouterr().err


REWARDS = {
    "float": 1.0,
    "bool": True,
    "int": 1,
    "float16": np.float16(1),
    "float64": np.float64(1),
    "array of one": np.array([1.0]),
    "array of none": np.array(1.0),
    "either": None,  # alternates
}


class Rewards(Walk):
    """Pays 1, in one of the forms that environments use."""

    def __init__(self, form="float", render_mode=None):
        self.form, self.count = form, 0

    def step(self, action):
        obs, _, *rest = super().step(action)
        self.count += 1
        reward = REWARDS[self.form]
        if reward is None:
            reward = (np.array([1.0]), 1)[int(self.np_random.random() < 0.5)]
        return obs, reward, *rest


@pytest.mark.parametrize("vectorization", ["sync", "async", "own"])
@pytest.mark.parametrize("form", REWARDS)
def test_a_reward_may_be_any_number_or_an_array_of_one(form, vectorization):
    if vectorization == "own":

        def make_vector(num_envs, **options):
            vector = SyncVectorEnv([lambda: Rewards("float")] * num_envs)
            mixed = [1.0, np.array(True)] if form == "either" else [REWARDS[form]] * 2
            step = vector.step
            vector.step = lambda action: (step(action)[0], mixed, *step(action)[2:])
            return vector
    else:
        make_vector = None
    spec = EnvSpec("Rewards-v0", entry_point=Rewards, vector_entry_point=make_vector)
    gymnasium.registry["Rewards-v0"] = spec
    try:
        options = {} if vectorization == "own" else {"form": form}
        env = gymnasium_adapter(
            "Rewards-v0", 2, 1, None, None, options=options, vectorization=vectorization
        )
        state, _ = env.reset(SEEDS[:1])
        for _ in range(5):
            _, timestep = env.step(state, np.zeros((1, 2), int))
            assert timestep.reward.dtype == np.float32
            np.testing.assert_array_equal(timestep.reward, [[1, 1]])
        env.host.close(state)
    finally:
        del gymnasium.registry["Rewards-v0"]


def test_actions_of_a_vector_that_is_not_replayable_are_not_saved():
    env = make_native_vector(AutoresetMode.SAME_STEP)
    state, *_ = play(env)
    saved = env.host.save(state)
    assert saved["actions"].shape == (2, 2, 0) and saved["length"].any()
    restored, warning = env.host.restore(saved)
    assert "4 of 4 episodes end here" in warning
    assert env.step(restored, np.zeros((2, 2), int))[1].last.all()


def test_the_native_vector_of_cartpole_matches_single_environments():
    env = gymnasium_adapter("CartPole-v1", 3, 2, "default", None, vectorization="own")
    state, obs = env.reset(SEEDS)
    single = gymnasium.make("CartPole-v1").unwrapped
    for time_ in range(12):
        single.reset()
        single.state = obs[1, 2].astype(float)  # pyright: ignore[reportAttributeAccessIssue]
        action = np.full((2, 3), time_ % 2)
        state, timestep = env.step(state, action)
        seen, reward, terminated, _, _ = single.step(time_ % 2)
        np.testing.assert_allclose(timestep.next_obs[1, 2], seen, rtol=1e-3, atol=1e-5)
        assert timestep.reward[1, 2] == reward
        assert bool(timestep.last[1, 2]) == terminated
        obs = timestep.obs


@pytest.mark.parametrize(("limit", "cut"), [(None, False), (4, True)])
def test_a_native_vector_obeys_the_time_limit(limit, cut):
    env = gymnasium_adapter("CartPole-v1", 2, 1, limit, None, vectorization="own")
    state, _ = env.reset(SEEDS[:1])
    alternating = [env.step(state, np.full((1, 2), t % 2))[1] for t in range(4)]
    assert [each.last.all() for each in alternating] == [False, False, False, cut]
    assert not np.any([each.last for each in alternating[:3]])


def test_an_environment_without_a_native_vector_is_refused():
    with pytest.raises(RlcliError, match="has no vector implementation") as caught:
        gymnasium_adapter("Acrobot-v1", 3, 2, "default", None, vectorization="own")
    assert "`async`" in caught.value.hint


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        (
            0,
            np.array([None, None]),
            r"rewards of dtype object and shape \(2,\), not 2 number",
        ),
        (
            0,
            np.zeros((2, 2)),
            r"rewards of dtype float64 and shape \(2, 2\), not 2 numbers",
        ),
        (0, np.zeros(2, complex), r"rewards of dtype complex128 and shape"),
        (1, np.array(["", ""]), r"`terminated` of dtype <U1 and shape"),
        (
            2,
            np.zeros(3, bool),
            r"`truncated` of dtype bool and shape \(3,\), not 2 numbers",
        ),
    ],
)
def test_rewards_and_flags_of_a_vector_must_be_numbers(place, value, message):
    rest = [np.zeros(2), np.zeros(2, bool), np.zeros(2, bool)]
    rest[place] = value
    with pytest.raises(InvalidOutputError, match=message):
        host_timestep(np.zeros((2, 3)), *rest)


ASYNC = """
import os
import gymnasium
from rlcli.environments.adapters.pools import AsyncVector

def make():
    env = gymnasium.make("CartPole-v1")
    env.unwrapped.variable = os.environ.get("PYTHONSAFEPATH")
    return env

if __name__ == "__main__":
    vector = AsyncVector(make, 1, None)
    print(os.environ.get("PYTHONSAFEPATH"), *vector.env.get_attr("variable"))
    vector.close()
"""


@pytest.mark.parametrize("name", ["gymnasium", "selectors", "farama_notifications"])
@pytest.mark.slow
def test_a_module_in_the_current_folder_is_not_that_of_an_environment(name, tmp_path):
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    (folder / f"{name}.py").write_text("open('found', 'w').close()\n")
    (tmp_path / "script.py").write_text(ASYNC)
    command = [sys.executable, str(tmp_path / "script.py")]
    process = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, check=True
    )
    assert process.stdout == "None None\n"
    assert os.listdir(folder) == [f"{name}.py"]
