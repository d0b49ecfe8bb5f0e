"""What holds for every environment of ours that a recipe may name."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlcli import registry
from rlcli.environments.vector import keyed, vector

OURS = [name for name in registry.names("environment") if not name.endswith("/")]


@pytest.fixture(params=OURS)
def name(request):
    return request.param


@functools.cache
def make(name):
    return registry.find("environment", name).factory()


@pytest.fixture
def core(name):
    return make(name)


def sampled(space, batch):
    return jnp.stack([jnp.asarray(space.sample()) for _ in range(batch)])


@functools.cache
def walked(name):
    """Observations `[T, B, ...]` of random play, and the state it ends in."""
    core = make(name)
    core.action.seed(0)
    env = keyed(vector(lambda values: core, 3, time_limit=10))
    state, obs = env.reset(jax.random.key(0))
    seen, step = [obs], jax.jit(env.step)
    for key in jax.random.split(jax.random.key(1), 25):
        state, timestep = step(state, sampled(core.action, 3), key)
        seen += [timestep.obs, timestep.next_obs]
    return np.stack(seen), state


def test_there_are_some():
    assert {"CartPole-v1", "FrozenLakeNonSlippery-v0", "probe-two-steps"} <= set(OURS)


def test_it_is_a_core_without_a_batch(core):
    assert core.num_envs == 0
    assert core.pure


def test_observations_are_in_its_space_with_its_dtype(name, core):
    seen, _ = walked(name)
    assert seen.dtype == core.observation.dtype
    for obs in seen.reshape(-1, *core.observation.shape):
        assert core.observation.contains(obs if obs.ndim else obs[()])


def test_a_core_ends_an_episode_where_its_discount_is_0(core):
    state, obs = core.reset(jax.random.key(0))
    noise = core.draw(jax.random.key(1))
    after, timestep = core.step(state, sampled(core.action, 1)[0], noise)
    assert jax.tree.structure(after) == jax.tree.structure(state)
    assert bool(timestep.last) == (float(timestep.discount) == 0.0)
    np.testing.assert_array_equal(timestep.obs, timestep.next_obs)
    assert timestep.obs.shape == obs.shape
    assert timestep.reward.dtype == timestep.discount.dtype == jnp.float32
    assert timestep.reward.shape == timestep.last.shape == ()


def test_it_draws_itself_without_a_display(name, core, monkeypatch):
    monkeypatch.delenv("DISPLAY", raising=False)
    _, state = walked(name)
    env = vector(lambda values: core, 3, time_limit=10)
    frame = env.render(state, 1)
    assert frame.dtype == np.uint8
    assert frame.ndim == 3
    assert frame.shape[-1] == 3
    assert len(np.unique(frame.reshape(-1, 3), axis=0)) > 5
    np.testing.assert_array_equal(frame, env.render(state, 1))


def test_it_says_what_it_is(name):
    documentation = registry.find("environment", name).factory.__doc__
    assert documentation
    assert len(documentation.splitlines()) > 2
