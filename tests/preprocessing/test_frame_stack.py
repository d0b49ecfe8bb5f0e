"""Frame stacking, compared with stacks built from the frames."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

from rlcli.assembly import build
from rlcli.distributions import action_masks
from rlcli.environments.adapters.gymnasium import gymnasium_adapter
from rlcli.environments.adapters.host import to_host_environment
from rlcli.environments.vector import vector
from rlcli.errors import RlcliError
from rlcli.preprocessing.frame_stack import frame_stacker, stack_frames
from rlcli.preprocessing.preprocess import diff_transform, frame_stack, one_hot
from rlcli.recipe import load_recipe, resolve
from rlcli.runs.checkpoint import flatten_tree
from rlcli.training.experiment.program import Program
from rlcli.types import Core, TimeStep, Transition

ROW = spaces.Box(-1.0, 200.0, (2,), np.float32)
CHOICE = spaces.Discrete(90, start=10)
IMAGE = spaces.Box(0, 255, (2, 3), np.uint8)
CUBE = spaces.Box(0, 255, (2, 3, 1), np.uint8)
PAIR = spaces.Tuple((ROW, CHOICE))
GRID = spaces.MultiDiscrete([[100, 101], [102, 103]], np.int32, start=[[0, 1], [2, 3]])


def to_element(count, space):
    """A count from 10 to 99 as an element of one of these spaces."""
    if isinstance(space, spaces.Tuple):
        return tuple(to_element(count, each) for each in space)
    if isinstance(space, spaces.Discrete):
        return count
    return jnp.full(space.shape, count, space.dtype)


def make_counter(space, masked=False):
    """A vector of counters that start at random, in episodes of up to five steps."""

    def observe(count):
        obs = to_element(count, space)
        mask = jnp.stack([count % 2, 1])
        return {"view": obs, action_masks.MASK: mask} if masked else obs

    def reset(key):
        count = (10 + jax.random.bits(key) % 80).astype(jnp.int32)
        return count, observe(count)

    def step(count, action, noise):
        count = count + 1
        over = count % 5 == 0
        obs = observe(count)
        return count, TimeStep(obs, obs, 1.0, 1.0 - over, over, {})

    whole = {"view": space, action_masks.MASK: spaces.MultiBinary(2)}
    observation = spaces.Dict(whole) if masked else space
    core = Core(reset, step, observation, spaces.Discrete(2), lambda state: None)
    return vector(lambda _: core._replace(draw=lambda key: ()), 3)


def play_envs(*envs, steps=12):
    """For each of the environments, the observations of a reset and the time steps."""
    action = np.zeros(3, np.int32)

    def step(states, key):
        pairs = zip(envs, states, strict=True)
        played = [env.step(state, action, env.draw(key)) for env, state in pairs]
        return tuple(zip(*played, strict=True))

    @jax.jit
    def play(key):
        states, first = zip(*(env.reset(key) for env in envs), strict=True)
        return first, jax.lax.scan(step, states, jax.random.split(key, steps))[1]

    first, timesteps = jax.device_get(play(jax.random.key(0)))
    return [
        (obs, [rows(each, time) for time in range(steps)])
        for obs, each in zip(first, timesteps, strict=True)
    ]


def rows(tree, index):
    return jax.tree.map(lambda leaf: leaf[index], tree)


def to_frame(leaf):
    return leaf[..., None] if np.ndim(leaf) in (0, 2) else leaf


@pytest.mark.parametrize(
    ("space", "frames", "axis", "masked"),
    [
        (ROW, 3, -1, False),
        pytest.param(CHOICE, 2, -1, False, marks=pytest.mark.slow),
        (IMAGE, 4, -1, False),
        pytest.param(CUBE, 3, 0, False, marks=pytest.mark.slow),
        (PAIR, 2, -1, True),
        pytest.param(GRID, 3, -1, False, marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_a_stack_holds_the_last_frames_of_its_own_episode(space, frames, axis, masked):
    raw = make_counter(space, masked)
    env = stack_frames(raw, [frame_stack(frames=frames, axis=axis)])
    (first, timesteps), (first_stacks, stacked) = play_envs(raw, env)

    def whole(history):
        each = [
            jax.tree.map(to_frame, action_masks.remove_mask(obs)) for obs in history
        ]
        return jax.tree.map(lambda *leaf: np.concatenate(leaf, axis=axis), *each)

    for index in range(3):
        history = [rows(first, index)] * frames
        seen = rows(first_stacks, index)
        for plain, timestep in zip(timesteps, stacked, strict=True):
            assert env.observation.contains(jax.tree.map(np.asarray, seen))
            actual = action_masks.remove_mask(seen)
            jax.tree.map(np.testing.assert_array_equal, actual, whole(history))
            history = [*history[1:], rows(plain.next_obs, index)]
            after = action_masks.remove_mask(rows(timestep.next_obs, index))
            jax.tree.map(np.testing.assert_array_equal, after, whole(history))
            if plain.last[index]:
                history = [rows(plain.obs, index)] * frames
            seen = rows(timestep.obs, index)
            if masked:
                expected = rows(plain.obs, index)[action_masks.MASK]
                np.testing.assert_array_equal(seen[action_masks.MASK], expected)
    assert any(timestep.last.any() for timestep in timesteps)


def test_functions_before_a_stack_are_stacked_and_later_ones_run_in_the_network():
    steps = [one_hot(), frame_stack(frames=2), diff_transform(frames=2)]
    raw = make_counter(CHOICE)
    env = stack_frames(raw, steps)
    assert env.observation.shape == (90 * 2 * 2,)
    first, first_stacks = (
        np.asarray(jax.jit(each.reset)(jax.random.key(0))[1]) for each in (raw, env)
    )
    expected = np.tile(np.eye(90, dtype="f4")[first - 10], (1, 4))
    np.testing.assert_array_equal(first_stacks, expected)


@pytest.mark.slow
def test_host_and_pure_environments_have_the_same_stacks():
    steps = [one_hot(), frame_stack(frames=3)]
    pure = to_host_environment(stack_frames(make_counter(CHOICE), steps), 2)
    host = stack_frames(to_host_environment(make_counter(CHOICE), 2), steps)
    states, seen = zip(*(env.reset(np.arange(2)) for env in (pure, host)), strict=True)
    np.testing.assert_array_equal(*seen)
    states = list(states)
    keys = jax.random.split(jax.random.key(1), 8)
    action = np.zeros((2, 3), int)
    cuts = np.random.default_rng(0).random((8, 2, 3)) < 0.3
    for key, cut in zip(keys, cuts, strict=True):
        noise = jax.vmap(pure.draw)(jax.random.split(key))
        timesteps = []
        for index, env in enumerate((pure, host)):
            states[index], timestep = env.step(states[index], action, noise, cut)
            timesteps.append(timestep)
        frames = timesteps[1].obs.reshape(2, 3, 3, 90)
        assert np.all(frames[cut] == frames[cut][:, :1])  # of the new episode only
        jax.tree.map(np.testing.assert_array_equal, *timesteps)


def test_a_host_environment_is_restored_with_its_stacks():
    inner = gymnasium_adapter("FrozenLake-v1", 2, 1, 100, None)
    env = stack_frames(inner, [one_hot(), frame_stack(frames=3)])
    state, _ = env.reset(np.array([3]))
    actions = np.random.default_rng(0).integers(0, 4, (12, 1, 2))
    for action in actions[:5]:
        state, _ = env.step(state, action)
    restored, warning = env.host.restore(flatten_tree(env.host.save(state)))
    assert warning == ""
    for action in actions[5:]:
        state, timestep = env.step(state, action)
        restored, other = env.step(restored, action)
        jax.tree.map(np.testing.assert_array_equal, timestep, other)
    env.host.close(state)
    env.host.close(restored)


def test_a_missing_axis_is_refused():
    with pytest.raises(RlcliError, match=r"along axis 1 of Box\(2,\)"):
        stack_frames(make_counter(ROW), [frame_stack(axis=1)])


BASE = {"environment": "MountainCar-v0", "updater": "ppo", "train": {"unroll": 4}}


def build_shapes(network, **more):
    """The environment of a recipe, and shapes of what its agent learns."""
    recipe = load_recipe({**BASE, **more, "network": network})
    assert load_recipe(resolve(recipe)) == recipe
    setup = build(recipe)
    environment, agent = setup.environment, setup.agent
    shape = environment.observation.shape
    row = jnp.zeros((4, 1))
    obs = jnp.zeros((4, 1, *shape))
    unroll = Transition(obs, row, row, row, obs, row > 0, row > 0, {})
    return shape, jax.eval_shape(agent.init, jax.random.key(0), unroll)


def test_observations_contain_the_stack_and_networks_preprocess_it():
    memory = {"name": "frame_stack", "frames": 3}
    shape, state = build_shapes({"name": "linear", "preprocess": ["scale", memory]})
    assert shape == (6,)
    assert state.learner.params["value"]["linear"]["w"].shape == (6, 1)
    shape, state = build_shapes(
        {"name": "linear", "preprocess": ["one_hot", "flatten"]}
    )
    assert shape == (2,)
    assert state.learner.params["value"]["linear"]["w"].shape == (2, 1)


def test_networks_may_preprocess_differently_but_must_stack_the_same_frames():
    memory = {"name": "diff_transform", "frames": 2}
    network = {
        "policy": {"name": "linear", "preprocess": [memory, "flatten"]},
        "value": {"name": "mlp", "preprocess": [memory]},
    }
    shape, _ = build_shapes(network)
    assert shape == (4,)
    network["value"]["preprocess"] = ["flatten"]
    with pytest.raises(RlcliError, match="`policy` and `value` stack different"):
        build_shapes(network)


@pytest.mark.slow
def test_the_replay_frames_stores_each_frame_once():
    memory = {"name": "frame_stack", "frames": 4}
    more = {"replay": {"name": "frames", "capacity": 64}, "updater": "q_learning"}
    recipe = load_recipe(
        {**BASE, **more, "network": {"name": "mlp", "preprocess": [memory]}}
    )
    shapes = Program(recipe, build(recipe)).check()
    stored = [x for x in jax.tree.leaves(shapes.agent.replay) if x.dtype == np.float32]
    # Of each step a frame of two numbers, not a stack of four; reward and discount.
    assert sum(leaf.size for leaf in stored) < 64 * (2 + 2 + 1)


@pytest.mark.parametrize(
    "space", [CHOICE, ROW, IMAGE, CUBE, GRID, spaces.MultiBinary((3, 3))], ids=str
)
@pytest.mark.parametrize("axis", [-1, 0])
def test_the_declared_space_is_that_of_the_stacks(space, axis):
    stacker = frame_stacker(space, [frame_stack(frames=3, axis=axis)], 0, np)
    stack = stacker.observation(stacker.init(space.sample()), None)
    assert stacker.spaces[0].contains(stack.astype(stacker.spaces[0].dtype))
