"""The contract of adapters: the same tests for all installed libraries.

All run behind the host contract, which also wraps pure environments.
"""

from __future__ import annotations

import copy
import functools
import importlib.util
import sys
from typing import Any, NamedTuple

import cloudpickle
import gymnasium
import jax
import numpy as np
import pytest
from gymnasium import spaces

from rlcli import registry
from rlcli.assembly import build
from rlcli.environments.adapters.host import to_host_environment
from rlcli.errors import RlcliError
from rlcli.recipe import load_recipe
from rlcli.registry.libraries import install_command
from rlcli.types import ArrayTree, Environment, TimeStep

SEEDS, BATCH, STEPS = np.array([3, 11], np.uint32), 3, 25


class Case(NamedTuple):
    """An environment that represents its adapter."""

    name: str
    package: str  # without which it is skipped
    options: dict[str, Any] = {}  # noqa: RUF012 # never changed
    limit: int | None = 9  # steps, so that episodes end
    exact: bool = True  # whether what was saved comes back
    late: int = 0  # steps that an episode begins late
    is_slow: bool = False  # because its processes import much, at every reset


CASES = [
    Case("gymnasium/CartPole-v1", "gymnasium"),
    Case("gymnasium/Pendulum", "gymnasium"),
    Case("gymnasium/Blackjack-v1", "gymnasium"),
    Case("gymnasium/rlcli_test/Many-v0", "gymnasium"),
    Case("gymnasium/rlcli_test/Many-v0", "gymnasium", {"vectorization": "async"}),
    Case(
        "gymnasium/CartPole-v1",
        "gymnasium",
        {"vectorization": "own"},
        exact=False,
        late=1,
    ),
    Case("gymnax/CartPole-v1", "gymnax"),
    Case("gymnax/Catch-bsuite", "gymnax"),
    Case("gymnax/Pendulum-v1", "gymnax"),
    Case(
        "gymnax/FourRooms-misc",
        "gymnax",
        {"options": {"max_steps_in_episode": 5}},
        limit=None,
    ),
    Case("pgx/2048", "pgx"),
    Case("envpool/CartPole-v1", "envpool", exact=False),
    Case("envpool/Pendulum-v1", "envpool", exact=False),
    Case("envpool/FrozenLake-v1", "envpool", exact=False),
    Case("pettingzoo/mpe2/simple_spread_v3", "mpe2"),
    Case("gymnasium/Hopper-v5", "mujoco"),
    Case(
        "gymnasium/PointMaze_UMaze-v3",
        "gymnasium_robotics",
    ),
    Case("gymnasium/BabyAI-GoToLocal-v0", "minigrid", {"text": "tokens"}),
    Case(
        "gymnasium/BabyAI-GoToLocal-v0",
        "minigrid",
        {"text": "tokens", "vectorization": "async"},
        is_slow=True,
    ),
    Case("gymnasium/ALE/Breakout-v5", "ale_py"),
    Case(
        "gymnasium/ALE/Pong",
        "ale_py",
        {"vectorization": "async", "atari": {"stack": 2, "grayscale_obs": False}},
    ),
    Case("gymnasium/ALE/Freeway-v5", "ale_py", {"atari": "raw"}),
    Case(
        "gymnasium/ALE/Pong-v5",
        "ale_py",
        {"vectorization": "own", "atari": {"stack": 2, "grayscale_obs": False}},
        exact=False,
    ),
    Case("pgx/minatar-breakout", "pgx", {"action_mask": False}),
    Case("brax/fast", "brax"),
    Case("brax/inverted_pendulum", "brax", {"backend": "spring"}),
    Case("playground/CartpoleBalance", "mujoco_playground"),
    Case("jaxmarl/MPE_simple_spread_v3", "jaxmarl"),
    Case("craftax/Craftax-Classic-Symbolic-v1", "craftax"),
    Case("jumanji/Snake-v1", "jumanji"),
    Case("jumanji/Tetris-v0", "jumanji"),
    Case("jumanji/RubiksCube-v0", "jumanji", {"options": {"time_limit": 5}}, limit=7),
    Case("jumanji/Game2048-v1", "jumanji", {"action_mask": False}),
    Case("xminigrid/MiniGrid-Empty-5x5", "xminigrid"),
    Case("xminigrid/XLand-MiniGrid-R1-9x9", "xminigrid"),
    Case("navix/Navix-Empty-Random-5x5-v0", "navix", {"first_person": True}),
    Case("navix/Navix-DoorKey-5x5-v0", "navix", {"view": "categorical"}),
]


class Many(gymnasium.Env):
    """Observations and actions with many members; a sum of all is the reward."""

    observation_space = spaces.Dict(
        {
            "way": spaces.MultiDiscrete([3, 4], start=[1, -1]),
            "seen": spaces.Tuple(
                [
                    spaces.Box(-1, 1, (2, 2), np.float64),
                    spaces.Discrete(3, start=5),
                    spaces.MultiBinary(2),
                ]
            ),
        }
    )
    action_space = spaces.Tuple(
        [
            spaces.Discrete(3, start=2),
            spaces.Dict(
                {
                    "push": spaces.Box(-1, 1, (2,), np.float32),
                    "ways": spaces.MultiDiscrete([2, 3], start=[0, 7]),
                    "keys": spaces.MultiBinary(3),
                }
            ),
        ]
    )

    def __init__(self):
        self.observation_space = copy.deepcopy(Many.observation_space)  # draws alone

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.observation_space.seed(seed)
        return self.observation_space.sample(), {}

    def step(self, action):
        assert action in self.action_space
        obs = self.observation_space.sample()
        flat_action = spaces.flatten(self.action_space, action)
        seen = spaces.flatten(self.observation_space, obs)
        return (
            obs,
            flat_action @ np.arange(len(flat_action)) + seen[0],
            seen[1] > 0.9,
            False,
            {},
        )


@pytest.fixture(autouse=True, scope="module")
def many_env_id():
    """Registers the environment, also for processes that cannot import this file."""
    gymnasium.register("rlcli_test/Many-v0", Many)
    module = sys.modules[__name__]
    cloudpickle.register_pickle_by_value(module)
    yield
    cloudpickle.unregister_pickle_by_value(module)
    gymnasium.registry.pop("rlcli_test/Many-v0")


def make_case(case):
    missing = importlib.util.find_spec(case.package) is None
    reason = f"`{case.package}` is not installed"
    name = "-".join([case.name, *map(str, case.options.values())])
    marks = [pytest.mark.skipif(missing, reason=reason)]
    marks += [pytest.mark.slow] if case.is_slow else []
    return pytest.param(case, marks=marks, id=name)


@pytest.fixture(scope="module", params=map(make_case, CASES))
def case(request) -> Case:
    return request.param


@pytest.fixture(scope="module")
def environment(case) -> Environment:
    """The environment as built from a recipe."""
    environment_options = {
        "name": case.name,
        "num_envs": BATCH,
        "time_limit": case.limit,
    }
    recipe = load_recipe(
        {"environment": environment_options | case.options, "updater": "vanilla_pg"}
    )
    env = build(recipe, SEEDS.tolist()).environment
    return to_host_environment(env, len(SEEDS))


class Play(NamedTuple):
    """Random play: the last state, and the timesteps `[STEPS, S, B, ...]`."""

    state: Any
    first: ArrayTree
    timesteps: TimeStep


def element(tree, *index):
    return jax.tree.map(lambda leaf: np.asarray(np.asarray(leaf)[index]), tree)


def sample_actions(environment, steps, seed=0):
    environment.action.seed(seed)
    for _ in range(steps):
        drawn = [environment.action.sample() for _ in range(len(SEEDS) * BATCH)]
        flat = jax.tree.map(lambda *each: np.stack(each), *drawn)
        yield jax.tree.map(
            lambda leaf: leaf.reshape((len(SEEDS), BATCH, *leaf.shape[1:])), flat
        )


@functools.cache
def jit_draw(draw):
    return jax.jit(jax.vmap(draw))


def sample_noise(environment, time):
    keys = jax.random.split(jax.random.key(time), len(SEEDS))
    return jit_draw(environment.draw)(keys)


def continue_play(environment, state, first, steps, seed=0):
    timesteps = []
    for time, action in enumerate(sample_actions(environment, steps, seed)):
        state, timestep = environment.step(
            state, action, sample_noise(environment, time)
        )
        timesteps.append(timestep._replace(info={}))  # a host's names come with time
    return Play(state, first, jax.tree.map(lambda *each: np.stack(each), *timesteps))


@pytest.fixture(scope="module")
def play(environment) -> Play:
    state, first = environment.reset(SEEDS)
    return continue_play(environment, state, first, STEPS)


def test_observations_are_in_its_space_with_their_dtype(environment, play):
    for seen in (play.first, play.timesteps.obs, play.timesteps.next_obs):
        leaf = jax.tree.leaves(seen)[0]
        grid = leaf.shape[: leaf.ndim - np.ndim(jax.tree.leaves(play.first)[0]) + 2]
        for index in np.ndindex(*grid):
            single_obs = element(seen, *index)
            assert environment.observation.contains(single_obs), single_obs


def test_timesteps_follow_the_contract(play):
    timesteps = play.timesteps
    shape = (STEPS, len(SEEDS), BATCH)
    for field, dtype in (("reward", "f4"), ("discount", "f4"), ("last", "?")):
        actual = getattr(timesteps, field)
        assert (actual.shape, actual.dtype) == (shape, np.dtype(dtype))
    assert np.all(np.isfinite(timesteps.reward))
    assert set(np.unique(timesteps.discount)) <= {0.0, 1.0}
    assert np.all(timesteps.last[timesteps.discount == 0])
    assert timesteps.last.any() and not timesteps.last.all()


def test_obs_equals_next_obs_unless_an_episode_ends(play):
    timesteps = play.timesteps
    for index in np.argwhere(~timesteps.last):
        jax.tree.map(
            np.testing.assert_array_equal,
            element(timesteps.obs, *index),
            element(timesteps.next_obs, *index),
        )


def test_episodes_are_cut_at_the_time_limit_and_no_later(case, play):
    limit = case.limit or case.options["options"]["max_steps_in_episode"]
    lengths = np.zeros(play.timesteps.last.shape[1:], int)
    for last, discount in zip(
        play.timesteps.last, play.timesteps.discount, strict=True
    ):
        lengths += 1
        assert np.all(last[lengths == limit])
        cut = lengths[last & (discount == 1)]
        # If all end simultaneously, all reset immediately, not late.
        assert np.all((cut == limit) | (cut == limit - case.late))
        lengths[last] = -case.late


def test_the_same_seeds_give_the_same_play_and_seeds_differ(environment, play):
    state, first = environment.reset(SEEDS)
    restored = continue_play(environment, state, first, STEPS)
    jax.tree.map(np.testing.assert_array_equal, restored[1:], play[1:])
    environment.host.close(restored.state)
    ones = [leaf[:, row] for row in (0, 1) for leaf in jax.tree.leaves(play.timesteps)]
    half = len(ones) // 2
    pairs = zip(ones[:half], ones[half:], strict=True)
    assert any(not np.array_equal(*each) for each in pairs)


@pytest.mark.parametrize("rows", [slice(None), slice(1)], ids=["all", "a seed"])
@pytest.mark.slow
def test_cut_begins_new_episodes_and_changes_no_others(case, environment, rows):
    limit = case.limit or case.options["options"]["max_steps_in_episode"]
    actions = list(sample_actions(environment, limit))
    cut = np.zeros((len(SEEDS), BATCH), bool)
    cut[rows] = True
    played = []
    for is_cut in (cut, False):
        state, _ = environment.reset(SEEDS)
        timesteps = []
        for time, action in enumerate(actions):
            noise = sample_noise(environment, time)
            args = (is_cut,) if time == 0 else ()
            state, timestep = environment.step(state, action, noise, *args)
            timesteps.append(timestep)
        environment.host.close(state)
        played.append(timesteps)
    jax.tree.map(
        np.testing.assert_array_equal,
        *(each[0]._replace(obs=(), info={}) for each in played),
    )
    for index in np.argwhere(~cut):
        for ours, theirs in zip(*played, strict=True):
            jax.tree.map(
                np.testing.assert_array_equal,
                *(element(each._replace(info={}), *index) for each in (ours, theirs)),
            )
    # A native vector resets all its environments, or none.
    if cut.all() or case.options.get("vectorization") != "own":
        final = played[0][-1]  # new episodes reach the limit one step later
        assert np.all(final.discount[cut & final.last] == 0)


def test_a_saved_environment_is_restored_exactly_or_with_a_warning(
    case, environment, play
):
    saved = jax.tree.map(np.array, environment.host.save(play.state))
    restored, warning = environment.host.restore(saved)
    assert bool(warning) != case.exact
    expected = continue_play(environment, play.state, play.first, 12, seed=1)
    actual = continue_play(environment, restored, play.first, 12, seed=1)
    if case.exact:
        jax.tree.map(
            np.testing.assert_array_equal, actual.timesteps, expected.timesteps
        )
    else:
        assert actual.timesteps.last[0].all()
        assert np.all(actual.timesteps.discount[0] == 1)
    environment.host.close(actual.state)


def test_it_renders_and_no_image_is_blank(environment):
    state, _ = environment.reset(SEEDS)
    frames = [environment.render(state, index) for index in (0, BATCH * 2 - 1)]
    assert frames[0].shape == frames[1].shape
    for frame in frames:
        assert (frame.dtype, frame.ndim, frame.shape[-1]) == (np.uint8, 3, 3)
        assert np.any(frame != frame[0, 0])  # it has several colours
    environment.host.close(state)


def adapt(name):
    """Builds the core or host vector of an id."""
    actual = registry.find("environment", name)
    return actual.factory(*[1, 1, None, None] * bool(actual.facts.get("adapter")))


@pytest.mark.parametrize(
    "package", ["gymnax", "pgx", "envpool", "brax", "craftax", "jumanji", "navix"]
)
def test_a_missing_package_is_named_with_its_extra(package, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(RlcliError, match=f"`{package}` cannot be imported") as caught:
        adapt(f"{package}/Nothing-v0")
    assert caught.value.hint == install_command(package)


@pytest.mark.parametrize(
    ("package", "id", "meant"),
    [
        ("gymnax", "CartPole", "CartPole-v1"),
        ("envpool", "Pendulum", "Pendulum-v1"),
        ("pgx", "2O48", "2048"),
        ("brax", "Ant", "ant"),
        ("craftax", "Craftax-Symbolic", "Craftax-Symbolic-v1"),
        ("jumanji", "Snake", "Snake-v1"),
        ("navix", "Navix-Empty-5x5", "Navix-Empty-5x5-v0"),
    ],
)
def test_an_unknown_id_suggests_the_closest_id(package, id, meant):
    pytest.importorskip(package)
    with pytest.raises(RlcliError, match=f"no environment `{package}/{id}`") as caught:
        adapt(f"{package}/{id}")
    assert caught.value.hint == f"did you mean `{package}/{meant}`?"


@pytest.mark.parametrize(
    ("id", "options", "hint"),
    [
        ("Pendulum-v1", {"g": "x"}, "expected float"),
        ("Pendulum-v1", {"g": [1.0]}, "expected float"),
        ("Pendulum-v1", {"max_steps_in_episode": 3.5}, "expected int"),
        ("Asterix-MinAtar", {"ramping": 1}, "expected bool"),
        (
            "Acrobot-v1",
            {"available_torque": [[1], [2, 3]]},
            "float of shape (3,)",
        ),
        ("Pendulum-v1", {"g": object()}, "`options` are numbers, strings"),
        ("Pendulum-v1", {"gravitee": 3}, "`options` are fields of its parameters"),
    ],
)
def test_a_parameter_of_gymnax_needs_the_type_of_its_default(id, options, hint):
    pytest.importorskip("gymnax")
    with pytest.raises(RlcliError) as caught:
        registry.find("environment", f"gymnax/{id}").factory(options=options)
    assert hint in caught.value.hint


def test_parameters_of_gymnax_may_be_arrays():
    pytest.importorskip("gymnax")
    make = registry.find("environment", "gymnax/Acrobot-v1").factory
    torques = {"available_torque": jax.numpy.array([1.0, 1.0, 1.0])}
    core = make(options=torques | {"max_steps_in_episode": np.int32(7)})
    state, _ = core.reset(jax.random.key(0))
    step = jax.jit(core.step)
    alike = [step(state, action, jax.random.key(1))[1].obs for action in range(3)]
    np.testing.assert_array_equal(alike[0], alike[2])


def test_a_two_player_game_is_refused():
    pytest.importorskip("pgx")
    with pytest.raises(RlcliError, match="has 2 players"):
        registry.find("environment", "pgx/chess").factory()
