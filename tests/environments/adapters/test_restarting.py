"""Restarting: a failed environment loses its episode, and no other one anything."""

from __future__ import annotations

import os
import sys
import time

import cloudpickle
import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from rlcli.environments.adapters.host import (
    ExternalEnvironment,
    host_environment,
    sync_host_environment,
)
from rlcli.environments.adapters.pools import AsyncVector, SyncVector
from rlcli.environments.adapters.restarting import MAX_FAILURES, Restarts
from rlcli.errors import RlcliError

SEEDS = np.array([5, 6], np.uint32)
SPACES = spaces.Box(-np.inf, np.inf, (2,), np.float32), spaces.Discrete(6)
RAISE, HANG, SPOIL, EXIT, DIE = 1, 2, 3, 4, 5


class Fragile(gymnasium.Env):
    """Counts the steps of its episode; some actions break it."""

    observation_space, action_space = SPACES
    made = 0

    def __init__(self):
        type(self).made += 1

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.at = np.array([self.np_random.random(), 0], np.float32)
        return self.at, {}

    def step(self, action):
        if action == RAISE:
            raise ZeroDivisionError("by nothing")
        if action == HANG:
            time.sleep(20)
        if action == EXIT:
            sys.exit("the window was closed")
        if action == DIE:
            os._exit(9)
        self.at = self.at + np.array([0, 1], np.float32)
        return self.at if action != SPOIL else "text", 1.0, False, False, {}


@pytest.fixture(autouse=True, scope="module")
def pickled_module():
    """Pickles this module by value: worker processes cannot import it."""
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    yield
    cloudpickle.unregister_pickle_by_value(sys.modules[__name__])


def make_env(kind=Fragile, num_envs=2):
    external = ExternalEnvironment("environment `Fragile`", "gymnasium", 0.3)
    env = sync_host_environment(external, kind, num_envs, 2)
    assert env.host.remake is not None
    return env.host.remake(is_restarting=True)


def actions(place=None, action=0):
    """No action everywhere, but one at a place (seed, environment)."""
    result = np.zeros((2, 2), np.int32)
    if place is not None:
        result[place] = action
    return result


@pytest.mark.parametrize(
    ("action", "reason"),
    [
        (RAISE, "failed in `step`: ZeroDivisionError: by nothing"),
        (HANG, "`step` took longer than 0.3 s"),
        (SPOIL, "`step` returned an observation of str instead of float32"),
        (EXIT, "failed in `step`: SystemExit: the window was closed"),
    ],
)
def test_a_failed_environment_is_truncated_and_the_others_go_on(action, reason):
    env = make_env()
    state, _ = env.reset(SEEDS)
    state, before = env.step(state, actions())
    state, timestep = env.step(state, actions((1, 0), action))
    failed = np.array([[False, False], [True, False]])
    np.testing.assert_array_equal(timestep.last, failed)
    np.testing.assert_array_equal(timestep.reward, np.where(failed, 0, 1))
    assert (timestep.discount == 1).all()
    np.testing.assert_array_equal(timestep.next_obs[failed], before.obs[failed])
    np.testing.assert_array_equal(timestep.obs[..., 1], np.where(failed, 0, 2))
    restarts = env.host.restarts(state)
    assert restarts.counts.tolist() == [0, 1]
    (message,) = restarts.messages
    label = "environment `Fragile` (number 0 of seed 6, episode 0, step 2)"
    assert message.startswith(label) and reason in message
    assert message.endswith("; it is restarted")
    np.testing.assert_array_equal(env.host.save(state)["episode"], failed)
    state, timestep = env.step(state, actions())
    assert not timestep.last.any()
    np.testing.assert_array_equal(timestep.obs[..., 1], np.where(failed, 1, 3))


def test_an_environment_whose_close_hangs_as_well_is_made_again():
    class Hangs(Fragile):
        def close(self):
            time.sleep(20 * (getattr(self, "at", [0, 0])[1] > 0))

    env = make_env(Hangs)
    state, _ = env.reset(SEEDS)
    state, _ = env.step(state, actions())
    start = time.monotonic()
    state, timestep = env.step(state, actions((0, 0), HANG))
    assert timestep.last.tolist() == [[True, False], [False, False]]
    assert time.monotonic() - start < 10


def test_another_environment_is_not_made_again():
    Fragile.made = 0
    env = make_env()
    state, _ = env.reset(SEEDS)
    before = Fragile.made
    env.step(state, actions((0, 1), RAISE))
    assert Fragile.made == before + 1


def test_a_run_with_restarts_is_saved_and_restored_with_their_number():
    env = make_env()
    state, _ = env.reset(SEEDS)
    for place in ((0, 0), (0, 1), (1, 1)):
        state, _ = env.step(state, actions(place, RAISE))
    saved = env.host.save(state)
    assert saved["restarts"].tolist() == [2, 1]
    restored, warning = env.host.restore(saved)
    assert warning == ""
    assert env.host.restarts(restored).counts.tolist() == [2, 1]
    state, ours = env.step(state, actions())
    restored, theirs = env.step(restored, actions())
    np.testing.assert_array_equal(ours.obs, theirs.obs)


class Stuck(Fragile):
    """Fails in its next resets."""

    failures = 0

    def reset(self, *, seed=None, options=None):
        if type(self).failures:
            type(self).failures -= 1
            raise ZeroDivisionError("at the start")
        return super().reset(seed=seed)


def test_a_reset_that_fails_is_repeated_a_few_times():
    env = make_env(Stuck)
    Stuck.failures = MAX_FAILURES
    state, obs = env.reset(SEEDS)
    assert (obs[..., 1] == 0).all()
    assert env.host.restarts(state).counts.tolist() == [MAX_FAILURES, 0]
    Stuck.failures = MAX_FAILURES + 1
    with pytest.raises(
        RlcliError, match=r"number 0 of seed 5, episode 0.*at the start"
    ):
        env.reset(SEEDS)


def test_a_reset_that_fails_costs_the_others_of_its_vector_their_episodes():
    class Ends(Stuck):
        def step(self, action):
            obs, *_ = super().step(0)
            return obs, 1.0, bool(action), False, {"steps": 1}

    external = ExternalEnvironment("environment `Fragile`", "gymnasium")

    def make(count):
        return SyncVector(Ends, count, None)

    env = host_environment(
        external, SPACES, make, 2, 2, vector_size=2, is_restarting=True
    )
    state, _ = env.reset(SEEDS)
    state, _ = env.step(state, actions())
    Ends.failures = 1
    state, before = env.step(state, actions((0, 0), 1))
    assert before.last.tolist() == [[True, False], [False, False]]
    assert before.discount.tolist() == [[0, 1], [1, 1]]
    np.testing.assert_array_equal(before.obs[..., 1], [[0, 2], [2, 2]])
    state, timestep = env.step(state, actions())
    assert timestep.last.tolist() == [[False, True], [False, False]]
    assert timestep.reward.tolist() == [[1, 0], [1, 1]]
    assert (timestep.discount == 1).all()
    np.testing.assert_array_equal(timestep.next_obs[0, 1], before.obs[0, 1])
    np.testing.assert_array_equal(timestep.obs[..., 1], [[1, 0], [3, 3]])
    assert env.host.restarts(state).counts.tolist() == [1, 0]
    state, timestep = env.step(state, actions())
    assert not timestep.last.any()
    np.testing.assert_array_equal(timestep.obs[..., 1], [[2, 1], [4, 4]])


def test_an_environment_that_never_makes_a_step_ends_the_run():
    env = make_env()
    state, _ = env.reset(SEEDS)
    for _ in range(MAX_FAILURES):
        state, _ = env.step(state, actions((1, 1), RAISE))
    with pytest.raises(RlcliError, match="number 1 of seed 6, episode 3, step 1"):
        env.step(state, actions((1, 1), RAISE))


def make_async_env():
    external = ExternalEnvironment("environment `Fragile`", "gymnasium")
    return host_environment(
        external, SPACES, lambda count: AsyncVector(Fragile, count, None), 2, 2
    )


def test_a_process_that_dies_is_named_with_its_exit_code():
    env = make_async_env()
    state, _ = env.reset(SEEDS)
    label = r"`Fragile` \(number 1 of seed 5, episode 0, step 1\)"
    with pytest.raises(
        RlcliError, match=f"{label}: its process ended with exit code 9"
    ):
        env.step(state, actions((0, 1), DIE))
    env.host.close(state)


def test_a_pool_of_processes_is_made_again_as_a_whole():
    env = make_async_env().host.remake(is_restarting=True)
    state, _ = env.reset(SEEDS)
    state, _ = env.step(state, actions())
    state, timestep = env.step(state, actions((0, 1), DIE))
    assert timestep.last.all() and (timestep.discount == 1).all()
    np.testing.assert_array_equal(timestep.next_obs[..., 1], 1)
    (message,) = env.host.restarts(state).messages
    assert message.endswith("; 4 environments are restarted")
    state, timestep = env.step(state, actions())
    np.testing.assert_array_equal(timestep.obs[..., 1], 1)
    assert not timestep.last.any()
    env.host.close(state)


def test_counts_of_earlier_steps_leave_out_later_restarts():
    restarts = Restarts(np.array([3, 1]), 10, [(0, 4), (0, 9), (1, 9)], [])
    assert restarts.counts_before(0).tolist() == [3, 1]
    assert restarts.counts_before(1).tolist() == [3, 1]
    assert restarts.counts_before(2).tolist() == [2, 0]
    assert restarts.counts_before(7).tolist() == [1, 0]
