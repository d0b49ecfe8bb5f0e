"""Final pictures: every episode of a film ends with the state that it ended in."""

import functools

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image

import rlcli
from rlcli import recipe, registry
from rlcli.assembly import build_environment
from rlcli.environments.adapters.host import episode_seed
from rlcli.environments.observation_image import observation_image
from rlcli.environments.to_gymnasium import to_gymnasium
from rlcli.evaluation.render import _compose_frames, _select_evaluator
from rlcli.loop.progress import EVALUATION
from rlcli.types import RenderState

EPISODES = 2
# Their steps are not random, so that a core repeats them.
NATIVE = ["bsuite/Catch", "FrozenLakeNonSlippery-v0"]
OURS = "rlcli_test/Catch-v0"  # ours, as one of Gymnasium's
WALK = "rlcli_test/Walk-v0"


class Walk(gymnasium.Env):
    """Counts the actions up to 5, and draws nothing."""

    metadata = {"render_modes": []}  # noqa: RUF012 # as Gymnasium has it
    observation_space = gymnasium.spaces.Box(0, 9, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.at = 0
        return np.float32([self.at]), {}

    def step(self, action):
        self.at += 1 + action
        return np.float32([self.at]), 1.0, self.at >= 5, False, {}


@pytest.fixture(autouse=True, scope="module")
def registered():
    def catch(render_mode=None):
        core = rlcli.make("bsuite/Catch")
        return to_gymnasium(core, render_mode=render_mode)

    catch.metadata = {"render_modes": ["rgb_array"]}
    gymnasium.register(OURS, catch)
    gymnasium.register(WALK, Walk)
    yield
    gymnasium.registry.pop(OURS)
    gymnasium.registry.pop(WALK)


@functools.cache
def watched(name):
    """Moments and pictures of each episode, the final ones apart."""
    _, _, evaluator, acting, _ = _select_evaluator(name, False, EPISODES, False)
    episodes, current = [], []
    for moment, image in evaluator.frames(acting):
        current.append((moment, image))
        if moment.action is None:
            episodes.append(current)
            current = []
    assert not current, "the film goes on after the last episode"
    assert len(episodes) == EPISODES
    return episodes


def tell(moment):
    return int(np.asarray(moment.length)[0, 0]), float(
        np.asarray(moment.running_return)[0, 0]
    )


@pytest.mark.parametrize("name", NATIVE)
@pytest.mark.slow
def test_a_native_episode_ends_with_the_drawing_of_its_final_state(name):
    core = registry.find("environment", name).factory()
    step = jax.jit(core.step)
    for episode in watched(name):
        (before, _), (final, image) = episode[-2:]
        state = jax.tree.map(lambda leaf: np.asarray(leaf)[0], before.state.core)
        action = np.int32(before.action[0, 0])
        after, timestep = jax.device_get(step(state, action, ()))
        assert timestep.last
        np.testing.assert_array_equal(image, core.render(after))
        length, total = tell(before)
        assert tell(final) == (length + 1, total + float(timestep.reward))


@pytest.mark.slow
def test_a_host_episode_is_drawn_before_the_next_one_begins():
    sequence = np.random.SeedSequence(
        [0, EVALUATION, 0]
    )  # as `Player` seeds its episodes
    number = int(sequence.generate_state(1)[0])
    env = gymnasium.make(OURS, render_mode="rgb_array")
    for index, episode in enumerate(watched(f"gymnasium/{OURS}")):
        env.reset(seed=episode_seed(number, 0, index))
        for moment, image in episode[:-1]:
            np.testing.assert_array_equal(image, env.render())
            *_, reward, terminated, _, _ = env.step(int(moment.action[0, 0]))
        assert terminated
        final, image = episode[-1]
        np.testing.assert_array_equal(image, env.render())
        assert tell(final) == (9, reward)


def test_a_host_episode_without_a_drawing_ends_with_its_final_observation():
    for episode in watched(f"gymnasium/{WALK}"):
        actions = [int(moment.action[0, 0]) for moment, _ in episode[:-1]]
        at = np.float32([len(actions) + sum(actions)])
        assert at >= 5
        expected = observation_image(Walk.observation_space, at)
        np.testing.assert_array_equal(episode[-1][1], expected)


@pytest.mark.slow
def test_a_truncated_episode_ends_with_its_last_state():
    for episode in watched("probe-truncation"):
        assert tell(episode[-1][0]) == (5, 5.0)
        assert not np.array_equal(episode[-1][1], episode[0][1])


@pytest.mark.slow
def test_the_last_picture_of_a_film_is_the_final_one(tmp_path):
    file = rlcli.render("bsuite/Catch", output=tmp_path / "a.gif", episodes=EPISODES)
    final = watched("bsuite/Catch")[-1][-1][1]
    with Image.open(file) as film:
        assert film.n_frames == EPISODES * 10
        film.seek(film.n_frames - 1)
        shown = np.asarray(film.convert("RGB")).astype(int)
    assert np.mean(np.abs(shown - final)) < 2  # of a palette


@pytest.mark.slow
def test_below_a_final_picture_stand_its_step_and_return_alone():
    (before, _), (final, image) = watched("probe-constant-reward")[0]
    lines = [
        next(_compose_frames([(each, image)], None, True))[-28:]
        for each in (before, final)
    ]
    third = lines[1].shape[1] // 3
    assert np.any(lines[0][:, 2 * third :] != lines[0][0, 0])
    assert np.all(lines[1][:, 2 * third :] == lines[1][0, 0])
    assert np.any(lines[1][:, :third] != lines[0][:, :third])


def test_a_stack_around_the_environment_keeps_the_final_picture():
    data = {
        "environment": {"name": "bsuite/Catch", "num_envs": 1},
        "network": {"name": "mlp", "preprocess": [{"name": "frame_stack"}]},
        "updater": "ppo",
    }
    env = build_environment(recipe.load_recipe(data), 1, rendering=True)

    @jax.jit
    def play():
        state, _ = env.reset(jax.random.key(0))
        for time in range(9):
            noise = env.draw(jax.random.key(time))
            state, timestep = env.step(state, jnp.int32([0]), noise)
        return state, timestep.last

    state, last = jax.device_get(play())
    assert last
    final = env.render_final(state, 0)
    assert not np.array_equal(final, env.render(state, 0))


def test_only_environments_for_rendering_store_final_states():
    data = {"environment": {"name": "Blackjack-v1", "num_envs": 3}, "updater": "ppo"}
    parsed, sizes = recipe.load_recipe(data), []
    for rendering in (False, True):
        env = build_environment(parsed, 1, rendering=rendering)
        state, _ = jax.eval_shape(env.reset, jax.random.key(0))
        sizes.append((len(jax.tree.leaves(state.core)), len(jax.tree.leaves(state))))
    core = registry.find("environment", "Blackjack-v1").factory()
    plain = len(jax.tree.leaves(jax.eval_shape(core.reset, jax.random.key(0))[0]))
    assert sizes[0] == (plain, plain + 1)  # and the time
    assert sizes[1][0] > plain and sizes[1][1] == 2 * sizes[1][0] + 1
    env = build_environment(parsed, 1)
    state, _ = env.reset(jax.random.key(0))
    assert env.render_final(state, 0) is None


def test_make_gives_final_pictures_if_asked():
    name = "probe-constant-reward"
    env = rlcli.make(name, num_envs=2, rendering=True, statistics=True)
    core = rlcli.make(name)

    @jax.jit
    def play():
        key, noise = jax.random.key(0), jax.random.key(1)
        state, _ = env.step(env.reset(key)[0], jnp.int32([0, 1]), noise)
        after, _ = core.step(core.reset(key)[0], jnp.int32(1), noise)
        return state, after

    state, after = jax.device_get(play())
    np.testing.assert_array_equal(env.render_final(state, 1), core.render(after))


def test_what_only_pictures_show_is_no_part_of_an_exposed_state():
    spaces = [
        rlcli.make("Blackjack-v1", wrappers=["expose_state"], rendering=each)
        for each in (False, True)
    ]
    assert spaces[0].observation == spaces[1].observation
    state, obs = jax.jit(spaces[1].reset)(jax.random.key(0))
    assert isinstance(state, RenderState)
    assert spaces[1].observation.contains(jax.tree.map(np.asarray, obs))
