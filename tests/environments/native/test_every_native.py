"""Properties of every native environment; new environments are tested automatically.

Each environment is compiled once with all numbers traced and played at random; the
tests check the recorded play in NumPy.
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
from rlcli.environments.observation_image import with_render
from rlcli.environments.vector import VectorState, vector
from rlcli.errors import RlcliError
from rlcli.recipe.annotations import MismatchError, convert, is_schedulable
from rlcli.types import ArrayTree, Core, RenderState, TimeStep, missing_render

BATCH, STEPS, TIME_LIMIT = 6, 30, 12
GOLDEN = Path(__file__).with_name("golden.npz")

# Environments with a required option, and the option.
REQUIRED_OPTIONS = {"bsuite/MNISTBandit": "a folder with the images"}

# One level of each family of MiniGrid; the others run the same code.
MINIGRID = {"MiniGrid-Empty-Random-5x5-v0", "MiniGrid-DoorKey-5x5-v0"}
MINIGRID |= {"MiniGrid-KeyCorridorS3R3-v0", "MiniGrid-MemoryS13Random-v0"}

# Non-default values of options that cannot be derived from the annotation.
OTHER_VALUES: dict[str, Any] = {
    "probabilities": (0.1, 0.9),
    "lake": ("FSFF", "FFHG"),
    "layout": ("SG", "T."),
    "start": (1, 1),
    "goal": (4, 2),
    "size": 5,
    "view": 5,
    "agent_view_size": 5,
}

# Additional options that make the effect of an option visible in short random play.
CONTEXTS: dict[tuple[str, str], dict[str, Any]] = {
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

# Options without an effect in short play, and the reason; other tests cover them.
NOT_VISIBLE: dict[tuple[str, str], str] = {
    (f"MinAtar/{game}", "difficulty_ramping"): "it ramps after many steps"
    for game in ("Seaquest-v0", "Seaquest-v1", "SpaceInvaders-v0", "SpaceInvaders-v1")
} | {
    (
        "FrozenLake8x8-v1",
        "goal_reward",
    ): "the goal is farther away than `TIME_LIMIT` steps"
}

NOT_VISIBLE |= {
    (name, "max_steps"): "it scales the reward of success, which is rare"
    for name in MINIGRID
}

# Options without any effect: every MinAtar game has them.
IDLE = {
    (f"MinAtar/{game}-v{version}", key)
    for version in (0, 1)
    for game, key in (
        ("Breakout", "difficulty_ramping"),
        ("Freeway", "difficulty_ramping"),
        ("Seaquest", "minimal_actions"),
    )
}

# The results do not depend on compiler options; compiling takes a third of the time.
FAST_COMPILE = {"xla_backend_optimization_level": 0}


class Record(NamedTuple):
    """Random play, `[STEPS, BATCH, ...]`."""

    before: ArrayTree  # states of the core before the step
    action: ArrayTree
    noise: ArrayTree  # of the core
    timestep: TimeStep
    after: ArrayTree  # states after the step, or after the reset
    fresh: ArrayTree  # state and observation of a reset


def native():
    """The native environments, by the first of their names."""
    environments = {}
    for name in registry.names("environment"):
        factory = registry.find("environment", name).factory
        if not name.endswith("/") and factory.__module__.startswith("rlcli."):
            environments.setdefault(factory, name)
    return list(environments.values())


@functools.cache
def make(name):
    return registry.find("environment", name).factory()


def build_for_rendering(name):
    """The environment as built for videos."""
    factory = registry.find("environment", name).factory
    return registry.call_factory(factory, {"rendering": True}, {})


def is_complete(name):
    """Whether the environment needs no options."""
    try:
        make(name)
    except RlcliError:
        return False
    return True


def is_variant(name):
    """Whether another environment runs the same code, with another size."""
    return name.startswith("MiniGrid-") and name not in MINIGRID


ALL = native()
COMPLETE = [name for name in ALL if is_complete(name)]
# One environment per package; `make test-slow` compiles the others.
QUICK = {"CartPole-v1", "FrozenLake-v1", "probe-two-steps", "MinAtar/Breakout-v1"}
QUICK |= {"bsuite/Catch", "FourRooms-v0", "BernoulliBandit-v0", "PointRobot-v0"}
QUICK |= {"ConnectFour-v0", "MiniGrid-Empty-Random-5x5-v0", "BitFlip-v0"}
EVERY = pytest.mark.parametrize("name", COMPLETE)


def played(quick):
    """Marks a test of all environments that are played, and the others as slow."""
    return pytest.mark.parametrize(
        "name",
        [
            pytest.param(name, marks=() if name in quick else pytest.mark.slow)
            for name in COMPLETE
            if not is_variant(name)
        ],
    )


PLAYED = played(QUICK)
FEW_EXAMPLES = settings(max_examples=2, deadline=None, phases=[Phase.generate])


def options(name):
    return registry.options(registry.find("environment", name).factory)


def numbers(name):
    """The options that can be traced, with their defaults."""
    return {
        key: parameter.default
        for key, parameter in options(name).items()
        if is_schedulable(parameter.annotation)
    }


@functools.cache
def compile_steps(name, fixed):
    """Compiles the noise of all steps, and one step; numbers are traced."""
    factory = registry.find("environment", name).factory

    def env(values):
        return vector(
            lambda _: factory(**(values | dict(fixed))), BATCH, time_limit=TIME_LIMIT
        )

    def draw(values, key):
        return jax.vmap(env(values).draw)(jax.random.split(key, STEPS + 1))

    def step(values, state, action, noise, t):
        return env(values).step(state, action, index_tree(noise, t))

    return tuple(jax.jit(f, compiler_options=FAST_COMPILE) for f in (draw, step))


def play_randomly(name, seed, *, shake=False, fixed=None, **changed):
    """Plays a batch at random; returns the first observations and a `Record`.

    `shake` adds noise to all floats of the first states.
    """
    draw, step = compile_steps(name, tuple((fixed or {}).items()))
    values = {key: np.float32(value) for key, value in numbers(name).items()}
    values |= {key: np.float32(value) for key, value in changed.items()}
    noise = jax.device_get(draw(values, jax.random.key(seed)))
    core, first = index_tree(noise.restart, STEPS)
    if shake:
        core = shake_state(core, np.random.default_rng(seed))
    state = VectorState(core, np.zeros(BATCH, np.int32))
    space, steps = make(name).action, []
    space.seed(seed)
    for t in range(STEPS):
        samples = [space.sample() for _ in range(BATCH)]
        action = jax.tree.map(lambda *leaves: np.stack(leaves), *samples)
        after, timestep = step(values, state, action, noise, t)
        steps.append((state.core, action, timestep, after.core))
        state = after
    before, actions, timesteps, after = jax.tree.map(
        lambda *leaves: np.stack(leaves), *steps
    )
    noise = jax.tree.map(lambda leaf: leaf[:STEPS], noise)
    record = Record(before, actions, noise.core, timesteps, after, noise.restart)
    return first, record


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
        return [dtype for part in space.spaces for dtype in dtypes(part)]
    if isinstance(space, gymnasium.spaces.Dict):
        return [dtype for _, part in sorted(space.items()) for dtype in dtypes(part)]
    return [space.dtype]


def elements(tree, *shape):
    """The observations of a batch of that shape, one by one."""
    for index in np.ndindex(*shape):
        yield index_tree(tree, *index)


def test_native_environments_are_registered():
    assert set(COMPLETE) >= QUICK | {"Taxi-v3"}


def test_a_missing_option_is_named_in_the_error():
    assert set(ALL) - set(COMPLETE) <= REQUIRED_OPTIONS.keys()
    for name in set(ALL) - set(COMPLETE):
        with pytest.raises(RlcliError) as error:
            registry.find("environment", name).factory()
        assert error.value.hint


@EVERY
def test_the_factory_returns_an_unbatched_environment(name):
    assert isinstance(make(name), Core)


@PLAYED
@FEW_EXAMPLES
@given(seed=st.integers(0, 2**31 - 1))
def test_observations_are_in_the_space_with_its_dtype(name, seed):
    space = make(name).observation
    first, record = play_randomly(name, seed)
    for seen in (first, record.timestep.obs, record.timestep.next_obs):
        assert [leaf.dtype for leaf in jax.tree.leaves(seen)] == dtypes(space)
    every = (*elements(first, BATCH), *elements(record.timestep.next_obs, STEPS, BATCH))
    assert all(space.contains(obs) for obs in every)


@pytest.mark.slow
@PLAYED
def test_observations_stay_in_the_space_for_whole_episodes(name):
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

    inside, finite = jax.jit(play, compiler_options=FAST_COMPILE)(jax.random.key(0))
    assert inside.all()
    assert finite.all()


@PLAYED
@FEW_EXAMPLES
@given(seed=st.integers(0, 2**31 - 1))
def test_episodes_end_and_reset_at_the_right_steps(name, seed):
    _, record = play_randomly(name, seed)
    timestep, elapsed = record.timestep, np.zeros(BATCH, int)
    for t in range(STEPS):
        now = index_tree(timestep, t)
        elapsed += 1
        assert np.all((now.discount == 0) | (now.discount == 1))
        np.testing.assert_array_equal(
            now.last, (now.discount == 0) | (elapsed == TIME_LIMIT)
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
def test_play_depends_only_on_the_key(name):
    equal(play_randomly(name, 1), play_randomly(name, 1))
    assert differ(play_randomly(name, 1), play_randomly(name, 2))


# These two run many operations: eagerly, each is compiled on its own.
@played(QUICK - {"ConnectFour-v0", "MiniGrid-Empty-Random-5x5-v0"})
def test_a_compiled_batch_equals_single_eager_steps(name):
    core, (_, record) = make(name), play_randomly(name, 3)
    for t, i in ((0, 1), (STEPS - 1, BATCH - 1)):
        state, action, noise = index_tree(
            (record.before, record.action, record.noise), t, i
        )
        state, action, noise = jax.tree.map(jnp.asarray, (state, action, noise))
        if isinstance(core.action, gymnasium.spaces.Discrete):
            action = np.int64(action)  # as Gymnasium samples it
        after, found = core.step(state, action, noise)
        expected = index_tree(record.timestep, t, i)
        assert jax.tree.structure(after) == jax.tree.structure(state)
        equal(found.obs, found.next_obs)
        assert bool(found.last) == (float(found.discount) == 0)
        assert jax.tree.structure(found) == jax.tree.structure(expected)
        together = (expected.next_obs, expected.reward, expected.discount)
        single_results = (found.next_obs, found.reward, found.discount)
        jax.tree.map(
            partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-5),
            together,
            single_results,
        )


@PLAYED
def test_every_number_has_an_effect_and_can_be_traced(name):
    for key in numbers(name):
        fixed = CONTEXTS.get((name, key), {})
        other = other_value(name, key)
        assert (name, key) in NOT_VISIBLE or any(
            differ(
                play_randomly(name, 4, shake=shake, fixed=fixed),
                play_randomly(name, 4, shake=shake, fixed=fixed, **{key: other}),
            )
            for shake in (False, True)
        ), f"{key}: {other} has the same effect as {numbers(name)[key]}"


@PLAYED
def test_every_other_option_changes_a_space_or_the_program(name):
    for key in options(name).keys() - numbers(name).keys():
        plain = CONTEXTS.get((name, key), {})
        changed = plain | {key: other_value(name, key)}
        acts = changes_a_space(name, changed) or program(name, plain) != program(
            name, changed
        )
        assert acts == ((name, key) not in IDLE)
        assert not changes_a_space(name, {})
        assert program(name, plain) == program(name, plain)


@pytest.mark.slow
@PLAYED
def test_every_other_option_has_an_effect(name):
    for key in options(name).keys() - numbers(name).keys():
        plain = CONTEXTS.get((name, key), {})
        changed = plain | {key: other_value(name, key)}
        assert (
            (name, key) in {*NOT_VISIBLE, *IDLE}
            or changes_a_space(name, changed)
            or any(
                differ(
                    play_randomly(name, seed, shake=shake, fixed=plain),
                    play_randomly(name, seed, shake=shake, fixed=changed),
                )
                for seed in range(8)
                for shake in (False, True)
            )
        ), f"{changed} changes nothing"


def test_all_listed_exceptions_exist():
    for name, key in (*NOT_VISIBLE, *CONTEXTS, *IDLE):
        assert name not in COMPLETE or key in options(name)


@PLAYED
def test_it_renders_without_a_display(name, monkeypatch):
    monkeypatch.delenv("DISPLAY", raising=False)
    core = build_for_rendering(name)
    states, render = two_states(name), core.render
    if render is missing_render:  # videos show its observations
        core = with_render(core)
        states, render = [core.reset(jax.random.key(n))[0] for n in (0, 1)], core.render
    frames = [render(state) for state in states]
    for frame in frames:
        assert frame.dtype == np.uint8
        assert frame.ndim == 3
        assert frame.shape[-1] == 3
        if isinstance(states[0], RenderState):
            continue
        colours = frame @ np.array([1, 256, 256**2])
        assert len(np.unique(colours)) > 5
    assert frames[0].shape == frames[1].shape  # as videos require
    np.testing.assert_array_equal(frames[0], render(states[0]))
    golden = np.load(GOLDEN)
    if name in golden:  # reviewed frames: `python golden.py NAME`
        difference = np.abs(thumbnail(frames[1]).astype(int) - golden[name])
        assert np.mean(difference) < 3, "its frame has changed"


def two_states(name):
    """An initial state, and a state reached by random play."""
    factory = registry.find("environment", name).factory
    takes = "rendering" in registry.positional_parameters(factory)
    _, record = play_randomly(name, 7, fixed={"rendering": True} if takes else {})
    return [
        jax.tree.map(jnp.asarray, index_tree(record.before, *when))
        for when in ((0, 0), (STEPS - 1, 2))
    ]


def thumbnail(frame):
    """A thumbnail `[16, 24, 3]` of a frame `[H, W, 3]`."""
    image = Image.fromarray(frame).resize((24, 16), Image.Resampling.BOX)
    return np.asarray(image)


@EVERY
def test_its_docstring_has_a_summary(name):
    factory = registry.find("environment", name).factory
    assert factory.__doc__
    summary, *rest = factory.__doc__.splitlines()
    assert summary.endswith((".", ":", "?"))  # `rlcli list` prints this line
    assert len(rest) > 1
    positional = [
        parameter.name
        for parameter in inspect.signature(factory).parameters.values()
        if parameter.kind is not inspect.Parameter.KEYWORD_ONLY
    ]
    assert positional in ([], ["rendering"])


def other_value(name, key):
    """A valid value of an option that is not its default."""
    parameter = options(name)[key]
    for value in suggestions(key, parameter.annotation, parameter.default):
        try:
            converted = convert(parameter.annotation, value)
        except MismatchError:
            continue
        if converted != parameter.default:
            return converted
    pytest.fail(f"add other_value value of `{key}` of {name} to OTHER_VALUES")


def suggestions(key, annotation, default):
    if key in OTHER_VALUES:
        yield OTHER_VALUES[key]
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


def changes_a_space(name, changed):
    """Whether options change a space."""
    core, other = make(name), registry.find("environment", name).factory(**changed)
    return core.observation != other.observation or core.action != other.action


def program(name, fixed):
    """The computation of play, as text and constants."""
    draw, step = compile_steps(name, tuple(fixed.items()))
    values = {key: jnp.float32(value) for key, value in numbers(name).items()}
    drawing = draw.trace(values, jax.random.key(0))
    noise = drawing.out_info
    core, _ = jax.tree.map(
        lambda leaf: leaf.update(shape=leaf.shape[1:]), noise.restart
    )
    elapsed = jax.ShapeDtypeStruct((BATCH,), jnp.int32)
    action = jax.tree.map(
        lambda *leaves: jnp.asarray(np.stack(leaves)),
        *(make(name).action.sample() for _ in range(BATCH)),
    )
    stepping = step.trace(values, VectorState(core, elapsed), action, noise, 0)
    constants = [
        np.asarray(constant).tolist()
        for traced in (drawing, stepping)
        for constant in traced.jaxpr.consts
    ]
    text = f"{drawing.jaxpr} {stepping.jaxpr}"
    return re.sub(r"0x[0-9a-f]+", "", text), constants
