"""PettingZoo: agents as environments of a batch, on a game with its interface."""

import sys
import types

import gymnasium
import jax
import numpy as np
import pytest
from wording import mentions

from rlcli import loop
from rlcli.assembly import build
from rlcli.environments.adapters.pettingzoo import ParallelVector
from rlcli.errors import RlcliError
from rlcli.evaluation.make_evaluator import resize
from rlcli.recipe import load_recipe
from rlcli.registry.libraries import install_command

LENGTH = 4


class Game:
    """Each agent sees a number, and gets it as reward for action 1.

    Agent `b` ends after two steps, if `short`, or is truncated then, if `cut`. Agent
    `c` joins after one, if `late`.
    """

    render_mode = None

    def __init__(self, *, agents="ab", short=False, late=False, cut=False):
        self.possible_agents = list(agents)
        self.short, self.late, self.cut = short, late, cut
        self.resets = []

    def observation_space(self, agent):
        return gymnasium.spaces.Box(-1, 1, (1 if agent != "z" else 2,), np.float32)

    def action_space(self, agent):
        return gymnasium.spaces.Discrete(2 if agent != "y" else 3)

    def _observe(self):
        self._seen = {
            agent: self._random.choice([-1, 1], 1).astype("f4") for agent in self.agents
        }
        return self._seen

    def reset(self, seed=None, options=None):
        self.resets.append(seed)
        self.time, self._random = 0, np.random.default_rng(seed)
        self.agents = [
            agent for agent in self.possible_agents if not (self.late and agent == "c")
        ]
        return self._observe(), {}

    def step(self, actions):
        assert set(actions) == set(self.agents)
        self.time += 1
        rewards = {a: self._seen[a].item() * int(actions[a]) for a in self.agents}
        ended = {a: self.short and a == "b" and self.time == 2 for a in self.agents}
        truncated = {
            a: self.time == LENGTH or (self.cut and a == "b" and self.time == 2)
            for a in self.agents
        }
        joined = ["c"] if self.late and self.time == 1 else []
        self.agents += joined
        obs = self._observe()
        self.agents = [a for a in self.agents if not (ended.get(a) or truncated.get(a))]
        return obs, rewards, ended, truncated, {}

    def close(self):
        pass


def play(vector, steps, action=1):
    """The timesteps after the first observations, `[steps, count]`; restarts rows."""
    timesteps = []
    for _ in range(steps):
        timestep = vector.step(np.full(vector.group * len(vector.copies), action))
        timesteps.append([np.asarray(field).squeeze() for field in timestep])
        rows = np.flatnonzero(timestep.last)
        if len(rows):
            vector.begin(rows, [7] * len(rows))
    return [np.stack(field) for field in zip(*timesteps, strict=True)]


def test_each_agent_of_each_copy_is_a_row_and_a_copy_begins_once():
    copies = [Game(), Game()]
    vector = ParallelVector(copies, None, None)
    first = vector.begin(np.arange(4), [3, 4, 5, 6])
    assert (vector.group, first.shape) == (2, (4, 1))
    assert [copy.resets for copy in copies] == [[3], [5]]
    expected = Game()
    seen, _ = expected.reset(seed=5)
    np.testing.assert_array_equal(first[2:], [seen["a"], seen["b"]])
    for _ in range(LENGTH):
        seen_before = expected._seen
        obs, rewards, *_ = expected.step({"a": 1, "b": 0})
        timestep = vector.step(np.array([0, 0, 1, 0]))
        np.testing.assert_array_equal(timestep.obs[2:], [obs["a"], obs["b"]])
        assert timestep.reward[2:] == [rewards["a"], 0.0]
        assert rewards["a"] == seen_before["a"].item()
    assert timestep.last == [True] * 4 and timestep.discount == [1.0] * 4


@pytest.mark.parametrize("end", ["short", "cut"])
def test_an_agent_that_has_ended_waits_for_the_others_without_reward(end):
    vector = ParallelVector([Game(**{end: True})], None, None)
    vector.begin(np.arange(2), [0, 1])
    obs, reward, discount, last, _ = play(vector, LENGTH)
    np.testing.assert_array_equal(discount[:, 1], [1, 0, 0, 0])
    np.testing.assert_array_equal(discount[:, 0], 1)
    assert reward[:2, 1].all() and reward[:, 0].all() and not reward[2:, 1].any()
    assert obs[1, 1] and not obs[2:, 1].any()  # the last observation, then zeros
    np.testing.assert_array_equal(last, np.arange(LENGTH)[:, None] == [LENGTH - 1] * 2)


def test_an_agent_may_join_later():
    vector = ParallelVector([Game(agents="abc", late=True)], None, None)
    first = vector.begin(np.arange(3), [0, 1, 2])
    assert first[:2].all() and not first[2].any()
    obs, reward, discount, last, _ = play(vector, LENGTH)
    assert obs[:, 2].all() and not reward[0, 2] and reward[1:, 2].all()
    np.testing.assert_array_equal(discount[:, 2], [0, 1, 1, 1])
    assert last[-1].all()


def test_a_time_limit_truncates_all_agents():
    vector = ParallelVector([Game()], 3, None)
    vector.begin(np.arange(2), [0, 1])
    _, _, discount, last, _ = play(vector, 6)
    np.testing.assert_array_equal(last[:, 0], [0, 0, 1, 0, 0, 1])
    assert discount.all()


@pytest.fixture
def games(monkeypatch):
    """The package `mpe2` with games of this file instead of its own."""
    package = types.ModuleType("mpe2")
    modules = {
        "game_v0": Game,
        "unequal_v0": lambda **options: Game(agents="az", **options),
        "other_actions_v0": lambda **options: Game(agents="ay", **options),
        "turns_v0": None,
    }
    monkeypatch.setitem(sys.modules, "mpe2", package)
    for name, parallel_env in modules.items():
        module = types.ModuleType(f"mpe2.{name}")
        if parallel_env is not None:
            module.parallel_env = parallel_env
        monkeypatch.setitem(sys.modules, f"mpe2.{name}", module)


def recipe(name="mpe2/game_v0", num_envs=4, **options):
    environment = {"name": f"pettingzoo/{name}", "num_envs": num_envs}
    return load_recipe(
        {
            "environment": environment | ({"options": options} if options else {}),
            "network": "linear",
            "updater": {"name": "a2c", "regularizers": []},
            "optimizer": {"name": "adam", "learning_rate": 0.1},
            "tracer": {"name": "lambda_return", "gamma": 0.5},
            "train": {"steps": 64, "unroll": 16},
        }
    )


@pytest.mark.slow
@pytest.mark.usefixtures("games")
def test_one_policy_learns_from_the_steps_of_all_agents():
    setup = build(recipe(short=True))
    assert setup.environment.num_envs == 4
    engine = loop.make_loop(setup)
    progress, _ = engine.advance(engine.begin(), 40)
    policy = setup.agent.policy
    acting = jax.tree.map(lambda leaf: leaf[0], setup.agent.acting(progress.agent))
    decision, _ = policy.exploit(
        acting,
        np.array([[-1], [1]], "f4"),
        policy.initial(2),
        np.ones(2, bool),
        policy.draw(jax.random.key(0), 2),
    )
    np.testing.assert_array_equal(decision.action, [0, 1])


@pytest.mark.usefixtures("games")
def test_evaluations_have_whole_games():
    assert [resize(recipe(), count).num_envs for count in (1, 2, 3)] == [2, 2, 4]


@pytest.mark.usefixtures("games")
@pytest.mark.parametrize(
    ("name", "num_envs", "message"),
    [
        ("mpe2/game_v0", 3, "has 2 agents, each of which is one environment, but"),
        ("mpe2/unequal_v0", 2, "agents `a` and `z` have different observation spaces"),
        ("mpe2/other_actions_v0", 2, "`a` and `y` have different action spaces"),
        ("mpe2/turns_v0", 2, "is turn-based"),
        ("mpe2/missing_v0", 2, "there is no environment `pettingzoo/mpe2/missing_v0`"),
        ("os/path", 2, "there is no environment `pettingzoo/os/path`"),
        ("mpe2/game_v0.x", 2, "there is no environment `pettingzoo/mpe2/game_v0.x`"),
    ],
)
def test_what_cannot_share_a_policy_is_refused(name, num_envs, message):
    with pytest.raises(RlcliError, match=message):
        build(recipe(name, num_envs))


@pytest.mark.usefixtures("games")
def test_an_option_that_the_environment_does_not_have_is_refused():
    with pytest.raises(RlcliError, match=r"cannot be made: .*speed") as caught:
        build(recipe(speed=3))
    assert mentions(caught.value.hint, "`options`", "`parallel_env`")


@pytest.mark.usefixtures("fresh_imports")
def test_a_missing_dependency_of_an_environment_is_named(tmp_path, monkeypatch):
    (tmp_path / "mpe2").mkdir()
    (tmp_path / "mpe2" / "__init__.py").touch()
    (tmp_path / "mpe2" / "needs_v0.py").write_text("raise ImportError('no renderer')")
    monkeypatch.delitem(sys.modules, "mpe2", raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(RlcliError, match="needs_v0` lacks a dependency: no") as caught:
        build(recipe("mpe2/needs_v0", 2))
    assert caught.value.hint == install_command("pettingzoo")


def test_a_missing_package_is_named_with_its_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "mpe2", None)
    with pytest.raises(RlcliError, match="`mpe2` cannot be imported") as caught:
        build(recipe())
    assert caught.value.hint == install_command("pettingzoo")
