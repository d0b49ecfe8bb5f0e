"""Observation wrappers, compared with Gymnasium."""

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces
from tiers import quick_first

import rlcli
from rlcli import registry
from rlcli.distributions import action_masks
from rlcli.environments.vector import vector
from rlcli.errors import RlcliError
from rlcli.types import Core, TimeStep


def scripted_environment(space: gymnasium.Space, observations: list) -> Core:
    """Returns the given observations in order, from a random start."""
    stacked = jax.tree.map(lambda *leaves: jnp.asarray(np.stack(leaves)), *observations)

    def observe(at):
        return jax.tree.map(lambda leaf: leaf[at], stacked)

    def reset(key):
        at = jax.random.randint(key, (), 0, len(observations) - 5)
        return {"at": at, "even": at % 2 == 0}, observe(at)

    def step(state, action, noise):
        at = state["at"] + 1
        obs, off = observe(at), jnp.bool_(False)
        state = {"at": at, "even": at % 2 == 0}
        return state, TimeStep(obs, obs, jnp.float32(1), jnp.float32(1), off, {})

    pick = spaces.Discrete(2)
    return Core(reset, step, space, pick, lambda s: s, draw=lambda key: ())


def wrap(core: Core, name: str, **options) -> Core:
    return registry.find("wrapper", name).factory(core, **options)


def sample_space(space: gymnasium.Space, count: int = 20) -> list:
    space.seed(3)
    return [space.sample() for _ in range(count)]


def play_env(env: Core, steps: int = 4, seed: int = 0):
    state, first = env.reset(jax.random.key(seed))
    trajectory = [first]
    for _ in range(steps):
        state, timestep = env.step(state, jnp.int32(0), ())
        np.testing.assert_array_equal(
            *(jax.tree.leaves(obs)[0] for obs in (timestep.obs, timestep.next_obs))
        )
        trajectory.append(timestep.obs)
    return trajectory


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
    observations = sample_space(space)
    env = wrap(scripted_environment(space, observations), name)
    state, _ = scripted_environment(space, observations).reset(jax.random.key(0))
    expected = spaces.flatten_space(space)
    assert env.observation.shape == expected.shape
    for at, seen in enumerate(play_env(env), int(state["at"])):
        assert env.observation.contains(np.asarray(seen))
        np.testing.assert_allclose(seen, spaces.flatten(space, observations[at]))
    assert np.array_equal(env.observation.low, expected.low)
    assert np.array_equal(env.observation.high, expected.high)


def test_entries_of_observations_are_selected():
    space = spaces.Box(np.float32([-1, -2, -3]), np.float32([1, 2, 3]))
    observations = sample_space(space)
    core = scripted_environment(space, observations)
    env = wrap(core, "entries", of=[2, 0])
    start = int(core.reset(jax.random.key(0))[0]["at"])
    assert env.observation == spaces.Box(np.float32([-3, -1]), np.float32([3, 1]))
    expected = [obs[[2, 0]] for obs in observations[start : start + 5]]
    np.testing.assert_array_equal(play_env(env), expected)


@pytest.mark.parametrize(
    "space", [spaces.Box(-1, 1, (2,)), spaces.Box(0, 9, (2, 2), np.uint8)]
)
def test_stacked_frames_match_gymnasium(space):
    observations = sample_space(space)

    class ScriptedEnv(gymnasium.Env):
        observation_space, action_space = space, spaces.Discrete(2)

        def reset(self, *, seed=None, options=None):
            self.at = int(
                scripted_environment(space, observations).reset(jax.random.key(0))[0][
                    "at"
                ]
            )
            return observations[self.at], {}

        def step(self, action):
            self.at += 1
            return observations[self.at], 1.0, False, False, {}

    reference = gymnasium.wrappers.FrameStackObservation(ScriptedEnv(), 3)
    expected = [reference.reset()[0], *(reference.step(0)[0] for _ in range(4))]
    # Gymnasium adds an axis for the stack, rlcli joins observations along an existing
    # axis. An observation with two axes is an image with one channel.
    at = {"axis": 0} if len(space.shape) == 1 else {}
    env = wrap(scripted_environment(space, observations), "frame_stack", frames=3, **at)
    flat = [np.concatenate(each, 0) if at else np.stack(each, -1) for each in expected]
    assert env.observation.shape == flat[0].shape
    assert env.observation.dtype == space.dtype
    np.testing.assert_array_equal(play_env(env), flat)
    assert all(env.observation.contains(np.asarray(each)) for each in play_env(env))


def test_stacked_discrete_observations_are_multi_discrete():
    observations = [np.int32(2 + i % 3) for i in range(20)]
    env = wrap(
        scripted_environment(spaces.Discrete(3, start=2), observations),
        "frame_stack",
        frames=2,
    )
    assert env.observation == spaces.MultiDiscrete([3, 3], np.int32, start=[2, 2])
    for seen in play_env(env):
        assert env.observation.contains(np.asarray(seen))


def test_a_stack_resets_with_each_episode():
    observations = [np.float32([i]) for i in range(20)]
    core = scripted_environment(spaces.Box(0, 30, (1,)), observations)
    env = vector(lambda _: wrap(core, "frame_stack", frames=2), 3, time_limit=2)
    state, _ = jax.jit(env.reset)(jax.random.key(0))
    draw, step = jax.jit(env.draw), jax.jit(env.step)
    for key in jax.random.split(jax.random.key(1), 2):
        state, timestep = step(state, np.zeros(3, np.int32), draw(key))
    timestep = jax.device_get(timestep)
    first, second = np.moveaxis(timestep.obs, 1, 0)
    assert timestep.last.all()
    np.testing.assert_array_equal(first, second)
    np.testing.assert_array_equal(np.diff(timestep.next_obs)[:, 0], [1, 1, 1])


def test_a_core_does_not_reset_itself():
    """The last observation of an episode is of the terminal state, also stacked."""
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


@pytest.mark.parametrize(
    "name", quick_first(["flatten", "frame_stack", "expose_state", "previous"], quick=2)
)
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
    core = scripted_environment(space, [np.float32([i]) for i in range(20)])
    env = wrap(core, "expose_state")
    state, _ = env.reset(jax.random.key(0))
    for seen in play_env(env):
        plain = {"observation": np.asarray(seen["observation"])}
        plain["state"] = tuple(np.asarray(leaf) for leaf in seen["state"])
        assert env.observation.contains(plain)
        again = jax.tree.unflatten(jax.tree.structure(state), seen["state"])
        _, timestep = core.step(again, jnp.int32(0), ())
        assert float(timestep.obs[0]) == float(seen["observation"][0]) + 1


def test_an_incompatible_observation_is_refused():
    image = scripted_environment(
        spaces.Box(0, 1, (2,)), sample_space(spaces.Box(0, 1, (2,)))
    )
    with pytest.raises(RlcliError, match=r"along axis 1 of Box"):
        wrap(image, "frame_stack", axis=1)
    keyed = image._replace(reset=lambda key: (key, jnp.zeros(2)))
    with pytest.raises(RlcliError, match="random key"):
        wrap(keyed, "expose_state")
