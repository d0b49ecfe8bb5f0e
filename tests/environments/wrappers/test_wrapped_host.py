"""Wrappers around environments on the host, compared with stepping Gymnasium."""

import gymnasium
import jax
import numpy as np
import pytest
from gymnasium import wrappers as gym_wrappers

from rlcli import recipe
from rlcli.assembly import build_environment
from rlcli.environments.adapters.host_vector import episode_seed
from rlcli.errors import RlcliError
from rlcli.registry import user_code

SEEDS = np.array([7, 11], np.uint32)
PENDULUM, CART = "gymnasium/Pendulum-v1", "gymnasium/CartPole-v1"


def build(name, wrappers, num_envs=2, **options):
    environment = {"name": name, "num_envs": num_envs, "wrappers": wrappers, **options}
    data = {"environment": environment, "updater": "ppo"}
    return build_environment(recipe.load_recipe(data), len(SEEDS))


def noises(env, steps):
    """The noise of each step, `[steps, S, B, ...]`."""
    keys = jax.random.split(jax.random.key(5), (steps, len(SEEDS)))
    return jax.vmap(jax.vmap(env.draw))(keys)


def play(env, actions):
    """All observations and time steps; actions are canonical, `[T, S, B, ...]`."""
    state, first = env.reset(SEEDS)
    noise, timesteps = noises(env, len(actions)), []
    for time, action in enumerate(actions):
        own = jax.tree.map(lambda leaf, time=time: leaf[time], noise)
        state, timestep = env.step(state, action, own)
        timesteps.append(timestep)
    env.host.close(state)
    return first, jax.tree.map(lambda *leaves: np.stack(leaves), *timesteps), noise


def play_alone(make, actions, seed, environment):
    """(obs, next obs, reward, last) of each step in Gymnasium, with first obs."""
    env, episode = make(), 0
    first, _ = env.reset(seed=episode_seed(seed, environment, episode))
    rows = []
    for action in actions:
        next_obs, reward, terminated, truncated, _ = env.step(action)
        obs = next_obs
        if last := terminated or truncated:
            episode += 1
            obs, _ = env.reset(seed=episode_seed(seed, environment, episode))
        rows.append((obs, next_obs, reward, last))
    return first, [np.array(column) for column in zip(*rows, strict=True)]


def assert_plays_like(env, make, actions, native):
    """`native` are the actions of Gymnasium's environment."""
    first, timesteps, _ = play(env, actions)
    for row, seed in enumerate(SEEDS):
        for column in range(env.num_envs):
            alone = native[:, row, column]
            start, (obs, next_obs, reward, last) = play_alone(make, alone, seed, column)
            place = (slice(None), row, column)
            shape = (len(actions), *env.observation.shape)
            np.testing.assert_allclose(
                first[row, column], start.reshape(shape[1:]), rtol=1e-5, atol=1e-6
            )
            for got, expected in (
                (timesteps.obs, obs.reshape(shape)),
                (timesteps.next_obs, next_obs.reshape(shape)),
                (timesteps.reward, reward),
                (timesteps.last, last),
            ):
                np.testing.assert_allclose(got[place], expected, rtol=2e-5, atol=2e-5)
            assert last.any()


def pendulum(*makers):
    def make():
        env = gymnasium.make("Pendulum-v1", max_episode_steps=15)
        for maker in makers:
            env = maker(env)
        return env

    return make


TORQUES = np.random.default_rng(0).uniform(-1, 1, (40, 2, 2, 1)).astype(np.float32)


@pytest.mark.parametrize(
    ("wrappers", "makers"),
    [
        pytest.param(
            [{"name": "scale_reward", "factor": 0.5}],
            [lambda env: gym_wrappers.TransformReward(env, lambda r: 0.5 * r)],
            marks=pytest.mark.slow,
        ),
        pytest.param(
            [{"name": "clip_reward", "low": -2, "high": -1}],
            [lambda env: gym_wrappers.ClipReward(env, -2, -1)],
            marks=pytest.mark.slow,
        ),
        (
            [{"name": "frame_stack", "frames": 3, "axis": 0}],
            [lambda env: gym_wrappers.FrameStackObservation(env, 3)],
        ),
        # The order: the reward that is clipped is the scaled one.
        (
            [{"name": "scale_reward", "factor": 0.1}, {"name": "clip_reward"}],
            [
                lambda env: gym_wrappers.TransformReward(env, lambda r: 0.1 * r),
                lambda env: gym_wrappers.ClipReward(env, -1, 1),
            ],
        ),
        (
            ["gymnasium.wrappers:TimeAwareObservation"],
            [gym_wrappers.TimeAwareObservation],
        ),
        (
            [
                {
                    "name": "gymnasium.wrappers:FrameStackObservation",
                    "stack_size": 2,
                    "padding_type": "zero",
                },
                {"name": "gymnasium.wrappers:ClipReward", "min_reward": -1},
                "flatten",
            ],
            [
                lambda env: gym_wrappers.FrameStackObservation(
                    env, 2, padding_type="zero"
                ),
                lambda env: gym_wrappers.ClipReward(env, -1),
                gym_wrappers.FlattenObservation,
            ],
        ),
    ],
)
def test_wrappers_on_the_host_are_those_of_gymnasium(wrappers, makers):
    env = build(PENDULUM, wrappers, time_limit=15)
    assert_plays_like(env, pendulum(*makers), TORQUES, 2 * TORQUES)


def test_wrappers_of_gymnasium_wrap_environments_in_processes():
    wrappers = ["gymnasium.wrappers:TimeAwareObservation", "flatten"]
    env = build(PENDULUM, wrappers, 1, time_limit=15, vectorization="async")
    maker = pendulum(gym_wrappers.TimeAwareObservation)
    assert_plays_like(env, maker, TORQUES[:, :, :1], 2 * TORQUES[:, :, :1])


@pytest.mark.filterwarnings("ignore:.*precision lowered")
def test_wrappers_that_change_actions_are_played_on_the_host():
    env = build(PENDULUM, [{"name": "discrete_actions", "bins": 5}], time_limit=15)
    assert env.action == gymnasium.spaces.Discrete(5)
    choices = np.random.default_rng(0).integers(0, 5, (40, 2, 2))
    native = np.linspace(-2, 2, 5, dtype=np.float32)[choices][..., None]
    assert_plays_like(env, pendulum(), choices, native)
    rescaled = {"name": "gymnasium.wrappers:RescaleAction"}
    rescaled |= {"min_action": 0.0, "max_action": 10.0}
    env = build(PENDULUM, [rescaled], time_limit=15)
    assert env.own.action.high == 10
    assert_plays_like(env, pendulum(), TORQUES, 2 * TORQUES)


@pytest.mark.slow
def test_sticky_actions_repeat_where_their_noise_says():
    env = build(CART, [{"name": "sticky_actions", "probability": 0.5}])
    actions = np.random.default_rng(1).integers(0, 2, (60, 2, 2))
    _, timesteps, noise = play(env, actions)
    sticks, played = np.asarray(noise.core[1]) < 0.5, actions.copy()
    for time in range(1, 60):  # the first action of an episode never sticks
        repeats = sticks[time] & ~timesteps.last[time - 1]
        played[time] = np.where(repeats, played[time - 1], actions[time])
    assert timesteps.last.any() and (played != actions).any()
    assert_plays_like(
        build(CART, []), lambda: gymnasium.make("CartPole-v1"), played, played
    )
    _, expected, _ = play(build(CART, []), played)
    for name in ("obs", "next_obs", "reward", "last"):
        assert np.array_equal(getattr(timesteps, name), getattr(expected, name))


@pytest.mark.slow
def test_noise_is_fresh_in_each_environment_and_at_each_reset(is_normal):
    wrappers = [{"name": "observation_noise", "scale": 0.5}]
    actions = np.ones((300, 2, 2), np.int64)
    first, noisy, _ = play(build(CART, wrappers), actions)
    plain_first, plain, _ = play(build(CART, []), actions)
    for got, expected in (
        (noisy.obs, plain.obs),
        (noisy.next_obs, plain.next_obs),
        (noisy.obs[plain.last], plain.obs[plain.last]),  # of the first observations
    ):
        assert is_normal((got - expected).ravel(), 0, 0.5)
        assert np.unique((got - expected).round(6)).size > 0.99 * got.size
    assert np.unique(first - plain_first).size == first.size


@pytest.mark.slow
def test_a_restored_wrapped_environment_continues_exactly():
    wrappers = ["sticky_actions", {"name": "frame_stack", "frames": 2}, "previous"]
    env = build(CART, wrappers)
    state, _ = env.reset(SEEDS)
    noise = noises(env, 30)
    actions = np.random.default_rng(2).integers(0, 2, (30, 2, 2))

    def step(state, time):
        return env.step(state, actions[time], jax.tree.map(lambda x: x[time], noise))

    for time in range(14):
        state, _ = step(state, time)
    arrays = env.host.save(state)
    restored, warning = env.host.restore(arrays)
    assert not warning
    for time in range(14, 30):
        (state, expected), (restored, found) = step(state, time), step(restored, time)
        jax.tree.map(np.testing.assert_array_equal, found, expected)


def test_an_episode_that_is_cut_begins_the_memory_anew():
    env = build(CART, [{"name": "frame_stack", "frames": 2, "axis": 0}])
    state, _ = env.reset(SEEDS)
    noise = jax.tree.map(lambda leaf: leaf[0], noises(env, 1))
    cut = np.array([[True, False], [False, False]])
    _, timestep = env.step(state, np.ones((2, 2), np.int64), noise, cut)
    older, newer = np.split(timestep.obs, 2, axis=-1)
    assert np.array_equal((older == newer).all(-1), cut)


def test_the_info_of_the_environment_passes_the_wrappers():
    wrappers = ["gymnasium.wrappers:RecordEpisodeStatistics"]
    wrappers += [{"name": "scale_reward", "factor": 0.5}]
    env = build(CART, wrappers, info={"episode.r": "last"})
    state, _ = env.reset(SEEDS)
    noise = jax.tree.map(lambda leaf: leaf[0], noises(env, 1))
    total = np.zeros((2, 2))
    for _ in range(30):
        state, timestep = env.step(state, np.ones((2, 2), np.int64), noise)
        total += timestep.reward
        if timestep.last.any():
            break
    ended = timestep.last  # Gymnasium's wrapper is inside of the scale
    assert np.array_equal(timestep.info["episode.r"][ended], 2 * total[ended])


OWN = """
import gymnasium
import jax

from rlcli.types import Core, wrap

class Shift(gymnasium.ObservationWrapper):
    def __init__(self, env, offset: float):
        super().__init__(env)
        self.offset = offset

    def observation(self, observation):
        return observation + self.offset

def bound(env, low=-1.0):
    return gymnasium.wrappers.ClipReward(env, low, 1.0)

def nothing(env):
    return None

class Plain(gymnasium.Env):
    pass

def twice(core: Core) -> Core:
    def step(state, action, noise):
        state, _ = core.step(state, action, noise)
        return core.step(state, action, noise)
    return wrap(core, step=step)

def logging(core: Core) -> Core:
    def step(state, action, noise):
        state, timestep = core.step(state, action, noise)
        return state, timestep._replace(info={"mine": timestep.reward})
    return wrap(core, step=step)

def looped(core: Core) -> Core:
    def step(state, action, noise):
        result = core.step(state, action, noise)
        return jax.lax.fori_loop(
            0, 3, lambda i, old: core.step(old[0], action, noise), result
        )
    return wrap(core, step=step)

def ending(core: Core) -> Core:
    def step(state, action, noise):
        state, timestep = core.step(state, action, noise)
        return state, timestep._replace(last=timestep.last | (timestep.reward < 0))
    return wrap(core, step=step)
"""


@pytest.fixture
def own(tmp_path, fresh_imports):
    (tmp_path / "own_wraps.py").write_text(OWN)
    user_code.search_first(tmp_path)


def test_own_wrappers_are_those_of_gymnasium_with_their_options(own):
    shift = {"name": "own_wraps:Shift", "offset": 2.5}
    env = build(PENDULUM, [shift, {"name": "own_wraps:bound", "low": -0.5}])
    _, timesteps, _ = play(env, TORQUES[:5])
    _, plain, _ = play(build(PENDULUM, []), TORQUES[:5])
    np.testing.assert_allclose(timesteps.obs, plain.obs + 2.5, rtol=1e-6)
    np.testing.assert_allclose(timesteps.reward, plain.reward.clip(-0.5, 1))
    assert isinstance(env.own.make(), gym_wrappers.ClipReward)


def test_a_time_limit_of_the_recipe_is_outside_of_all_wrappers():
    skip = {"name": "gymnasium.wrappers:MaxAndSkipObservation", "skip": 4}
    _, timesteps, _ = play(build(PENDULUM, [skip], time_limit=3), TORQUES[:7])
    assert timesteps.last[:, 0, 0].tolist() == [False, False, True] * 2 + [False]
    # The limit of the id, 200 steps, is inside, as in Gymnasium.
    actions = np.zeros((51, 2, 2, 1), np.float32)
    _, timesteps, _ = play(build(PENDULUM, [skip], time_limit="default"), actions)
    assert np.flatnonzero(timesteps.last[:, 0, 0]).tolist() == [49]


@pytest.mark.parametrize(
    ("name", "wrappers", "message", "hint"),
    [
        (CART, ["action_repeat"], "needs a compiled", "remove"),
        (CART, ["log_return"], "needs a compiled", "remove"),
        (CART, ["own_wraps:twice"], "step its environment once", "remove"),
        (CART, ["own_wraps:looped"], "step its environment once", "remove"),
        (CART, ["own_wraps:logging"], "cannot log `mine`", "remove"),
        (CART, ["own_wraps:ending"], "cannot end episodes", "remove"),
        (CART, ["own_wraps:nothing"], "returned NoneType", ""),
        (CART, ["own_wraps:Plain"], "is an environment", "import path"),
        (CART, ["own_wraps:Shift"], "needs `offset`", ""),
        (CART, [{"name": "own_wraps:Shift", "size": 1}], "no option `size`", ""),
        (CART, ["gymnasium.wrappers:ClipAction"], "cannot be made", ""),
        (
            CART,
            ["previous", "gymnasium.wrappers:ClipReward"],
            "wraps each environment",
            "list `gymnasium.wrappers:ClipReward` before `previous`",
        ),
        (
            "CartPole-v1",
            ["gymnasium.wrappers:ClipReward"],
            "wraps environments of Gymnasium",
            "rlcli list wrappers",
        ),
    ],
)
def test_a_wrapper_that_does_not_fit_is_refused(own, name, wrappers, message, hint):
    with pytest.raises(RlcliError) as caught:
        build(name, wrappers)
    assert message in caught.value.message
    assert hint in (caught.value.hint or "")


def test_a_wrapper_named_by_an_import_path_needs_trust():
    environment = {"name": CART, "wrappers": ["gymnasium.wrappers:ClipReward"]}
    data = {"environment": environment, "updater": "ppo"}
    with pytest.raises(RlcliError, match="would import code") as caught:
        recipe.load_recipe(data, trusted=False)
    assert "--trust" in caught.value.hint
