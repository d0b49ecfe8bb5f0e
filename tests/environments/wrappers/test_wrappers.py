"""Wrappers of actions, rewards and observations."""

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import rlcli
from rlcli import recipe, registry
from rlcli.assembly import build
from rlcli.distributions import action_masks
from rlcli.errors import RlcliError
from rlcli.types import Core, TimeStep

LARGEST = float(np.finfo(np.float32).max)


def counter(length: int = 1_000) -> Core:
    """Observes its last action; the reward is the number of the step."""

    def reset(key):
        del key
        return (jnp.int32(0), jnp.int32(-1)), jnp.float32([0, -1])

    def step(state, action, noise):
        time = state[0] + 1
        obs = jnp.stack([time, action]).astype(jnp.float32)
        end = time >= length
        reward, discount = time.astype(jnp.float32), 1.0 - end
        info = {"logged": reward}
        return (time, action), TimeStep(obs, obs, reward, discount, end, info)

    box = gymnasium.spaces.Box(-np.inf, np.inf, (2,), np.float32)
    space = gymnasium.spaces.Discrete(1_000)
    return Core(reset, step, box, space, lambda s: s, draw=lambda key: ())


def wrap(core: Core, name: str, **options) -> Core:
    return registry.find("wrapper", name).factory(core, **options)


def play_env(env: Core, actions, seed: int = 0) -> tuple[np.ndarray, TimeStep]:
    """The first observation, and the time steps of the actions."""
    keys = jax.random.split(jax.random.key(seed), len(actions) + 1)
    state, first = jax.jit(env.reset)(keys[0])

    def step(state, inputs):
        action, key = inputs
        return env.step(state, action, env.draw(key))

    scan = jax.jit(lambda state, inputs: jax.lax.scan(step, state, inputs)[1])
    timesteps = scan(state, (np.asarray(actions), keys[1:]))
    return jax.device_get((first, timesteps))


def test_sticky_actions_repeat_the_last_action_with_their_probability():
    actions = np.arange(4_000) % 1_000
    _, timesteps = play_env(
        wrap(counter(5_000), "sticky_actions", probability=0.3), actions
    )
    executed = np.asarray(timesteps.obs[:, 1])
    is_repeated = executed != actions
    assert not is_repeated[0]
    # The repeated action is the last executed one, not the last requested one.
    assert np.array_equal(executed[1:][is_repeated[1:]], executed[:-1][is_repeated[1:]])
    repeats = int(is_repeated.sum())
    assert stats.binomtest(repeats, len(actions), 0.3).pvalue > 0.001


def test_action_repeat_sums_rewards_up_to_the_end():
    _, timesteps = play_env(wrap(counter(10), "action_repeat", times=4), [7, 8, 9])
    assert timesteps.obs.tolist() == [[4, 7], [8, 8], [10, 9]]
    assert timesteps.reward.tolist() == [1 + 2 + 3 + 4, 5 + 6 + 7 + 8, 9 + 10]
    assert timesteps.info["logged"].tolist() == timesteps.reward.tolist()
    assert timesteps.last.tolist() == [False, False, True]
    assert timesteps.discount.tolist() == [1, 1, 0]


def test_discrete_actions_cover_the_box_from_corner_to_corner():
    core = counter()
    seen = []

    def step(state, action, noise):
        seen.append(np.asarray(action))
        return core.step(state, jnp.int32(0), noise)

    box = gymnasium.spaces.Box(np.float32([-2, 0]), np.float32([2, 1]))
    env = wrap(core._replace(action=box, step=step), "discrete_actions", bins=3)
    assert env.action == gymnasium.spaces.Discrete(9)
    state, _ = env.reset(jax.random.key(0))
    for choice in range(9):
        env.step(state, jnp.int32(choice), ())
    expected = [[x, y] for y in (0, 0.5, 1) for x in (-2, 0, 2)]
    assert np.allclose(seen, expected)


def test_real_actions_reach_every_point_of_the_box_and_no_other():
    env = wrap(rlcli.make("Pendulum-v1"), "real_actions")
    assert env.action == gymnasium.spaces.Box(-np.inf, np.inf, (1,), np.float32)
    core = rlcli.make("Pendulum-v1")
    state, _ = core.reset(jax.random.key(0))
    for real, torque in ((0.0, 0.0), (100.0, 2.0), (-100.0, -2.0), (np.log(3), 1.0)):
        wrapped = env.step(state, jnp.float32([real]), jax.random.key(1))[1]
        plain = core.step(state, jnp.float32([torque]), jax.random.key(1))[1]
        assert np.allclose(wrapped.next_obs, plain.next_obs, atol=1e-6)
        assert np.allclose(wrapped.reward, plain.reward, atol=1e-5)


@pytest.mark.parametrize("name", ["discrete_actions", "real_actions"])
@pytest.mark.parametrize(
    "box",
    [
        gymnasium.spaces.Box(-LARGEST, LARGEST, (1,)),  # a spelling of infinity
        gymnasium.spaces.Box(0.0, np.inf, (1,)),
        gymnasium.spaces.Box(0, 5, (1,), np.int32),  # 2.5 is no action
    ],
)
def test_actions_without_bounds_or_of_integers_are_not_divided(name, box):
    with pytest.raises(RlcliError, match="needs a bounded Box of actions of floats"):
        wrap(counter()._replace(action=box), name)


def test_rewards_are_scaled_clipped_and_noisy(is_normal):
    scaled = play_env(wrap(counter(), "scale_reward", factor=0.5), [0, 0, 0])[1]
    assert scaled.reward.tolist() == [0.5, 1.0, 1.5]
    clipped = play_env(wrap(counter(), "clip_reward", low=1.5, high=2.5), [0, 0, 0])[1]
    assert clipped.reward.tolist() == [1.5, 2.0, 2.5]
    noisy = play_env(wrap(counter(9_999), "reward_noise", scale=2.0), [0] * 4_000)[1]
    noise = np.asarray(noisy.reward) - np.arange(1, 4_001)
    assert is_normal(noise, 0, 2)


def test_noise_is_added_from_the_first_observation_on(is_normal):
    env = wrap(counter(9_999), "observation_noise", scale=0.5)
    first, timesteps = play_env(env, [3] * 3_000)
    assert not np.array_equal(first, [0, -1])
    noise = np.asarray(timesteps.obs)[:, 1] - 3
    assert is_normal(noise, 0, 0.5)
    assert np.array_equal(timesteps.obs, timesteps.next_obs)


def test_noise_is_added_to_every_member_except_the_mask(is_normal):
    noise = {"name": "observation_noise", "scale": 0.5}
    core = rlcli.make("ConnectFour-v0", wrappers=["flatten"])
    env = rlcli.make("ConnectFour-v0", wrappers=["flatten", noise])
    key = jax.random.key(0)
    (state, _), (bare, _) = env.reset(key), core.reset(key)
    _, timestep = env.step(state, jnp.int32(3), key)
    _, plain = core.step(bare, jnp.int32(3), key)
    assert env.observation["seen"] == gymnasium.spaces.Box(-np.inf, np.inf, (84,))
    for result in (timestep, plain):  # no column is full yet
        np.testing.assert_array_equal(result.obs[action_masks.MASK], np.ones(7))
    noisy = np.asarray(timestep.obs["seen"])
    assert is_normal(noisy - plain.obs["seen"], 0, 0.5)
    assert np.unique(noisy).size == 84


def test_the_previous_action_and_reward_are_added_to_the_observation():
    env = wrap(rlcli.make("CartPole-v1"), "previous")
    assert env.observation.shape == (4 + 2 + 2,)
    core = rlcli.make("CartPole-v1")
    keys = jax.random.split(jax.random.key(0), 2)
    state, obs = env.reset(keys[0])
    assert obs[4:].tolist() == [0, 0, 0, 1]
    bare, plain = core.reset(keys[0])
    assert np.array_equal(obs[:4], plain)
    _, timestep = env.step(state, jnp.int32(1), keys[1])
    _, expected = core.step(bare, jnp.int32(1), keys[1])
    assert np.allclose(timestep.obs, [*expected.obs, 0, 1, 1, 0])


def test_a_recipe_applies_wrappers_from_the_inside_out():
    data = {
        "environment": {
            "name": "Pendulum-v1",
            "num_envs": 3,
            "wrappers": ["previous", {"name": "discrete_actions", "bins": 5}],
        },
        "updater": "q_learning",
    }
    parsed = recipe.load_recipe(data)
    env = build(parsed).environment
    assert env.action == gymnasium.spaces.Discrete(5)
    assert env.observation.shape == (3 + 1 + 2,)
    state, obs = jax.jit(env.reset)(jax.random.key(0))
    assert obs.shape == (3, 6)
    noise = jax.jit(env.draw)(jax.random.key(1))
    _, timestep = jax.jit(env.step)(state, np.int32([0, 2, 4]), noise)
    assert np.allclose(np.asarray(timestep.next_obs)[:, 3], [-1, 0, 1])
    assert recipe.load_recipe(recipe.resolve(parsed)) == parsed


@pytest.mark.parametrize(
    ("environment", "wrapper", "message"),
    [
        ("CartPole-v1", "sticky", "there is no wrapper `sticky`"),
        ("CartPole-v1", {"name": "clip_reward", "lo": 1}, "has no option `lo`"),
        ("CartPole-v1", "real_actions", "needs a bounded Box of actions"),
        ("CartPole-v1", {"name": "discrete_actions"}, "has Discrete(2)"),
        (
            "Pendulum-v1",
            {"name": "discrete_actions", "bins": 20_000},
            "20000^1 actions",
        ),
        (
            "FrozenLakeNonSlippery-v0",
            {"name": "observation_noise", "scale": 1},
            "needs real numbers",
        ),
        ("ConnectFour-v0", "sticky_actions", "`action_mask` forbids"),
        ("ConnectFour-v0", "action_repeat", "`action_mask` forbids"),
        ("gymnasium/CartPole-v1", "action_repeat", "needs a compiled"),
    ],
)
def test_an_incompatible_wrapper_is_refused_with_its_line(
    environment, wrapper, message, tmp_path
):
    data = {"environment": {"name": environment, "wrappers": [wrapper]}}
    path = tmp_path / "mine.yaml"
    path.write_text(recipe.dump_recipe({**data, "updater": "ppo"}))
    with pytest.raises(RlcliError) as caught:
        build(recipe.load_recipe(path))
    assert message in caught.value.message
    assert f"{path}:" in caught.value.message
