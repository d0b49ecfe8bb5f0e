"""Observations in other forms, beside Gymnasium's own."""

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

import rlcli
from rlcli import action_masks, registry
from rlcli.environments.vector import vector
from rlcli.errors import RlcliError
from rlcli.types import Environment, TimeStep


def teller(space: gymnasium.Space, told: list) -> Environment:
    """Shows what it is told to, one after the other, from wherever it begins."""
    every = jax.tree.map(lambda *each: jnp.asarray(np.stack(each)), *told)

    def seen(at):
        return jax.tree.map(lambda leaf: leaf[at], every)

    def reset(key):
        at = jax.random.randint(key, (), 0, len(told) - 5)
        return {"at": at, "even": at % 2 == 0}, seen(at)

    def step(state, action, noise):
        at = state["at"] + 1
        obs, off = seen(at), jnp.bool_(False)
        state = {"at": at, "even": at % 2 == 0}
        return state, TimeStep(obs, obs, jnp.float32(1), jnp.float32(1), off, {})

    pick = spaces.Discrete(2)
    return Environment(reset, step, space, pick, lambda s: s, draw=lambda key: ())


def wrap(core: Environment, name: str, **options) -> Environment:
    return registry.find("wrapper", name).factory(core, **options)


def sample_space(space: gymnasium.Space, count: int = 20) -> list:
    space.seed(3)
    return [space.sample() for _ in range(count)]


def play_env(env: Environment, steps: int = 4, seed: int = 0):
    state, first = env.reset(jax.random.key(seed))
    seen = [first]
    for _ in range(steps):
        state, timestep = env.step(state, jnp.int32(0), ())
        np.testing.assert_array_equal(
            *(jax.tree.leaves(each)[0] for each in (timestep.obs, timestep.next_obs))
        )
        seen.append(timestep.obs)
    return seen


@pytest.mark.parametrize(
    ("name", "space"),
    [
        ("flatten", spaces.Box(-2, 3, (2, 3))),
        ("flatten", spaces.Box(0, 255, (2, 2), np.uint8)),
        ("flatten", spaces.MultiBinary(3)),
        ("flatten", spaces.Tuple([spaces.Discrete(3), spaces.Box(0, 1, (2,))])),
        ("flatten", spaces.Dict({"b": spaces.Discrete(2), "a": spaces.Box(0, 1)})),
        ("one_hot", spaces.Discrete(4, start=2)),
        ("one_hot", spaces.MultiDiscrete([3, 2], start=[1, 0])),
    ],
)
def test_flat_vectors_match_gymnasium(name, space):
    told = sample_space(space)
    env = wrap(teller(space, told), name)
    state, _ = teller(space, told).reset(jax.random.key(0))
    expected = spaces.flatten_space(space)
    assert env.observation.shape == expected.shape
    for at, seen in enumerate(play_env(env), int(state["at"])):
        assert env.observation.contains(np.asarray(seen))
        np.testing.assert_allclose(seen, spaces.flatten(space, told[at]))
    assert np.array_equal(env.observation.low, expected.low)
    assert np.array_equal(env.observation.high, expected.high)


@pytest.mark.parametrize(
    "space", [spaces.Box(-1, 1, (2,)), spaces.Box(0, 9, (2, 2), np.uint8)]
)
def test_stacked_frames_match_gymnasium(space):
    told = sample_space(space)

    class Told(gymnasium.Env):
        observation_space, action_space = space, spaces.Discrete(2)

        def reset(self, *, seed=None, options=None):
            self.at = int(teller(space, told).reset(jax.random.key(0))[0]["at"])
            return told[self.at], {}

        def step(self, action):
            self.at += 1
            return told[self.at], 1.0, False, False, {}

    theirs = gymnasium.wrappers.FrameStackObservation(Told(), 3)
    expected = [theirs.reset()[0], *(theirs.step(0)[0] for _ in range(4))]
    # Gymnasium's stack has an axis of its own, ours is joined along one that is there,
    # and what has two is an image, of one channel.
    at = {"axis": 0} if len(space.shape) == 1 else {}
    ours = wrap(teller(space, told), "frame_stack", frames=3, **at)
    flat = [np.concatenate(each, 0) if at else np.stack(each, -1) for each in expected]
    assert ours.observation.shape == flat[0].shape
    assert ours.observation.dtype == space.dtype
    np.testing.assert_array_equal(play_env(ours), flat)
    assert all(ours.observation.contains(np.asarray(each)) for each in play_env(ours))


def test_stacked_discrete_observations_are_multi_discrete():
    told = [np.int32(2 + i % 3) for i in range(20)]
    env = wrap(teller(spaces.Discrete(3, start=2), told), "frame_stack", frames=2)
    assert env.observation == spaces.MultiDiscrete([3, 3], np.int32, start=[2, 2])
    for seen in play_env(env):
        assert env.observation.contains(np.asarray(seen))


def test_a_stack_resets_with_each_episode():
    told = [np.float32([i]) for i in range(20)]
    core = teller(spaces.Box(0, 30, (1,)), told)
    env = vector(lambda _: wrap(core, "frame_stack", frames=2), 3, time_limit=2)
    state, _ = env.reset(jax.random.key(0))
    for key in jax.random.split(jax.random.key(1), 2):
        state, timestep = env.step(state, jnp.zeros(3, int), env.draw(key))
    first, second = np.moveaxis(np.asarray(timestep.obs), 1, 0)
    assert timestep.last.all()
    np.testing.assert_array_equal(first, second)
    np.testing.assert_array_equal(np.diff(timestep.next_obs)[:, 0], [1, 1, 1])


def test_a_core_does_not_reset_itself():
    """What is shown at an end is what was seen there, of a stack as of anything."""
    core = rlcli.make("bsuite/Catch", rows=3)
    env = rlcli.make("bsuite/Catch", rows=3, wrappers=["flatten", "frame_stack"])
    key = jax.random.key(0)
    (state, _), (inner, first) = env.reset(key), core.reset(key)
    seen = [first]
    for _ in range(2):
        state, timestep = env.step(state, jnp.int32(1), key)
        inner, plain = core.step(inner, jnp.int32(1), key)
        seen.append(plain.next_obs)
    assert bool(timestep.last)
    expected = np.concatenate([np.ravel(each) for each in [seen[0], *seen]])
    np.testing.assert_array_equal(timestep.obs, expected)
    np.testing.assert_array_equal(timestep.next_obs, expected)


@pytest.mark.parametrize("name", ["flatten", "frame_stack", "expose_state", "previous"])
def test_an_action_mask_is_unchanged(name):
    core = rlcli.make("ConnectFour-v0")
    env = rlcli.make("ConnectFour-v0", wrappers=[name])
    assert (
        action_masks.split_mask(env.observation)[1]
        == action_masks.split_mask(core.observation)[1]
    )
    key = jax.random.key(0)
    (state, _), (inner, _) = env.reset(key), core.reset(key)
    for _ in range(3):
        state, timestep = env.step(state, jnp.int32(3), key)
        inner, plain = core.step(inner, jnp.int32(3), key)
        mask = plain.next_obs[action_masks.MASK]
        np.testing.assert_array_equal(timestep.next_obs[action_masks.MASK], mask)
        assert rlcli.spaces.contains(env.observation, timestep.obs)


def test_a_step_can_continue_from_the_exposed_state():
    space = spaces.Box(0, 30, (1,))
    core = teller(space, [np.float32([i]) for i in range(20)])
    env = wrap(core, "expose_state")
    state, _ = env.reset(jax.random.key(0))
    for seen in play_env(env):
        plain = {"observation": np.asarray(seen["observation"])}
        plain["state"] = tuple(np.asarray(leaf) for leaf in seen["state"])
        assert env.observation.contains(plain)
        again = jax.tree.unflatten(jax.tree.structure(state), seen["state"])
        _, ahead = core.step(again, jnp.int32(0), ())
        assert float(ahead.obs[0]) == float(seen["observation"][0]) + 1


def test_an_incompatible_observation_is_refused():
    image = teller(spaces.Box(0, 1, (2,)), sample_space(spaces.Box(0, 1, (2,))))
    with pytest.raises(RlcliError, match=r"along axis 1 of Box"):
        wrap(image, "frame_stack", axis=1)
    keyed = image._replace(reset=lambda key: (key, jnp.zeros(2)))
    with pytest.raises(RlcliError, match="random key"):
        wrap(keyed, "expose_state")
