"""What adapters of JAX libraries share, and what only one of them has."""

import importlib
import sys
import types
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces
from wording import mentions

from rlcli import registry
from rlcli.environments.adapters import jax_libraries
from rlcli.errors import RlcliError
from rlcli.spaces import zeros


class Spec:
    """A specification with Jumanji's attributes."""

    def __init__(self, **attributes):
        vars(self).update(attributes)

    def validate(self, value):
        return value


def test_specifications_become_spaces():
    like = {"shape": (2,), "dtype": np.dtype("int8")}
    spec = Spec(
        _name="observation",
        choice=Spec(num_values=5, shape=(), dtype=np.dtype("int32")),
        choices=Spec(num_values=jnp.array([2, 3]), **like),
        bounded=Spec(minimum=-1, maximum=jnp.array([3, 4]), **like),
        free=Spec(**like),
        flags=Spec(minimum=False, maximum=True, shape=(3,), dtype=np.dtype(bool)),
    )
    assert jax_libraries.convert_spec(spec) == spaces.Dict(
        {
            "choice": spaces.Discrete(5),
            "choices": spaces.MultiDiscrete([2, 3]),
            "bounded": spaces.Box(np.int8([-1, -1]), np.int8([3, 4]), dtype=np.int8),
            "free": spaces.Box(-128, 127, (2,), np.int8),
            "flags": spaces.Box(0, 1, (3,), bool),
        }
    )


def test_shapes_become_unbounded_spaces():
    shapes = {"x": jnp.zeros(3), "pixels": {"y": jnp.zeros((2, 2), jnp.uint8)}}
    assert jax_libraries.space_like(shapes) == spaces.Dict(
        {
            "x": spaces.Box(-np.inf, np.inf, (3,)),
            "pixels": spaces.Dict({"y": spaces.Box(0, 255, (2, 2), np.uint8)}),
        }
    )


class Seen(NamedTuple):
    grid: jax.Array
    more: NamedTuple
    left_out: jax.Array


class More(NamedTuple):
    mask: jax.Array


def test_fields_are_read_in_the_shapes_of_the_space():
    seen = Seen(jnp.ones(4), More(jnp.arange(6).reshape(2, 3)), jnp.zeros(()))
    space = spaces.Dict(
        {
            "grid": spaces.Box(0, 1, (4,)),
            "more": spaces.Dict({"mask": spaces.Box(0, 5, (6,), int)}),
        }
    )
    read = jax_libraries.read_fields(space, seen)
    assert read["grid"].shape == (4,) and read.keys() == {"grid", "more"}
    assert read["more"]["mask"].tolist() == [*range(6)]


def test_errors_of_a_library_are_one_line():
    def fail(*_):
        raise TypeError("no\nargument `sixe`")

    with pytest.raises(RlcliError, match="`a/b` cannot be made: TypeError: no a") as e:
        jax_libraries.make_concrete("a/b", fail, "look at its class")
    assert e.value.hint == "look at its class"
    with pytest.raises(RlcliError, match="`a/b` cannot be reset: TypeError"):
        jax_libraries.observation_shapes("a/b", fail)


def test_a_step_that_cannot_be_traced_is_one_line():
    def reset(key):
        return jnp.zeros(2), jnp.zeros(2)

    def step(state, action, key):
        raise TypeError("clip() got an unexpected keyword argument 'a_min'")

    box = spaces.Box(-1, 1, (2,))
    core = jax_libraries.library_core("a/b", reset, step, box, box)
    state, _ = core.reset(jax.random.key(0))
    with pytest.raises(RlcliError, match=r"`a/b` cannot be stepped: .* 'a_min'") as e:
        jax.eval_shape(core.step, state, jnp.zeros(2), jax.random.key(0))
    assert mentions(e.value.hint, "version of JAX")


def test_what_a_library_prints_is_no_data(monkeypatch, capsys):
    library = types.ModuleType("loud_library")
    monkeypatch.setitem(sys.modules, "loud_library", library)
    assert jax_libraries.import_jax_library("loud_library", "none") is library
    jax_libraries.make_concrete("a/b", lambda: print("loading textures"), "")
    assert capsys.readouterr() == ("", "loading textures\n")


def test_a_core_is_made_once_for_each_id_and_options_also_within_a_trace():
    made = []

    @jax_libraries.cached_core
    def adapter(id, *, options=None):
        made.append((id, options))
        start = jnp.zeros(2)  # concrete, or the next trace could not use it
        step = lambda state, *_: (state, start, 0.0, False, False)  # noqa: E731
        box = spaces.Box(-1, 1, (2,))
        return jax_libraries.pure_core(lambda key: (start, start), step, box, box)

    for shift in (0, 1):  # two traces

        def begin(key, shift=shift):
            core = adapter("a", options={"sizes": np.array([1, 2])})
            return core.reset(key)[1] + shift

        assert jax.jit(begin)(jax.random.key(0)).tolist() == [shift, shift]
    assert adapter("a", options={"sizes": [1, 2]}) is not adapter("b")
    assert made == [("a", {"sizes": [1, 2]}), ("b", None)]
    with pytest.raises(RlcliError, match="`options` contains"):
        adapter("a", options={"f": print})


def find(name, **options):
    return registry.find("environment", name).factory(**options)


def test_combined_actions_of_jumanji_are_one_action_with_one_mask():
    pytest.importorskip("jumanji")
    core = find("jumanji/Minesweeper-v0")
    assert core.action == spaces.Discrete(100)
    state, obs = core.reset(jax.random.key(0))
    assert obs["board"].shape == (10, 10) and obs["action_mask"].all()
    _, timestep = core.step(state, jnp.int32(37), jax.random.key(1))
    assert np.flatnonzero(~timestep.obs["action_mask"]).tolist() == [37]
    assert np.argwhere(np.asarray(timestep.obs["board"]) != -1).tolist() == [[3, 7]]
    plain = find("jumanji/Minesweeper-v0", action_mask=False)
    assert plain.action == spaces.MultiDiscrete([10, 10])
    assert "action_mask" not in plain.observation.spaces


@pytest.mark.parametrize(
    ("package", "id", "some"),
    [
        ("jumanji", "jumanji/Game2048-v1", {"highest_tile"}),
        ("brax", "brax/ant", {"reward_forward", "reward_survive"}),
        ("mujoco_playground", "playground/CartpoleBalance", {"reward/upright"}),
        ("craftax", "craftax/Craftax-Classic-Symbolic-v1", {"Achievements/eat_cow"}),
        ("gymnax", "gymnax/CartPole-v1", set()),
        ("navix", "navix/Navix-Empty-5x5-v0", set()),
    ],
)
def test_single_numbers_of_a_library_are_logged(package, id, some):
    pytest.importorskip(package)
    core, key = find(id), jax.random.key(0)
    state, _ = jax.eval_shape(core.reset, key)
    action = jax.tree.map(jnp.asarray, zeros(core.action))
    _, timestep = jax.eval_shape(core.step, state, action, key)
    assert timestep.info.keys() >= some and bool(timestep.info) == bool(some)
    assert all(value.shape == () for value in timestep.info.values())


def test_rewards_of_several_agents_are_added():
    pytest.importorskip("jumanji")
    core = find("jumanji/LevelBasedForaging-v0")
    assert "action_mask" not in core.observation.spaces  # one mask for each agent
    reward = jax.eval_shape(
        lambda key: core.step(core.reset(key)[0], jnp.zeros(2, int), key)[1].reward,
        jax.random.key(0),
    )
    assert reward.shape == ()


def test_the_limit_of_craftax_truncates():
    pytest.importorskip("craftax")
    core = find("craftax/Craftax-Classic-Symbolic-v1", options={"max_timesteps": 1})
    state, _ = jax.jit(core.reset)(jax.random.key(0))
    _, timestep = jax.jit(core.step)(state, jnp.int32(0), jax.random.key(1))
    assert (bool(timestep.last), float(timestep.discount)) == (True, 1.0)


def test_the_limit_of_navix_truncates():
    pytest.importorskip("navix")
    core = find("navix/Navix-Empty-5x5-v0", options={"max_steps": 1})
    state, _ = core.reset(jax.random.key(0))
    _, timestep = core.step(state, jnp.int32(0), jax.random.key(1))
    assert (bool(timestep.last), float(timestep.discount)) == (True, 1.0)


@pytest.mark.parametrize("backend", ["generalized", "mjx"])
def test_brax_has_the_backend_that_is_asked_for(backend):
    pytest.importorskip("brax")
    core = find("brax/inverted_pendulum", backend=backend)
    state, _ = jax.eval_shape(core.reset, jax.random.key(0))
    is_mjx = type(state.state.pipeline_state).__module__.startswith("brax.mjx")
    assert is_mjx == (backend == "mjx")
    assert core.action == spaces.Box(-1.0, 1.0, (1,), np.float32)


def test_unknown_options_of_brax_name_the_environment():
    pytest.importorskip("brax")
    with pytest.raises(RlcliError, match="`brax/ant` cannot be made") as caught:
        find("brax/ant", options={"legs": 6})
    assert "`brax.envs`" in caught.value.hint


def test_playground_truncates_after_its_length_and_draws_a_robot_per_episode(
    monkeypatch,
):
    library = pytest.importorskip("mujoco_playground")

    def randomize(model, keys):  # in the form of the library's own
        factors = jax.vmap(lambda key: jax.random.uniform(key, (1,)))(keys)
        axes = jax.tree.map(lambda leaf: None, model).tree_replace({"body_mass": 0})
        return model.tree_replace({"body_mass": factors * model.body_mass}), axes

    monkeypatch.setattr(library.registry, "get_domain_randomizer", lambda id: randomize)
    options = {"options": {"episode_length": 2}, "domain_randomization": True}
    core = find("playground/CartpoleBalance", **options)
    reset, step = jax.jit(core.reset), jax.jit(core.step)
    states = [reset(jax.random.key(seed))[0] for seed in (0, 1)]
    masses = [
        np.asarray(leaf)
        for state in states
        for path, leaf in jax.tree_util.tree_leaves_with_path(state)
        if "model['.body_mass']" in jax.tree_util.keystr(path)
    ]
    assert len(masses) == 2  # of each episode, in one proportion
    ratio = masses[0][1:] / masses[1][1:]
    assert np.ptp(ratio) < 1e-5 and abs(ratio[0] - 1) > 1e-3
    state, ends, discounts = states[0], [], []
    for number in range(2):
        key = jax.random.key(number)
        state, timestep = step(state, np.ones(1, np.float32), core.draw(key))
        ends.append(bool(timestep.last))
        discounts.append(float(timestep.discount))
    assert ends == [False, True] and discounts == [1, 1]


def test_playground_says_which_environments_have_no_randomization():
    pytest.importorskip("mujoco_playground")
    with pytest.raises(RlcliError, match="has no domain randomization"):
        find("playground/CartpoleBalance", domain_randomization=True)


def test_playground_downloads_no_robots(monkeypatch, tmp_path):
    library = pytest.importorskip("mujoco_playground")
    environments = importlib.import_module("mujoco_playground._src.mjx_env")
    monkeypatch.setattr(environments, "MENAGERIE_PATH", tmp_path / "robots")
    monkeypatch.setattr(library.registry, "load", pytest.fail)
    with pytest.raises(RlcliError, match="robots that are not on this machine"):
        find("playground/Go1JoystickFlatTerrain")


def test_the_limit_of_jaxmarl_truncates_all_agents_and_their_own_end_terminates():
    pytest.importorskip("jaxmarl")
    core = find("jaxmarl/MPE_simple_spread_v3", options={"max_steps": 0})
    assert (core.agents, core.observation.shape) == (3, (18,))
    state, _ = core.reset(jax.random.key(0))
    _, timestep = core.step(state, jnp.zeros(3, int), jax.random.key(1))
    assert (bool(timestep.last), timestep.discount.tolist()) == (True, [1, 1, 1])
    riddle = find("jaxmarl/switch_riddle")
    state, _ = riddle.reset(jax.random.key(0))
    lasts, discounts = [], []
    while not any(lasts):  # TELL ends it
        state, timestep = riddle.step(state, jnp.full(3, 2), jax.random.key(1))
        lasts.append(bool(timestep.last))
        discounts.append(timestep.discount.tolist())
    assert discounts[-1] == [0, 0, 0]


def test_agents_of_jaxmarl_with_different_spaces_are_padded():
    library = pytest.importorskip("jaxmarl")
    name = "MPE_simple_speaker_listener_v4"
    core = find(f"jaxmarl/{name}", agent_ids=True)
    _, obs = core.reset(jax.random.key(0))
    own, _ = library.make(name).reset(jax.random.key_data(jax.random.key(0)))
    rows = np.asarray(obs["observation"])
    for row, agent, agent_id in zip(rows, own, np.eye(2).tolist(), strict=True):
        vector = np.asarray(own[agent])
        np.testing.assert_allclose(row[: len(vector)], vector, rtol=1e-6)
        assert not row[len(vector) : 11].any() and row[11:].tolist() == agent_id
    assert obs["action_mask"].sum(axis=1).tolist() == [3, 5]
