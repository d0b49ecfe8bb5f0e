"""The contract of adapters: one test for all, of whatever is installed.

Each is played behind the host's face, which pure environments have as well.
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
from rlcli.types import ArrayTree, Clock, Environment, TimeStep

SEEDS, BATCH, STEPS = np.array([3, 11], np.uint32), 3, 25


class Case(NamedTuple):
    """An environment that stands for its adapter."""

    name: str
    package: str  # without which it is skipped
    options: dict[str, Any] = {}  # noqa: RUF012 # never changed
    limit: int | None = 9  # steps, so that episodes end
    exact: bool = True  # whether what was saved comes back
    late: int = 0  # steps that an episode begins late


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
    Case("gymnasium/Hopper-v5", "mujoco"),
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
        told = spaces.flatten(self.action_space, action)
        seen = spaces.flatten(self.observation_space, obs)
        return obs, told @ np.arange(len(told)) + seen[0], seen[1] > 0.9, False, {}


@pytest.fixture(autouse=True, scope="module")
def many_env_id():
    """Known to Gymnasium, and to processes that cannot import this file."""
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
    marks = pytest.mark.skipif(missing, reason=reason)
    return pytest.param(case, marks=marks, id=name)


@pytest.fixture(scope="module", params=map(make_case, CASES))
def case(request) -> Case:
    return request.param


@pytest.fixture(scope="module")
def environment(case) -> Environment:
    """It, as a recipe makes it."""
    named = {"name": case.name, "num_envs": BATCH, "time_limit": case.limit}
    recipe = load_recipe({"environment": named | case.options, "updater": "vanilla_pg"})
    made = build(recipe, SEEDS.tolist()).parts(Clock.zero())[0]
    return to_host_environment(made, len(SEEDS))


class Play(NamedTuple):
    """Random play: where it ended, and what was seen, `[STEPS, S, B, ...]`."""

    state: Any
    first: ArrayTree
    answers: TimeStep


def element(tree, *index):
    return jax.tree.map(lambda leaf: np.asarray(leaf)[index], tree)


def actions_of(environment, steps, seed=0):
    environment.action.seed(seed)
    for _ in range(steps):
        drawn = [environment.action.sample() for _ in range(len(SEEDS) * BATCH)]
        flat = jax.tree.map(lambda *each: np.stack(each), *drawn)
        yield jax.tree.map(
            lambda leaf: leaf.reshape((len(SEEDS), BATCH, *leaf.shape[1:])), flat
        )


@functools.cache
def drawing(draw):
    return jax.jit(jax.vmap(draw))


def noise_of(environment, time):
    keys = jax.random.split(jax.random.key(time), len(SEEDS))
    return drawing(environment.draw)(keys)


def gone_on(environment, state, first, steps, seed=0):
    answers = []
    for time, action in enumerate(actions_of(environment, steps, seed)):
        state, answer = environment.step(state, action, noise_of(environment, time))
        answers.append(answer)
    return Play(state, first, jax.tree.map(lambda *each: np.stack(each), *answers))


@pytest.fixture(scope="module")
def play(environment) -> Play:
    state, first = environment.reset(SEEDS)
    return gone_on(environment, state, first, STEPS)


def test_observations_are_in_its_space_with_their_dtype(environment, play):
    for seen in (play.first, play.answers.obs, play.answers.next_obs):
        leaf = jax.tree.leaves(seen)[0]
        grid = leaf.shape[: leaf.ndim - np.ndim(jax.tree.leaves(play.first)[0]) + 2]
        for index in np.ndindex(*grid):
            one = element(seen, *index)
            assert environment.observation.contains(one), one


def test_answers_are_as_the_contract_has_them(play):
    answers = play.answers
    shape = (STEPS, len(SEEDS), BATCH)
    for field, dtype in (("reward", "f4"), ("discount", "f4"), ("last", "?")):
        found = getattr(answers, field)
        assert (found.shape, found.dtype) == (shape, np.dtype(dtype))
    assert np.all(np.isfinite(answers.reward))
    assert set(np.unique(answers.discount)) <= {0.0, 1.0}
    assert np.all(answers.last[answers.discount == 0])
    assert answers.last.any() and not answers.last.all()


def test_where_no_episode_ends_the_next_observation_is_the_one_to_act_upon(play):
    answers = play.answers
    for index in np.argwhere(~answers.last):
        jax.tree.map(
            np.testing.assert_array_equal,
            element(answers.obs, *index),
            element(answers.next_obs, *index),
        )


def test_episodes_are_cut_at_the_time_limit_and_no_later(case, play):
    limit = case.limit or case.options["options"]["max_steps_in_episode"]
    lengths = np.zeros(play.answers.last.shape[1:], int)
    for last, discount in zip(play.answers.last, play.answers.discount, strict=True):
        lengths += 1
        assert np.all(last[lengths == limit])
        cut = lengths[last & (discount == 1)]
        # Where all end at once they all begin at once, and not late.
        assert np.all((cut == limit) | (cut == limit - case.late))
        lengths[last] = -case.late


def test_the_same_seeds_give_the_same_play_and_seeds_differ(environment, play):
    state, first = environment.reset(SEEDS)
    again = gone_on(environment, state, first, STEPS)
    jax.tree.map(np.testing.assert_array_equal, again[1:], play[1:])
    environment.close(again.state)
    ones = [leaf[:, row] for row in (0, 1) for leaf in jax.tree.leaves(play.answers)]
    half = len(ones) // 2
    pairs = zip(ones[:half], ones[half:], strict=True)
    assert any(not np.array_equal(*each) for each in pairs)


def test_a_step_that_says_cut_truncates_everywhere(environment):
    state, _ = environment.reset(SEEDS)
    action = next(actions_of(environment, 1))
    state, answer = environment.step(state, action, noise_of(environment, 0), True)
    assert answer.last.all()
    state, answer = environment.step(state, action, noise_of(environment, 1))
    assert not answer.last.all()
    environment.close(state)


def test_what_was_saved_goes_on_where_it_was_or_says_that_it_does_not(
    case, environment, play
):
    saved = jax.tree.map(np.array, environment.save(play.state))
    again, sentence = environment.restore(saved)
    assert bool(sentence) != case.exact
    expected = gone_on(environment, play.state, play.first, 12, seed=1)
    found = gone_on(environment, again, play.first, 12, seed=1)
    if case.exact:
        jax.tree.map(np.testing.assert_array_equal, found.answers, expected.answers)
    else:
        assert found.answers.last[0].all()
        assert np.all(found.answers.discount[0] == 1)
    environment.close(found.state)


def test_it_draws_itself_and_no_picture_is_blank(environment):
    state, _ = environment.reset(SEEDS)
    frames = [environment.render(state, index) for index in (0, BATCH * 2 - 1)]
    assert frames[0].shape == frames[1].shape
    for frame in frames:
        assert (frame.dtype, frame.ndim, frame.shape[-1]) == (np.uint8, 3, 3)
        assert len(np.unique(frame.reshape(-1, 3), axis=0)) > 1
    environment.close(state)


def adapt(name):
    """What an adapter makes of an id, be it a core or a vector on the host."""
    found = registry.find("environment", name)
    return found.factory(*[1, 1, None, None] * bool(found.facts.get("adapter")))


@pytest.mark.parametrize("package", ["gymnax", "pgx", "envpool"])
def test_a_package_that_is_missing_is_named_with_the_extra(package, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(RlcliError, match=f"`{package}` cannot be imported") as caught:
        adapt(f"{package}/Nothing-v0")
    assert caught.value.hint == f'pip install "rlcli[{package}]"'


@pytest.mark.parametrize(
    ("package", "id", "meant"),
    [
        ("gymnax", "CartPole", "CartPole-v1"),
        ("envpool", "Pendulum", "Pendulum-v1"),
        ("pgx", "2O48", "2048"),
    ],
)
def test_an_id_that_is_unknown_is_answered_with_the_librarys_own(package, id, meant):
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
        ("Pendulum-v1", {"g": object()}, "options are numbers, strings"),
        ("Pendulum-v1", {"gravitee": 3}, "`options` are fields of its parameters"),
    ],
)
def test_a_parameter_of_gymnaxs_takes_what_its_default_is(id, options, hint):
    pytest.importorskip("gymnax")
    with pytest.raises(RlcliError) as caught:
        registry.find("environment", f"gymnax/{id}").factory(options=options)
    assert hint in caught.value.hint


def test_parameters_of_gymnaxs_may_be_arrays():
    pytest.importorskip("gymnax")
    make = registry.find("environment", "gymnax/Acrobot-v1").factory
    torques = {"available_torque": jax.numpy.array([1.0, 1.0, 1.0])}
    core = make(options=torques | {"max_steps_in_episode": np.int32(7)})
    state, _ = core.reset(jax.random.key(0))
    step = jax.jit(core.step)
    alike = [step(state, action, jax.random.key(1))[1].obs for action in range(3)]
    np.testing.assert_array_equal(alike[0], alike[2])


def test_a_game_for_two_is_no_environment_of_one_agent():
    pytest.importorskip("pgx")
    with pytest.raises(RlcliError, match="has 2 players"):
        registry.find("environment", "pgx/chess").factory()
