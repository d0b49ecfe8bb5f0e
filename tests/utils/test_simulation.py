"""Simulation: environments in Python, as concise as in the README of gymnax."""

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import rlcli
from rlcli.errors import RlcliError
from rlcli.policies.sampled import random
from rlcli.types import Core


def push_towards_the_fall(acting, obs, key):
    """A policy for CartPole with one parameter: the weight of the speed."""
    del key
    return (obs[..., 2] + acting * obs[..., 3] > 0).astype(jnp.int32)


def test_the_core_is_stepped_with_keys_and_has_no_auto_reset():
    env = rlcli.make("Pendulum-v1", g=9.8)
    reset_key, act_key, step_key = jax.random.split(jax.random.key(0), 3)
    state, _ = env.reset(reset_key)
    action = rlcli.spaces.sample(env.action, act_key)
    assert rlcli.spaces.contains(env.action, action)
    state, timestep = env.step(state, action, step_key)
    assert timestep.obs.shape == env.observation.shape
    assert np.array_equal(timestep.obs, timestep.next_obs)
    assert timestep.reward.shape == timestep.last.shape == ()
    assert isinstance(env, Core)


@pytest.mark.slow
def test_the_vector_resets_automatically_at_its_time_limit():
    env = rlcli.make("Pendulum-v1", num_envs=8)
    played = rlcli.rollout(
        env, lambda acting, obs, key: jnp.zeros((8, 1)), (), jax.random.key(1), 401
    )
    assert played.steps.obs.shape == (401, 8, 3)
    ends = np.flatnonzero(np.all(played.steps.last, axis=1))
    assert ends.tolist() == [199, 399]
    assert np.all(np.asarray(played.steps.discount) == 1)
    expected = np.sum(played.steps.reward[:200], axis=0)
    assert np.allclose(played.total, expected, rtol=1e-5)
    assert rlcli.make("Pendulum-v1", num_envs=2, time_limit=None).num_envs == 2


def test_vmap_over_keys_is_a_batch_and_over_parameters_a_population():
    env = rlcli.make("CartPole-v1")
    keys = jax.random.split(jax.random.key(2), 5)

    def total(acting, key):
        return rlcli.rollout(env, push_towards_the_fall, acting, key, 120).total

    batch = jax.jit(jax.vmap(total, (None, 0)))(0.0, keys)
    population = jax.jit(jax.vmap(jax.vmap(total, (None, 0)), (0, None)))
    several = population(np.float32([0.0, 0.5]), keys)
    assert batch.shape == (5,)
    assert several.shape == (2, 5)
    assert np.array_equal(several[0], batch)
    # A policy that uses the speed balances the pole; the angle only does not.
    assert np.all(np.asarray(several[1]) == 120)
    assert np.all(np.asarray(batch) < 120)


def test_the_return_of_a_core_ends_with_its_episode():
    env = rlcli.make("CartPole-v1")
    always_left = lambda acting, obs, key: jnp.int32(0)  # noqa: E731
    played = rlcli.rollout(env, always_left, (), jax.random.key(3), 50)
    length = int(np.argmax(played.steps.last)) + 1
    assert 5 < length < 15
    assert played.total == length
    assert played.steps.first.tolist() == [True] + 49 * [False]


def test_a_policy_acts_in_half_widths_and_the_environment_gets_its_own_units():
    env = rlcli.make("Pendulum-v1")
    policy = random(gymnasium.spaces.Box(-1, 1, (1,)))
    played = rlcli.rollout(env, policy, (), jax.random.key(4), 200)
    torques = np.abs(np.asarray(played.steps.action))
    assert 1.9 < torques.max() <= 2
    # The reward is −(θ² + θ̇² / 10 + u² / 1000) of the torque u.
    cos, sin, speed = np.asarray(played.steps.obs).T
    cost = np.arctan2(sin, cos) ** 2 + speed**2 / 10 + torques[:, 0] ** 2 / 1000
    np.testing.assert_allclose(played.steps.reward, -cost, rtol=1e-4, atol=1e-5)


def test_parameters_may_be_traced():
    def angle(length):
        env = rlcli.make("CartPole-v1", length=length)
        played = rlcli.rollout(
            env, lambda a, o, k: jnp.int32(0), (), jax.random.key(4), 5
        )
        return played.steps.next_obs[-1, 2]

    angles = jax.jit(jax.vmap(angle))(np.float32([0.5, 1.0]))
    assert angles[0] > angles[1] > 0  # a longer pole falls more slowly


CART = "CartPole-v1"


@pytest.mark.parametrize(
    ("name", "given", "message"),
    [
        (CART, {"lenght": 1.0}, "no option `lenght`"),
        ("gymnasium/CartPole-v1", {}, "cannot be compiled"),
        (CART, {"length": -1.0}, "`length` .* expected float > 0"),
        (
            CART,
            {"length": [0.5, 0.7]},
            r"expected float > 0, or a schedule, got `\[0.5, 0.7\]`",
        ),
        (CART, {"length": jnp.array([0.5, 1.0])}, "expected float > 0"),
        (CART, {"length": {"from": 1, "to": 2, "over": 9}}, "there is no run"),
        ("Acrobot-v1", {"book_or_nips": "Book"}, r'expected "book" \| "nips"'),
        ("FrozenLake-v1", {"lake": "6x6"}, r'`lake` .* expected "4x4" \| "8x8"'),
        (CART, {"num_envs": 0}, "`num_envs` .* int ≥ 1"),
        (CART, {"num_envs": 2.5}, "`num_envs` .* int ≥ 1"),
        (CART, {"num_envs": 2, "time_limit": 0}, "`time_limit` .* int ≥ 1"),
        (CART, {"time_limit": 9}, "`time_limit` requires a vector environment"),
        (CART, {"each": {"length": [0.5]}}, "`each` requires a vector environment"),
        (CART, {"num_envs": 2, "each": {"lengths": [1]}}, "cannot vary `lengths`"),
        (
            CART,
            {"num_envs": 2, "each": {"length": [-1]}},
            "`each.length.0` .* float > 0",
        ),
        (CART, {"num_envs": 2, "each": {"length": [1, 2, 3]}}, "has 3 values .* is 2"),
        (CART, {"wrappers": "flatten"}, "is a list"),
        (CART, {"wrappers": [3]}, "expected a wrapper's name"),
        (CART, {"wrappers": [{"frames": 2}]}, "a mapping with `name`"),
        (CART, {"wrappers": ["scale_reward"]}, "needs `factor`"),
        (CART, {"wrappers": [{"name": "frame_stack", "frame": 2}]}, "option `frame`"),
    ],
)
def test_arguments_that_a_recipe_would_refuse_are_refused(name, given, message):
    with pytest.raises(RlcliError, match=message):
        rlcli.make(name, **given)


def test_tracing_other_parameters_is_refused():
    def reset(x_threshold):
        return rlcli.make(CART, x_threshold=x_threshold).reset(jax.random.key(0))[1]

    assert reset(jnp.float32(3.0)).shape == (4,)
    with pytest.raises(RlcliError, match=r"`x_threshold` .* cannot be traced"):
        jax.vmap(reset)(jnp.array([2.0, 3.0]))


def test_each_environment_may_have_its_own_parameters():
    """Environment i has value i modulo their number, as in a recipe."""
    lengths = np.float32([0.5, 1.0])
    env = rlcli.make(CART, num_envs=3, each={"length": lengths})
    key, push = jax.random.key(0), np.ones(3, np.int32)
    state, _ = jax.jit(env.reset)(key)
    actual = np.asarray(jax.jit(env.step)(state, push, key)[1].obs)

    @jax.jit
    def obs_of(length):
        return rlcli.make(CART, num_envs=3, length=length).step(state, push, key)[1].obs

    for index in range(3):
        expected = np.asarray(obs_of(lengths[index % 2]))
        np.testing.assert_allclose(actual[index], expected[index], rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("num_envs", [None, 3])
def test_statistics_are_those_of_each_episode_to_its_end(num_envs):
    """Compared with sums of rewards in NumPy."""
    env = rlcli.make("bsuite/Catch", rows=3, num_envs=num_envs, statistics=True)
    shape = () if num_envs is None else (num_envs,)
    keys = jax.random.split(jax.random.key(1), 7)
    state, _ = jax.jit(env.reset)(jax.random.key(0))
    step, still = jax.jit(env.step), np.zeros(shape, np.int32)
    total, length = np.zeros(shape), np.zeros(shape, int)
    for key in keys:
        state, timestep = jax.device_get(step(state, still, key))
        total, length = total + timestep.reward, length + 1
        np.testing.assert_array_equal(timestep.info["episode_return"], total)
        np.testing.assert_array_equal(timestep.info["episode_length"], length)
        total, length = (np.where(timestep.last, 0, each) for each in (total, length))


def test_wrappers_are_those_of_a_recipe():
    wrappers = ["flatten", {"name": "scale_reward", "factor": 3.0}, "previous"]
    env = rlcli.make("bsuite/Catch", rows=2, num_envs=4, wrappers=wrappers)
    plain = rlcli.make("bsuite/Catch", rows=2, num_envs=4)
    key, still = jax.random.key(0), np.ones(4, np.int32)

    @jax.jit
    def play(key):
        (state, obs), (bare, board) = env.reset(key), plain.reset(key)
        _, timestep = env.step(state, still, key)
        return obs, board, timestep, plain.step(bare, still, key)[1]

    obs, board, timestep, expected = jax.device_get(play(key))
    np.testing.assert_array_equal(obs[:, :10], board.reshape(4, 10))
    assert expected.last.all()
    np.testing.assert_array_equal(timestep.reward, 3 * expected.reward)
    np.testing.assert_array_equal(timestep.next_obs[:, 13], 3 * expected.reward)
