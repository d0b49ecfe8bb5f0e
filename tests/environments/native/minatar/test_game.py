"""The MinAtar engine, compared with MinAtar."""

import inspect

import jax
import jax.numpy as jnp
import minatar
import minatar.gym
import numpy as np
import pytest
from scipy import stats

from rlcli import registry
from rlcli.environments.native.minatar import game
from rlcli.environments.native.minatar.asterix import RULES as ASTERIX
from rlcli.environments.native.minatar.asterix import AsterixState, asterix
from rlcli.environments.native.minatar.breakout import RULES as BREAKOUT
from rlcli.environments.native.minatar.breakout import breakout
from rlcli.environments.native.minatar.seaquest import seaquest

# The results do not depend on compiler options; compiling takes a third of the time.
FAST_COMPILE = {"xla_backend_optimization_level": 0}
GAMES = {
    "Asterix": "asterix",
    "Breakout": "breakout",
    "Freeway": "freeway",
    "Seaquest": "seaquest",
    "SpaceInvaders": "space_invaders",
}


def test_ids_spaces_and_terminations_match_minatar(monkeypatch):
    registered = {}
    monkeypatch.setattr(
        minatar.gym,
        "register",
        lambda id, entry_point, kwargs: registered.update({id: kwargs}),
    )
    minatar.gym.register_envs()
    names = registry.names("environment")
    assert [name for name in names if name.startswith("MinAtar/")] == sorted(registered)
    for name, options in registered.items():
        reference, found = (
            minatar.gym.BaseEnv(**options),
            registry.find("environment", name),
        )
        core = found.factory()
        assert core.observation == reference.observation_space
        assert core.observation.dtype == reference.observation_space.dtype
        assert core.action == reference.action_space
        assert "time_limit" not in found.facts


@pytest.mark.parametrize("name", GAMES)
def test_a_name_with_a_slash_is_not_an_adapter(name):
    found = registry.find("environment", f"MinAtar/{name}-v0")
    assert found.name == f"MinAtar/{name}-v0"
    assert not found.facts.get("adapter")
    assert set(registry.options(found.factory)) >= {"sticky_action_prob"}


def test_version_1_has_minimal_actions_by_default():
    for version, expected in (("v0", False), ("v1", True)):
        factory = registry.find("environment", f"MinAtar/Breakout-{version}").factory
        assert registry.options(factory)["minimal_actions"].default is expected
        assert factory(minimal_actions=not expected).action.n == (6 if expected else 3)


@pytest.mark.parametrize("name", GAMES)
def test_every_game_has_the_common_options_of_minatar(name):
    defaults = inspect.signature(minatar.Environment).parameters
    for version in (0, 1):
        factory = registry.find("environment", f"MinAtar/{name}-v{version}").factory
        options = registry.options(factory)
        assert set(options) == {*defaults, "minimal_actions"} - {"env_name"}
        for key in options.keys() & defaults.keys():
            assert options[key].default == defaults[key].default


@pytest.mark.parametrize(
    "name",
    [
        *(
            pytest.param(name, marks=pytest.mark.slow)
            for name in ("Asterix", "Breakout", "SpaceInvaders")
        ),
        "Freeway",
    ],
)
def test_the_minimal_actions_match_minatar(name):
    reference = minatar.Environment(GAMES[name]).minimal_action_set()
    find = registry.find
    full = find("environment", f"MinAtar/{name}-v0").factory(sticky_action_prob=0.0)
    few = find("environment", f"MinAtar/{name}-v1").factory(sticky_action_prob=0.0)
    state, _ = jax.jit(full.reset)(jax.random.key(0))
    noise = jax.jit(full.draw)(jax.random.key(1))

    def after(core, actions):
        step = jax.vmap(lambda action: core.step(state, action, noise))
        return jax.jit(step, compiler_options=FAST_COMPILE)(np.array(actions))

    jax.tree.map(
        np.testing.assert_array_equal,
        after(few, range(len(reference))),
        after(full, reference),
    )


def test_the_minimal_actions_of_seaquest_are_all_six():
    assert minatar.Environment("seaquest").minimal_action_set() == list(range(6))
    assert seaquest(minimal_actions=True).action == seaquest().action


def test_the_last_action_is_repeated_with_probability_one_tenth():
    draw = jax.jit(jax.vmap(asterix().draw))
    repeat = draw(jax.random.split(jax.random.key(0), 20_000)).repeat
    assert stats.binomtest(int(repeat.sum()), 20_000, 0.1).pvalue > 0.001


def test_the_probability_of_sticky_actions_can_be_traced():
    keys = jax.random.split(jax.random.key(1), 5000)

    def repeats(probability):
        core = asterix(sticky_action_prob=probability)
        return jax.vmap(core.draw)(keys).repeat

    none, some, all_ = jax.device_get(
        jax.jit(jax.vmap(repeats))(np.float32([0.0, 0.3, 1.0]))
    )
    assert not none.any()
    assert all_.all()
    assert stats.binomtest(int(some.sum()), 5000, 0.3).pvalue > 0.001


def test_the_repeated_action_is_the_executed_one():
    core = asterix()
    state, _ = jax.jit(core.reset)(jax.random.key(0))
    noise = jax.jit(core.draw)(jax.random.key(0))
    step, columns = jax.jit(core.step, compiler_options=FAST_COMPILE), []
    for action, repeat in [(3, False), (1, True), (1, True), (1, False), (3, True)]:
        state, _ = step(state, action, noise._replace(repeat=np.bool(repeat)))
        state = jax.device_get(state)
        columns.append(int(game.unpack_state(game.max_state(ASTERIX), state).game.x))
    assert columns == [6, 7, 8, 7, 6]


def test_unlike_in_minatar_no_action_is_repeated_across_episodes():
    reference = minatar.Environment("breakout", sticky_action_prob=1.0)
    reference.last_action = game.RIGHT  # the last action of the previous episode
    reference.reset()
    reference.act(game.NOTHING)
    assert reference.env.pos == 5
    core = breakout(sticky_action_prob=1.0)
    state, _ = jax.jit(core.reset)(jax.random.key(0))
    noise = jax.jit(core.draw)(jax.random.key(1))
    state, _ = jax.device_get(jax.jit(core.step)(state, game.RIGHT, noise))
    assert int(game.unpack_state(game.max_state(BREAKOUT), state).game.paddle) == 4


def test_unpack_inverts_pack():
    rng = np.random.default_rng(0)
    most = {
        "few": np.full(3, 5),
        "flag": True,
        "many": 1000,
        "more": 2**20,
        "signed": np.uint32(2**32 - 1),
        "flags": np.ones(3, bool),
    }
    state = {
        "few": rng.integers(6, size=3),
        "flag": True,
        "many": 1000,
        "more": 2**20 - 1,
        "signed": -7,
        "flags": np.array([True, False, True]),
    }
    words = game.pack_state(most, state)
    assert [word.shape for word in words] == [(3,), (), ()]
    found = game.unpack_state(most, words)
    for name, value in state.items():
        np.testing.assert_array_equal(found[name], value)
        assert found[name].dtype == (bool if "flag" in name else jnp.int32)


@pytest.mark.parametrize("name", GAMES)
def test_a_state_has_few_words(name):
    core = registry.find("environment", f"MinAtar/{name}-v0").factory()
    state, _ = jax.eval_shape(core.reset, jax.random.key(0))
    assert sum(word.size * word.dtype.itemsize for word in state) <= 200
    assert len(state) <= 7


def test_a_step_of_seaquest_is_cheap():
    # Most of the cost is its 1000 cells; gymnax's buffers of 100 slots take 970 000.
    core, key = seaquest(), jax.random.key(0)
    state, _ = jax.eval_shape(core.reset, key)
    noise = jax.eval_shape(core.draw, key)
    traced = jax.jit(core.step).lower(state, np.int32(0), noise)
    assert traced.cost_analysis()["flops"] < 40_000


def test_objects_are_drawn_in_their_cells_with_smaller_ones_on_top():
    core = asterix()
    none = np.zeros(8, bool)
    empty = AsterixState(2, 1, 9, 4, 9, 0, none, np.zeros(8, int), none, none)
    state = empty._replace(
        is_occupied=np.arange(8) == 3, column=4 * (np.arange(8) == 3), right=~none
    )
    frames = [
        core.render(game.pack_state(game.max_state(ASTERIX), game.PlayState(each, 0)))
        for each in (empty, state)
    ]
    assert frames[0].shape == (420, 600, 3)
    rows, columns = np.nonzero(np.any(frames[0] != frames[1], axis=-1))
    cells = {
        ((r - 10) // 40, (c - 10) // 40) for r, c in zip(rows, columns, strict=True)
    }
    assert cells == {(4, 3), (4, 4)}  # the enemy, and its trail
    blue = np.all(np.abs(frames[0][:, :420].astype(int) - [59, 111, 182]) < 3, axis=-1)
    rows, columns = np.nonzero(blue)
    assert {*(rows - 10) // 40} == {1}
    assert {*(columns - 10) // 40} == {2}
