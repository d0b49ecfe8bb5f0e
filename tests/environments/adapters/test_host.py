"""Host environments: resuming, errors, timeouts; and pure ones behind the contract."""

from __future__ import annotations

import re
import threading
import time

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces
from wording import mentions

from rlcli.environments.adapters.host import (
    ExternalEnvironment,
    episode_seed,
    sync_host_environment,
    to_host_environment,
)
from rlcli.errors import RlcliError
from rlcli.spaces import zeros
from rlcli.types import Environment, TimeStep

SEEDS = np.array([5, 6], np.uint32)


class Walk(gymnasium.Env):
    """Walks by the action plus a seeded random step; ends beyond 20."""

    observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space = spaces.Discrete(3)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        # One buffer for all observations, as in some environments.
        self.at = np.array([self.np_random.random(), 0], np.float32)
        return self.at, {}

    def step(self, action):
        self.at += [self.np_random.random(), action]
        return self.at, float(action), bool(self.at[1] > 20), False, {"any": object()}


class Hidden(Walk):
    """Unseeded random observations in environments that start below ½."""

    def step(self, action):
        seen, *rest = super().step(action)
        if self.hides:
            seen[0] = np.random.default_rng().random()
        return seen, *rest

    def reset(self, *, seed=None, options=None):
        seen, info = super().reset(seed=seed)
        self.hides = seen[0] < 0.5
        return seen, info


def make_host_env(kind, num_envs: int = 2, seeds: int = 2, timeout=None) -> Environment:
    external = ExternalEnvironment(
        f"environment `{getattr(kind, '__name__', kind)}`", "gymnasium", timeout
    )
    return sync_host_environment(external, kind, num_envs, seeds)


def play_env(env: Environment, steps: int):
    state, obs = env.reset(SEEDS)
    for step in range(steps):
        state, timestep = env.step(state, np.full(obs.shape[:2], step % 3))
        obs = timestep.obs
    return state, obs


def test_an_episode_is_seeded_by_seed_environment_and_episode_only() -> None:
    assert episode_seed(1, 2, 3) == episode_seed(np.uint32(1), np.int64(2), np.int64(3))
    places = [(s, b, e) for s in range(9) for b in range(9) for e in range(9)]
    assert len({episode_seed(*place) for place in places}) == len(places)
    # Also an int in C where a vector adds the index of an environment to it.
    assert 0 <= episode_seed(2**32 - 1, 0, 0) < 2**30


class Spoils(gymnasium.Env):
    """Adds up its actions, and then overwrites the arrays that it was given."""

    def __init__(self, action_space):
        self.action_space = action_space
        self.observation_space = spaces.Box(-np.inf, np.inf, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.total = np.zeros(1, np.float32)
        return self.total, {}

    def step(self, action):
        for leaf in jax.tree.leaves(action):
            self.total += np.sum(leaf)
            if leaf.shape:
                leaf[...] = 0
        return self.total, 0.0, False, False, {}


@pytest.mark.parametrize(
    "space",
    [
        spaces.Discrete(3, start=1),
        spaces.Box(-2, 2, (3,), np.float32),
        spaces.Box(-2, 2, (3,), np.int64),
        spaces.MultiBinary(3),
        spaces.MultiDiscrete([2, 3], np.int32),
        spaces.MultiDiscrete([2, 3], start=[1, 1]),
        spaces.Tuple(
            [spaces.MultiBinary(2), spaces.Dict(a=spaces.MultiBinary((2, 2)))]
        ),
    ],
    ids=str,
)
def test_an_environment_may_change_its_action_in_place(space) -> None:
    env = make_host_env(lambda: Spoils(space))
    state, _ = env.reset(SEEDS)
    action = jax.tree.map(lambda leaf: np.ones((2, 2, *leaf.shape)), zeros(env.action))
    steps = [env.step(state, action)[1] for _ in range(3)]
    # Each entry is 1 half-width of a Box of floats, or number 1 from the start, which
    # is the lower bound of a Box of integers.
    half = 2 if space.dtype == np.float32 else 1
    lowest = -2 if isinstance(space, spaces.Box) and half == 1 else 0
    native = half + np.asarray(getattr(space, "start", lowest))
    size = sum(leaf.size for leaf in jax.tree.leaves(zeros(space)))
    sums = np.broadcast_to(native, size).sum() * np.arange(1, 4)
    np.testing.assert_array_equal([step.obs[1, 1, 0] for step in steps], sums)
    restored, warning = env.host.restore(env.host.save(state))
    assert warning == ""
    following = env.step(restored, action)[1].obs
    np.testing.assert_array_equal(following, np.full((2, 2, 1), sums[0] * 4))


def test_environments_do_not_depend_on_how_many_there_are() -> None:
    few, many = make_host_env(Walk, 1, 2), make_host_env(Walk, 3, 2)
    np.testing.assert_array_equal(play_env(few, 30)[1], play_env(many, 30)[1][:, :1])


def test_a_host_environment_is_not_pure_and_draws_no_noise() -> None:
    env = make_host_env(Walk)
    assert not env.pure and env.num_envs == 2
    assert env.draw(jax.random.key(0)) == ()


@pytest.mark.parametrize("steps", [0, 1, 25, 70])
def test_saved_arrays_restore_the_environment(steps: int) -> None:
    env = make_host_env(Walk)
    state, obs = play_env(env, steps)
    saved = env.host.save(state)
    assert saved["actions"].shape[:3] == (2, 2, saved["length"].max())
    np.testing.assert_array_equal(saved["obs"], obs)
    np.testing.assert_array_equal(saved["seeds"], SEEDS)
    restored, warning = env.host.restore(saved)
    assert warning == ""
    for action in np.arange(60) % 3:
        state, a = env.step(state, np.full((2, 2), action))
        restored, b = env.step(restored, np.full((2, 2), action))
        for ours, theirs in zip(a[:5], b[:5], strict=True):
            np.testing.assert_array_equal(ours, theirs)


def test_cut_begins_new_episodes_alone_and_they_are_restored() -> None:
    env, cut = make_host_env(Walk), np.array([[False, True], [False, False]])
    state, plain = (play_env(env, 4)[0] for _ in range(2))
    action = np.ones((2, 2), np.int32)
    state, timestep = env.step(state, action, (), cut)
    plain, expected = env.step(plain, action)
    np.testing.assert_array_equal(timestep.next_obs, expected.next_obs)
    assert not timestep.last.any() and np.all(timestep.discount == 1)
    np.testing.assert_array_equal(timestep.obs[~cut], expected.obs[~cut])
    first = Walk().reset(seed=episode_seed(SEEDS[0], 1, 1))[0]
    np.testing.assert_array_equal(timestep.obs[cut], [first])
    for _ in range(3):
        state, timestep = env.step(state, action)
    saved = env.host.save(state)
    np.testing.assert_array_equal(saved["episode"], cut)
    np.testing.assert_array_equal(saved["length"], np.where(cut, 3, 8))
    restored, warning = env.host.restore(saved)
    assert warning == ""
    for _ in range(3):
        state, a = env.step(state, action, (), cut)
        restored, b = env.step(restored, action, (), cut)
        for ours, theirs in zip(a[:5], b[:5], strict=True):
            np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize(
    "space",
    [
        spaces.Box(0, 1, (0,), np.float32),
        spaces.Box(0, 1, (0, 3), np.float32),
        spaces.Dict(a=spaces.Box(0, 1, (0,), np.float32), b=spaces.Discrete(9)),
    ],
    ids=str,
)
def test_observations_without_numbers_are_saved_and_restored(space) -> None:
    class Blank(Walk):
        observation_space = space
        action_space = space

        def reset(self, *, seed=None, options=None):
            return space.sample(), {}

        def step(self, action):
            assert space.contains(action)
            obs = jax.tree.map(np.zeros_like, space.sample())
            return obs, 0.0, False, False, {}

    env = make_host_env(Blank)
    state, _ = env.reset(SEEDS)
    action = jax.tree.map(
        lambda leaf: np.zeros((2, 2, *leaf.shape), leaf.dtype), zeros(env.action)
    )
    for _ in range(3):
        state, timestep = env.step(state, action)
    restored, warning = env.host.restore(env.host.save(state))
    assert warning == ""
    after = env.step(restored, action)[1].obs
    jax.tree.map(np.testing.assert_array_equal, after, timestep.obs)


def test_environments_that_cannot_be_restored_are_named_and_truncated() -> None:
    env = make_host_env(Hidden, 4)
    state, obs = play_env(env, 10)
    hides = np.array([each.hides for each in state.vector.copies]).reshape(2, 4)
    assert hides.any() and not hides.all()
    restored, warning = env.host.restore(env.host.save(state))
    assert f"{hides.sum()} of 8 episodes end here" in warning
    row, column = np.argwhere(hides)[0]
    assert f"(number {column} of seed {SEEDS[row]}, episode 0)" in warning
    saved = env.host.save(
        restored
    )  # saving before the next step changes nothing of that
    restored, second_warning = env.host.restore(saved)
    assert second_warning == warning
    restored, timestep = env.step(restored, np.ones((2, 4), np.int32))
    np.testing.assert_array_equal(timestep.last, hides)
    np.testing.assert_array_equal(timestep.next_obs[hides], obs[hides])
    assert (timestep.discount == 1).all()
    np.testing.assert_array_equal(timestep.reward, np.where(hides, 0, 1))
    np.testing.assert_array_equal(env.host.save(restored)["episode"], hides)
    restored, timestep = env.step(restored, np.ones((2, 4), np.int32))
    assert not timestep.last.any()


def test_an_episode_that_ends_during_the_replay_is_lost() -> None:
    env = make_host_env(Walk)
    state, _ = play_env(env, 5)
    saved = env.host.save(state)
    saved["actions"] = np.full((2, 2, 12), 2)  # ends at the 11th
    saved["length"] = np.full((2, 2), 12)
    restored, warning = env.host.restore(saved)
    assert "4 of 4 episodes end here" in warning and "and 1 more" in warning
    assert env.step(restored, np.zeros((2, 2), int))[1].last.all()


def test_an_error_names_the_environment_seed_and_episode() -> None:
    class Broken(Walk):
        def step(self, action):
            if action == 2:
                raise ZeroDivisionError("by nothing")
            return super().step(action)

    env = make_host_env(Broken)
    state, _ = env.reset(SEEDS)
    with pytest.raises(RlcliError) as caught:
        env.step(state, np.array([[0, 1], [0, 2]]))
    assert re.fullmatch(
        r"environment `Broken` \(number 1 of seed 6, episode 0, step 1\) failed in "
        r"`step`: "
        r"ZeroDivisionError: by nothing \(.*test_host\.py:\d+\)",
        caught.value.message,
    )
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


@pytest.mark.parametrize("swallows", [False, True])
@pytest.mark.parametrize("busy", [False, True])
def test_an_environment_that_hangs_is_interrupted(busy: bool, swallows: bool) -> None:
    class Hangs(Walk):
        def step(self, action):
            began = time.perf_counter()
            try:
                while action and time.perf_counter() - began < 20:
                    time.sleep(0 if busy else 20)
            except Exception:
                if not swallows:
                    raise
            return super().step(action)

    env = make_host_env(Hangs, timeout=0.2)
    state, _ = env.reset(SEEDS)
    env.step(state, np.zeros((2, 2), np.int32))
    began = time.perf_counter()
    with pytest.raises(RlcliError, match=r"`step` took longer than 0\.2 s"):
        env.step(state, np.array([[0, 0], [1, 0]]))
    assert time.perf_counter() - began < 10


def test_in_another_thread_a_slow_step_raises_afterwards() -> None:
    class Slow(Walk):
        def step(self, action):
            time.sleep(0.3 * action)
            return super().step(action)

    problem = []

    def run() -> None:
        state, _ = env.reset(SEEDS)
        try:
            env.step(state, np.array([[0, 0], [0, 1]]))
        except RlcliError as error:
            problem.append(error.message)

    env = make_host_env(Slow, timeout=0.1)
    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert (
        "(number 1 of seed 6, episode 0, step 1): `step` took longer than 0.1 s"
        in problem[0]
    )


def test_an_observation_of_another_shape_is_refused() -> None:
    class Odd(Walk):
        def reset(self, *, seed=None, options=None):
            return np.zeros(1, np.float32), {}

    with pytest.raises(RlcliError, match=r"shape \(1,\), but its space is Box\(2,\)"):
        make_host_env(Odd).reset(SEEDS)


def make_spoiled_env(place: int, value, space=None, at: int = 3):
    """An environment class whose step `at` returns `value` at index `place`.

    `space` is its observation space, by default Box(2,).
    """

    class Spoils(Walk):
        def reset(self, *, seed=None, options=None):
            self.time = 0
            seen, info = super().reset(seed=seed)
            return seen if space is None else space.sample(), info

        def step(self, action):
            self.time += 1
            timestep = list(super().step(action))
            timestep[0] = timestep[0] if space is None else space.sample()
            if self.time == at:
                timestep[place] = value
            return tuple(timestep)

    if space is not None:
        Spoils.observation_space = space
    return Spoils


def play_steps(kind, steps: int = 4) -> TimeStep:
    env = make_host_env(kind)
    state, _ = env.reset(SEEDS)
    for _ in range(steps):
        state, timestep = env.step(state, np.zeros((2, 2), np.int32))
    return timestep


PIXELS = spaces.Box(0, 255, (2,), np.uint8)
CHOICE = spaces.Discrete(3, start=1)
BOTH = spaces.Dict({"at": spaces.Box(-1.0, 1.0, (2,)), "choice": CHOICE})


@pytest.mark.parametrize(
    ("place", "value", "space", "problem"),
    [
        (1, None, None, "a reward that is not a number: None"),
        (1, "1.0", None, "a reward that is not a number: str"),
        (1, np.ones(2), None, "a reward that is not a number: ndarray of shape (2,)"),
        (1, 1 + 2j, None, "a reward that is not a number: complex"),
        (2, None, None, "`terminated` that is not a number: None"),
        (3, "no", None, "`truncated` that is not a number: str"),
        (0, np.zeros(3), None, "an observation of shape (3,), but its space is Box(2"),
        (0, None, None, "an observation of NoneType instead of float32"),
        (0, np.zeros(2, complex), None, "an observation of complex128 instead of fl"),
        (0, [[1], 2], None, "an observation of list instead of float32"),
        (0, np.array([0.5, 0.2]), PIXELS, "an observation of float64 instead of uin"),
        (0, np.array([1, 300]), PIXELS, "an observation of int64 instead of uint8; "),
        (
            0,
            1.5,
            CHOICE,
            "an observation of float64 instead of int32; its space is D",
        ),
        (
            0,
            "a",
            CHOICE,
            "an observation of str instead of int32; its space is Discr",
        ),
        (
            0,
            np.nan,
            CHOICE,
            "an observation of float64 instead of int32; its space i",
        ),
        (0, {"choice": 1}, BOTH, "an observation without the member `at` of its space"),
        (0, None, BOTH, "an observation without the member `at` of its space, Dict("),
    ],
)
def test_an_invalid_timestep_is_refused_with_its_location(place, value, space, problem):
    with pytest.raises(RlcliError) as caught:
        play_steps(make_spoiled_env(place, value, space))
    message = caught.value.message
    where = "environment `Spoils` (number 0 of seed 5, episode 0, step 3): "
    where += "`step` returned "
    assert message.startswith(where + problem)
    assert "wrapper" in caught.value.hint


@pytest.mark.parametrize("number", [7, -(2**31), 2**31 - 1, 2**31, 2**40])
def test_an_observation_of_64_bits_is_never_another_number_in_32(number):
    class Clock(Walk):
        observation_space = spaces.Box(-(2**62), 2**62, (2,), np.int64)

        def reset(self, *, seed=None, options=None):
            return np.full(2, number), {}

    if number < 2**31:
        assert np.all(make_host_env(Clock).reset(SEEDS)[1] == number)
        return
    with pytest.raises(RlcliError, match="numbers beyond int32; its space is Box"):
        make_host_env(Clock).reset(SEEDS)


@pytest.mark.parametrize(
    ("place", "value", "space"),
    [
        (1, 2, None),
        (1, True, None),
        (1, np.float32(2), None),
        (1, np.array([2]), None),
        (2, 0, None),
        (0, np.zeros(2, np.int64), None),
        (0, [0, 1], None),
        (0, np.array([1.0, 255.0]), PIXELS),
        (0, [1, 200], PIXELS),
        (0, 2.0, CHOICE),
        (0, np.array(2), CHOICE),
    ],
)
def test_a_lossless_conversion_is_accepted(place, value, space):
    assert play_steps(make_spoiled_env(place, value, space)).reward.shape == (2, 2)


@pytest.mark.parametrize(
    ("timestep", "problem"),
    [
        (None, "None, not (observation, reward, terminated, truncated, info)"),
        ((1, 2, 3, 4), "tuple of 4, not (observation, reward, terminated, truncated"),
    ],
)
def test_a_step_result_of_another_type_is_refused(timestep, problem):
    class Odd(Walk):
        def step(self, action):
            return timestep

    with pytest.raises(
        RlcliError, match=re.escape(f"step 1): `step` returned {problem}")
    ):
        play_steps(Odd)


def test_a_reset_without_info_is_refused():
    class Old(Walk):
        def reset(self, *, seed=None, options=None):
            return np.zeros(2, np.float32)

    with pytest.raises(RlcliError, match=r"`reset` returned ndarray, not \(obs"):
        make_host_env(Old).reset(SEEDS)


def test_a_step_that_fails_after_a_nan_says_so():
    class Fails(make_spoiled_env(0, np.array([np.nan, 0]))):
        def step(self, action):
            if self.time == 3:
                raise ZeroDivisionError("by nothing")
            return super().step(action)

    with pytest.raises(RlcliError) as caught:
        play_steps(Fails)
    assert mentions(caught.value.message, "previous observation", "not finite")


def test_a_step_that_fails_after_a_nan_action_says_so():
    class Fails(Walk):
        action_space = spaces.Box(-1.0, 1.0, (1,))

        def step(self, action):
            raise ZeroDivisionError("by nothing")

    env = make_host_env(Fails)
    state, _ = env.reset(SEEDS)
    with pytest.raises(RlcliError, match=r"by nothing .*; its action was not finite"):
        env.step(state, np.full((2, 2, 1), np.nan, np.float32))


def test_shapes_are_checked_where_they_enter() -> None:
    env = make_host_env(Walk)
    with pytest.raises(ValueError, match="expected 2 seeds"):
        env.reset(np.zeros(3, np.uint32))
    state, _ = env.reset(SEEDS)
    with pytest.raises(ValueError, match=r"expected actions \(2, 2\)"):
        env.step(state, np.zeros((2, 3), int))
    with pytest.raises(ValueError, match="expected 2 seeds of 2 environments"):
        larger = make_host_env(Walk, 3)
        env.host.restore(larger.host.save(larger.reset(SEEDS)[0]))


def test_closing_closes_every_copy() -> None:
    closed = []

    class Closes(Walk):
        def close(self):
            closed.append(self)

    env = make_host_env(Closes)
    assert len(closed) == 1  # the example that the spaces are taken from
    state, _ = env.reset(SEEDS)
    env.host.close(state)
    assert len(set(map(id, closed))) == 5


def test_an_error_in_close_is_a_warning_and_the_others_are_closed(capsys) -> None:
    closed = []

    class Refuses(Walk):
        def close(self):
            closed.append(self)
            raise RuntimeError("already\x1b[31m closed")

    env = make_host_env(Refuses)
    state, _ = env.reset(SEEDS)
    env.host.close(state)
    assert len(set(map(id, closed))) == 5
    warning = "warning: environment `Refuses` failed in `close`: RuntimeError: already"
    (line,) = capsys.readouterr().err.splitlines()  # one for all of them
    assert line.startswith(warning) and "\x1b" not in line


def drift(num_envs: int) -> Environment:
    """A pure environment of numbers that drift; an episode ends beyond 2."""

    def reset(key):
        at = jax.random.uniform(key, (num_envs,))
        return at, at

    def draw(key):
        return jax.random.normal(key, (num_envs, 2))

    def step(state, action, noise, cut=False):
        moved = state * 0.9 + action + noise[:, 0]
        last = jnp.abs(moved) > 2
        state = jnp.where(last | cut, noise[:, 1], moved)
        discount = 1.0 - last
        return state, TimeStep(state, moved, -moved, discount, last, {"far": moved})

    def render(state, index):
        return np.full((1, 1, 3), state[index])

    space = spaces.Box(-np.inf, np.inf, ())
    return Environment(reset, step, space, space, num_envs, render, draw=draw)


@pytest.mark.parametrize("seeds", [1, 3])
def test_to_host_environment_matches_the_pure_environment(seeds: int) -> None:
    env = drift(4)
    hosted = to_host_environment(env, seeds)
    host = hosted.host
    numbers = np.arange(seeds, dtype=np.uint32)
    state, obs = hosted.reset(numbers)
    pure = [env.reset(jax.random.key(each)) for each in numbers]
    np.testing.assert_array_equal(obs, [each[1] for each in pure])
    states = [each[0] for each in pure]
    step = jax.jit(env.step)
    cuts = np.random.default_rng(0).random((20, seeds, 4)) < 0.2
    for time_ in range(20):
        keys = jax.random.split(jax.random.key(time_), seeds)
        noise, action = jax.vmap(env.draw)(keys), np.full((seeds, 4), 0.1, np.float32)
        state, timestep = hosted.step(state, action, noise, cuts[time_])
        if time_ == 10:
            state, warning = host.restore(host.save(state))
            assert warning == ""
        for row in range(seeds):
            cut = cuts[time_, row]
            states[row], expected = step(states[row], action[row], noise[row], cut)
            ours = jax.tree.map(lambda x, row=row: x[row], timestep)
            jax.tree.map(np.testing.assert_array_equal, ours, expected)
    assert all(isinstance(each, np.ndarray) for each in jax.tree.leaves(timestep))
    assert hosted.render(state, 4 * seeds - 1)[0, 0, 0] == states[-1][-1]
    host.close(state)
    assert not hosted.pure and hosted.num_envs == 4
