"""What holds for every environment of ours: whoever adds one, finds it tested here.

Each is compiled once, with all its numbers traced, and played at random; what was
recorded is then looked at in NumPy.
"""

import functools
import inspect
import re
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args, get_origin

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from PIL import Image

from rlcli import registry, spaces
from rlcli.environments.vector import VectorState, rendering_option, vector
from rlcli.errors import RlcliError
from rlcli.recipe.annotations import MismatchError, convert, is_schedulable
from rlcli.types import ArrayTree, TimeStep

BATCH, STEPS, LIMIT = 6, 30, 12
GOLDEN = Path(__file__).with_name("golden.npz")

# Those that cannot be made without an option, and what they ask for.
NEEDY = {"bsuite/MNISTBandit": "a folder with the pictures"}

# Another value of an option whose annotation does not suggest one.
OTHERS: dict[str, Any] = {
    "probabilities": (0.1, 0.9),
    "lake": ("FSFF", "FFHG"),
    "layout": ("SG", "T."),
    "start": (1, 1),
    "goal": (4, 2),
    "size": 5,
    "view": 5,
}

# Other options with which the effect of one shows in a little random play.
WITH: dict[tuple[str, str], dict[str, Any]] = {
    ("Blackjack-v1", "natural"): {"sab": False},
    ("FrozenLake-v1", "goal_reward"): {"lake": ("SFG",)},
    ("MetaMaze-v0", "goal_reward"): {"size": 3},
    ("GridWorld-v0", "goal_reward"): {"layout": ("SG", "T.")},
    ("GridWorld-v0", "trap_reward"): {"layout": ("SG", "T.")},
    ("PointRobot-v0", "goal_radius"): {"starts_anywhere": True, "starts_again": True},
    ("Pong-v0", "max_speed"): {"visual": False},
    ("Taxi-v3", "rainy_probability"): {"is_rainy": True},
    ("bsuite/CartpoleSwingup", "height_threshold"): {
        "init_range": 3.0,
        "theta_dot_threshold": 99.0,
        "x_reward_threshold": 99.0,
    },
    ("bsuite/CartpoleSwingup", "x_reward_threshold"): {"init_range": 3.0},
    ("Taxi-v3", "fickle_probability"): {"fickle_passenger": True},
}

# Options whose effect so little play cannot show, and why: other tests look at them.
UNSEEN: dict[tuple[str, str], str] = {
    (f"MinAtar/{game}", "difficulty_ramping"): "it ramps after many steps"
    for game in ("Seaquest-v0", "Seaquest-v1", "SpaceInvaders-v0", "SpaceInvaders-v1")
} | {("FrozenLake8x8-v1", "goal_reward"): "the goal is farther away than `LIMIT` steps"}

# Options that do nothing: MinAtar takes them of every game.
IDLE = {
    (f"MinAtar/{game}-v{version}", key)
    for version in (0, 1)
    for game, key in (
        ("Breakout", "difficulty_ramping"),
        ("Freeway", "difficulty_ramping"),
        ("Seaquest", "minimal_actions"),
    )
}

# Play takes the same numbers with any compiler options, and compiles in a third.
QUICKLY = {"xla_backend_optimization_level": 0}


class Record(NamedTuple):
    """Random play, `[STEPS, BATCH, ...]`."""

    before: ArrayTree  # states of the core, before the step …
    action: ArrayTree
    noise: ArrayTree  # the core's
    timestep: TimeStep
    after: ArrayTree  # … and after it, or after the reset
    fresh: ArrayTree  # state and observation to begin anew with


def native():
    """The cores that rlcli brings, by the first of their names."""
    found = {}
    for name in registry.names("environment"):
        factory = registry.find("environment", name).factory
        if not name.endswith("/") and factory.__module__.startswith("rlcli."):
            found.setdefault(factory, name)
    return list(found.values())


@functools.cache
def make(name):
    return registry.find("environment", name).factory()


def drawn(name):
    """As it is made for films."""
    factory = registry.find("environment", name).factory
    return factory(**rendering_option(factory, True))


def is_complete(name):
    """Whether it can be made as it is."""
    try:
        make(name)
    except RlcliError:
        return False
    return True


ALL = native()
OURS = [name for name in ALL if is_complete(name)]
# One of each folder; the others are compiled by `make test-slow`.
QUICK = {"CartPole-v1", "FrozenLake-v1", "probe-two-steps", "MinAtar/Breakout-v1"}
QUICK |= {"bsuite/Catch", "FourRooms-v0", "BernoulliBandit-v0", "PointRobot-v0"}
QUICK |= {"ConnectFour-v0"}
EVERY = pytest.mark.parametrize("name", OURS)
PLAYED = pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name in QUICK else pytest.mark.slow)
        for name in OURS
    ],
)
BRIEFLY = settings(max_examples=4, deadline=None, phases=[Phase.generate])


def options(name):
    return registry.options(registry.find("environment", name).factory)


def numbers(name):
    """The options that may be traced, at their defaults."""
    return {
        key: parameter.default
        for key, parameter in options(name).items()
        if is_schedulable(parameter.annotation)
    }


@functools.cache
def compile_steps(name, fixed):
    """What draws the noise of all steps, and what takes one; numbers are traced."""
    factory = registry.find("environment", name).factory

    def env(values):
        return vector(
            lambda _: factory(**(values | dict(fixed))), BATCH, time_limit=LIMIT
        )

    def draw(values, key):
        return jax.vmap(env(values).draw)(jax.random.split(key, STEPS + 1))

    def step(values, state, action, noise, t):
        return env(values).step(state, action, index_tree(noise, t))

    return tuple(jax.jit(each, compiler_options=QUICKLY) for each in (draw, step))


def play_randomly(name, seed, *, shake=False, fixed=None, **changed):
    """Random play of a batch: first observations, and `Record`.

    With `shake` it begins anywhere: all floats of the first states have noise added.
    """
    draw, step = compile_steps(name, tuple((fixed or {}).items()))
    values = {key: jnp.float32(value) for key, value in numbers(name).items()}
    values |= {key: jnp.float32(value) for key, value in changed.items()}
    noise = draw(values, jax.random.key(seed))
    core, first = index_tree(noise.restart, STEPS)
    if shake:
        core = shake_state(core, np.random.default_rng(seed))
    state = VectorState(core, jnp.zeros(BATCH, jnp.int32))
    space, steps = make(name).action, []
    space.seed(seed)
    for t in range(STEPS):
        drawn = [space.sample() for _ in range(BATCH)]
        action = jax.tree.map(lambda *each: jnp.asarray(np.stack(each)), *drawn)
        after, timestep = step(values, state, action, noise, t)
        steps.append((state.core, action, timestep, after.core))
        state = after
    before, actions, timesteps, after = jax.tree.map(
        lambda *each: np.stack(each), *steps
    )
    noise = jax.tree.map(lambda leaf: np.asarray(leaf[:STEPS]), noise)
    record = Record(before, actions, noise.core, timesteps, after, noise.restart)
    return jax.tree.map(np.asarray, first), record


def shake_state(state, rng):
    return jax.tree.map(
        lambda leaf: (
            leaf + rng.normal(size=leaf.shape).astype(leaf.dtype)
            if jnp.issubdtype(leaf.dtype, jnp.floating)
            else leaf
        ),
        state,
    )


def index_tree(tree, *index):
    return jax.tree.map(lambda leaf: leaf[index], tree)


def equal(a, b):
    assert jax.tree.structure(a) == jax.tree.structure(b)
    jax.tree.map(np.testing.assert_array_equal, a, b)


def differ(a, b):
    pairs = zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    return any(
        not np.array_equal(x, y, equal_nan=x.dtype.kind == "f") for x, y in pairs
    )


def dtypes(space):
    """The dtypes of a space's leaves, in the order of `jax.tree`."""
    if isinstance(space, gymnasium.spaces.Tuple):
        return [each for part in space.spaces for each in dtypes(part)]
    if isinstance(space, gymnasium.spaces.Dict):
        return [each for _, part in sorted(space.items()) for each in dtypes(part)]
    return [space.dtype]


def elements(tree, *shape):
    """The observations of a batch of that shape, one by one."""
    for index in np.ndindex(*shape):
        yield index_tree(tree, *index)


def test_there_are_some():
    assert set(OURS) >= QUICK | {"Taxi-v3"}


def test_what_cannot_be_made_as_it_is_says_what_is_missing():
    assert set(ALL) - set(OURS) <= NEEDY.keys()
    for name in set(ALL) - set(OURS):
        with pytest.raises(RlcliError) as error:
            registry.find("environment", name).factory()
        assert error.value.hint


@EVERY
def test_it_is_a_core_without_a_batch(name):
    assert make(name).num_envs == 0
    assert make(name).pure


@PLAYED
@BRIEFLY
@given(seed=st.integers(0, 2**31 - 1))
def test_observations_are_in_its_space_with_its_dtype(name, seed):
    space = make(name).observation
    first, record = play_randomly(name, seed)
    for seen in (first, record.timestep.obs, record.timestep.next_obs):
        assert [leaf.dtype for leaf in jax.tree.leaves(seen)] == dtypes(space)
    every = (*elements(first, BATCH), *elements(record.timestep.next_obs, STEPS, BATCH))
    assert all(space.contains(obs) for obs in every)


@pytest.mark.slow
@EVERY
def test_observations_stay_in_its_space_for_whole_episodes(name):
    env = vector(lambda _: make(name), 64)

    def step(state, key):
        act, noise = jax.random.split(key)
        action = spaces.sample(env.action, act, (64,))
        state, timestep = env.step(state, action, env.draw(noise))
        inside = jax.vmap(partial(spaces.contains, env.observation))(timestep.next_obs)
        return state, (jnp.all(inside), jnp.all(jnp.isfinite(timestep.reward)))

    def play(key):
        state, _ = env.reset(key)
        return jax.lax.scan(step, state, jax.random.split(key, 3000))[1]

    inside, finite = jax.jit(play, compiler_options=QUICKLY)(jax.random.key(0))
    assert inside.all()
    assert finite.all()


@PLAYED
@BRIEFLY
@given(seed=st.integers(0, 2**31 - 1))
def test_episodes_end_and_begin_anew_where_they_should(name, seed):
    _, record = play_randomly(name, seed)
    timestep, elapsed = record.timestep, np.zeros(BATCH, int)
    for t in range(STEPS):
        now = index_tree(timestep, t)
        elapsed += 1
        assert np.all((now.discount == 0) | (now.discount == 1))
        np.testing.assert_array_equal(
            now.last, (now.discount == 0) | (elapsed == LIMIT)
        )
        for i in range(BATCH):
            mine = index_tree((record.after, timestep.obs), t, i)
            if now.last[i]:
                equal(mine, index_tree(record.fresh, t, i))
            else:
                equal(mine[1], index_tree(timestep.next_obs, t, i))
        elapsed[now.last] = 0
    assert timestep.reward.dtype == timestep.discount.dtype == np.float32
    assert timestep.last.dtype == bool
    assert np.all(np.isfinite(timestep.reward))


@PLAYED
def test_the_same_key_gives_the_same_play_and_another_one_another(name):
    equal(play_randomly(name, 1), play_randomly(name, 1))
    assert differ(play_randomly(name, 1), play_randomly(name, 2))


@PLAYED
def test_a_compiled_batch_is_what_python_computes_one_by_one(name):
    core, (_, record) = make(name), play_randomly(name, 3)
    for t, i in ((0, 1), (STEPS - 1, BATCH - 1)):
        state, action, noise = index_tree(
            (record.before, record.action, record.noise), t, i
        )
        state, action, noise = jax.tree.map(jnp.asarray, (state, action, noise))
        if isinstance(core.action, gymnasium.spaces.Discrete):
            action = int(action)  # as one writes it by hand
        after, found = core.step(state, action, noise)
        expected = index_tree(record.timestep, t, i)
        assert jax.tree.structure(after) == jax.tree.structure(state)
        equal(found.obs, found.next_obs)
        assert bool(found.last) == (float(found.discount) == 0)
        assert jax.tree.structure(found) == jax.tree.structure(expected)
        together = (expected.next_obs, expected.reward, expected.discount)
        alone = (found.next_obs, found.reward, found.discount)
        jax.tree.map(
            partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-5),
            together,
            alone,
        )


@PLAYED
def test_every_number_has_an_effect_and_may_be_traced(name):
    for key in numbers(name):
        fixed = WITH.get((name, key), {})
        other = another(name, key)
        assert (name, key) in UNSEEN or any(
            differ(
                play_randomly(name, 4, shake=shake, fixed=fixed),
                play_randomly(name, 4, shake=shake, fixed=fixed, **{key: other}),
            )
            for shake in (False, True)
        ), f"{key}: {other} is what {numbers(name)[key]} is"


@PLAYED
def test_every_other_option_shapes_a_space_or_the_program(name):
    for key in options(name).keys() - numbers(name).keys():
        plain = WITH.get((name, key), {})
        changed = plain | {key: another(name, key)}
        acts = reshapes(name, changed) or program(name, plain) != program(name, changed)
        assert acts == ((name, key) not in IDLE)
        assert not reshapes(name, {})
        assert program(name, plain) == program(name, plain)


@pytest.mark.slow
@PLAYED
def test_every_other_option_has_an_effect(name):
    for key in options(name).keys() - numbers(name).keys():
        plain = WITH.get((name, key), {})
        changed = plain | {key: another(name, key)}
        assert (
            (name, key) in {*UNSEEN, *IDLE}
            or reshapes(name, changed)
            or any(
                differ(
                    play_randomly(name, seed, shake=shake, fixed=plain),
                    play_randomly(name, seed, shake=shake, fixed=changed),
                )
                for seed in range(8)
                for shake in (False, True)
            )
        ), f"{changed} changes nothing"


def test_what_is_said_to_be_unseen_exists():
    for name, key in (*UNSEEN, *WITH, *IDLE):
        assert name not in OURS or key in options(name)


@PLAYED
def test_it_draws_itself_without_a_display(name, monkeypatch):
    monkeypatch.delenv("DISPLAY", raising=False)
    states = two_states(name)
    render = drawn(name).render
    frames = [render(state) for state in states]
    for frame in frames:
        assert frame.dtype == np.uint8
        assert frame.ndim == 3
        assert frame.shape[-1] == 3
        assert len(np.unique(frame.reshape(-1, 3), axis=0)) > 5
    assert frames[0].shape == frames[1].shape  # as films need it
    np.testing.assert_array_equal(frames[0], render(states[0]))
    golden = np.load(GOLDEN)
    if name in golden:  # those that somebody has looked at: `python golden.py NAME`
        off = np.abs(shrunk(frames[1]).astype(int) - golden[name])
        assert np.mean(off) < 3, "it draws something else than it did"


def two_states(name):
    """A state to begin with, and one that play has come to."""
    factory = registry.find("environment", name).factory
    _, record = play_randomly(name, 7, fixed=rendering_option(factory, True))
    return [
        jax.tree.map(jnp.asarray, index_tree(record.before, *when))
        for when in ((0, 0), (STEPS - 1, 2))
    ]


def shrunk(frame):
    """A picture `[H, W, 3]` as one so small, `[16, 24, 3]`, that it can be kept."""
    image = Image.fromarray(frame).resize((24, 16), Image.Resampling.BOX)
    return np.asarray(image)


@EVERY
def test_it_says_what_it_is(name):
    factory = registry.find("environment", name).factory
    assert factory.__doc__
    summary, *rest = factory.__doc__.splitlines()
    assert summary.endswith((".", ":", "?"))  # it is listed by this line alone
    assert len(rest) > 1
    positional = [
        parameter.name
        for parameter in inspect.signature(factory).parameters.values()
        if parameter.kind is not inspect.Parameter.KEYWORD_ONLY
    ]
    assert positional in ([], ["rendering"])


def another(name, key):
    """A value that an option may have, and that is not its default."""
    parameter = options(name)[key]
    for value in suggestions(key, parameter.annotation, parameter.default):
        try:
            converted = convert(parameter.annotation, value)
        except MismatchError:
            continue
        if converted != parameter.default:
            return converted
    pytest.fail(f"say in OTHERS what else `{key}` of {name} may be")


def suggestions(key, annotation, default):
    if key in OTHERS:
        yield OTHERS[key]
    if get_origin(annotation) is Literal:
        yield from get_args(annotation)
    elif isinstance(default, bool):
        yield not default
    elif isinstance(default, int):
        yield from (default + 1, default - 1)
    elif isinstance(default, float):
        yield from (default * 1.25 + 0.1, default / 2, default - 0.1)
    elif default is None:
        yield from (3, 0.5, True)


def reshapes(name, changed):
    """Whether options change a space."""
    core, other = make(name), registry.find("environment", name).factory(**changed)
    return core.observation != other.observation or core.action != other.action


def program(name, fixed):
    """All that play computes, as text and constants."""
    draw, step = compile_steps(name, tuple(fixed.items()))
    values = {key: jnp.float32(value) for key, value in numbers(name).items()}
    drawing = draw.trace(values, jax.random.key(0))
    noise = drawing.out_info
    core, _ = jax.tree.map(
        lambda leaf: leaf.update(shape=leaf.shape[1:]), noise.restart
    )
    elapsed = jax.ShapeDtypeStruct((BATCH,), jnp.int32)
    action = jax.tree.map(
        lambda *each: jnp.asarray(np.stack(each)),
        *(make(name).action.sample() for _ in range(BATCH)),
    )
    stepping = step.trace(values, VectorState(core, elapsed), action, noise, 0)
    constants = [
        np.asarray(each).tolist()
        for traced in (drawing, stepping)
        for each in traced.jaxpr.consts
    ]
    text = f"{drawing.jaxpr} {stepping.jaxpr}"
    return re.sub(r"0x[0-9a-f]+", "", text), constants
