"""The Gymnasium adapter, compared with stepping Gymnasium directly."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import rlcli
from rlcli import recipe, registry
from rlcli.assembly import build_environment
from rlcli.environments.adapters.gymnasium import gymnasium_adapter
from rlcli.environments.adapters.host_vector import episode_seed
from rlcli.errors import RlcliError
from rlcli.registry import user_code
from rlcli.registry.libraries import install_command

SEEDS = np.array([7, 4_000_000_000], np.uint32)
IDS = [
    "CartPole-v1",
    "Pendulum-v1",
    "MountainCar-v0",
    "MountainCarContinuous-v0",
    "Acrobot-v1",
    "FrozenLake-v1",
    "Taxi-v4",
    "CliffWalking-v1",
    "CliffWalkingSlippery-v1",
]


def adapter(id: str, num_envs: int = 1, seeds: int = 1, limit="default", **options):
    return gymnasium_adapter(id, num_envs, seeds, limit, None, options=options)


def actions_for(id: str, steps: int, *grid: int) -> np.ndarray:
    space = gymnasium.make(id).action_space
    space.seed(3)
    drawn = [space.sample() for _ in range(steps * int(np.prod(grid)))]
    return np.array(drawn).reshape(steps, *grid, *space.shape)


class DirectGymnasium:
    """One environment, stepped as in a notebook."""

    def __init__(self, id: str, seed: int, environment: int, **keywords) -> None:
        self.env = gymnasium.make(id, **keywords)
        self.place = seed, environment
        self.episode = -1

    def reset(self):
        self.episode += 1
        return self.env.reset(seed=episode_seed(*self.place, self.episode))[0]

    def step(self, action):
        """The fields of a TimeStep."""
        seen, reward, terminated, truncated, _ = self.env.step(action)
        last = terminated or truncated
        after = self.reset() if last else seen
        return after, seen, np.float32(reward), 0.0 if terminated else 1.0, last


def play(env, actions):
    """All observations and answers, from the reset on."""
    state, obs = env.reset(SEEDS[: actions.shape[1]])
    timesteps = []
    for action in actions:
        state, timestep = env.step(state, action)
        timesteps.append(timestep)
    return state, obs, timesteps


def equal(a, b) -> None:
    for name in ("obs", "next_obs", "reward", "discount", "last"):
        np.testing.assert_array_equal(getattr(a, name), getattr(b, name), name)


@pytest.mark.parametrize("id", IDS)
def test_the_adapter_matches_stepping_gymnasium_directly(id: str) -> None:
    limit, seeds, num_envs, steps = 13, 2, 2, 40
    actions = actions_for(id, steps, seeds, num_envs)
    env = adapter(id, num_envs, seeds, limit)
    # An agent's actions are in half-widths of the Box.
    _, obs, timesteps = play(env, actions / 2 if id == "Pendulum-v1" else actions)
    for row in range(seeds):
        for column in range(num_envs):
            hand = DirectGymnasium(id, int(SEEDS[row]), column, max_episode_steps=limit)
            np.testing.assert_array_equal(obs[row, column], hand.reset())
            for action, timestep in zip(actions, timesteps, strict=True):
                expected = hand.step(action[row, column])
                for ours, theirs in zip(timestep, expected, strict=False):
                    np.testing.assert_array_equal(ours[row, column], theirs)


@pytest.mark.parametrize("id", IDS)
def test_timesteps_have_the_declared_dtypes_and_spaces(id: str) -> None:
    env = adapter(id, 2, 2, 5)
    _, obs, timesteps = play(env, actions_for(id, 12, 2, 2))
    to = np.float32 if isinstance(env.observation, spaces.Box) else np.int32
    assert obs.dtype == to and obs.shape == (2, 2, *env.observation.shape)
    for timestep in timesteps:
        assert timestep.obs.dtype == timestep.next_obs.dtype == to
        assert timestep.reward.dtype == timestep.discount.dtype == np.float32
        assert timestep.last.dtype == np.bool_
        assert timestep.reward.shape == timestep.last.shape == (2, 2)
        assert timestep.last.any() or not timestep.info
        assert all(each.shape == (2, 2) for each in timestep.info.values())
        for row in timestep.obs.reshape(4, *env.observation.shape):
            assert env.observation.contains(row)


def test_a_truncated_episode_returns_its_true_final_observation() -> None:
    env = adapter("Pendulum-v1", limit=3)
    _, _, timesteps = play(env, actions_for("Pendulum-v1", 4, 1, 1))
    assert [bool(each.last) for each in timesteps] == [False, False, True, False]
    assert all(each.discount == 1 for each in timesteps)
    assert np.array_equal(timesteps[1].obs, timesteps[1].next_obs)
    assert not np.array_equal(timesteps[2].obs, timesteps[2].next_obs)


@pytest.mark.parametrize(("limit", "ends"), [("default", 200), (None, None), (50, 50)])
def test_the_time_limit_is_the_default_none_or_a_number(limit, ends) -> None:
    env = adapter("Pendulum-v1", limit=limit)
    _, _, timesteps = play(env, np.zeros((210, 1, 1, 1), np.float32))
    ended = [step for step, each in enumerate(timesteps, 1) if each.last]
    assert ended[:1] == ([] if ends is None else [ends])


def test_returned_arrays_are_never_written_again() -> None:
    env = adapter("CartPole-v1", 2, 1, 4)
    state, obs = env.reset(SEEDS[:1])
    seen, copies = [obs], [obs.copy()]
    for action in actions_for("CartPole-v1", 12, 1, 2):
        state, timestep = env.step(state, action)
        seen += [timestep.obs, timestep.next_obs]
        copies += [timestep.obs.copy(), timestep.next_obs.copy()]
        action[:] = 0  # nor is the action that was taken in
    state, warning = env.host.restore(env.host.save(state))
    assert warning == ""
    for a, b in zip(seen, copies, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("id", IDS)
def test_a_restored_environment_continues_exactly(id: str) -> None:
    limit = {"CartPole-v1": "default"}.get(id, 30)
    actions = actions_for(id, 100, 2, 2)
    env = adapter(id, 2, 2, limit)
    state, _, _ = play(env, actions[:47])
    saved = env.host.save(state)
    saved_copy = {name: array.copy() for name, array in saved.items()}
    expected = []
    for action in actions[47:]:
        state, timestep = env.step(state, action)
        expected.append(timestep)
    restored, warning = adapter(id, 2, 2, limit).host.restore(saved)
    assert warning == ""
    for name, array in env.host.save(restored).items():
        np.testing.assert_array_equal(array, saved_copy[name], name)
    for action, timestep in zip(actions[47:], expected, strict=True):
        restored, ours = env.step(restored, action)
        equal(ours, timestep)


def test_actions_beyond_a_box_are_clipped_to_it() -> None:
    beyond, within = np.full((1, 1, 1, 1), 50.0), np.full((1, 1, 1, 1), 2.0)
    for sign in (-1, 1):
        _, _, wild = play(adapter("Pendulum-v1"), sign * beyond)
        _, _, tame = play(adapter("Pendulum-v1"), sign * within)
        equal(wild[0], tame[0])


def test_an_id_without_a_version_means_the_newest() -> None:
    _, _, old = play(adapter("CartPole-v0"), np.zeros((1, 1, 1), np.int32))
    _, _, new = play(adapter("CartPole"), np.zeros((1, 1, 1), np.int32))
    equal(old[0], new[0])
    env = adapter("CartPole", limit="default")
    assert env.reset(SEEDS[:1])[0].vector.copies[0].spec.id == "CartPole-v1"


def test_options_are_passed_to_gymnasium() -> None:
    assert adapter("FrozenLake-v1", map_name="8x8").observation == spaces.Discrete(64)


@pytest.mark.parametrize(
    ("id", "message", "hint"),
    [
        ("CartPol-v1", "there is no environment `gymnasium/CartPol-v1`", "CartPole-v1"),
        (
            "CartPole-v9",
            "gymnasium/CartPole-v9",
            "choose from `gymnasium/CartPole-v0`, ",
        ),
        ("Qzxw-v1", "gymnasium/Qzxw-v1", "MODULE:ID"),
        # No other environment of version 5 is suggested, although its id is similar.
        ("Pong-v5", "gymnasium/Pong-v5", "`gymnasium/ALE/…` are Atari games"),
        ("nowhere/Qzxw-v1", "gymnasium/nowhere/Qzxw-v1", "MODULE:ID"),
        ("no_such_module:A-v0", "`no_such_module` cannot be imported", "install"),
        ("$", "Malformed environment ID", ""),
    ],
)
def test_an_unknown_id_suggests_the_closest_registered_id(
    id, message, hint, monkeypatch
) -> None:
    for name, spec in [*gymnasium.registry.items()]:
        if str(spec.entry_point).startswith("ale_py"):  # other tests may import it
            monkeypatch.delitem(gymnasium.registry, name)
    with pytest.raises(RlcliError) as caught:
        adapter(id)
    assert message in caught.value.message
    assert hint in caught.value.hint


def test_spaces_without_a_fixed_shape_are_refused() -> None:
    class Says(Plain):
        observation_space = spaces.Tuple([spaces.Discrete(2), spaces.Text(4)])

    gymnasium.register("rlcli_test/Says-v0", Says)
    with pytest.raises(RlcliError, match="its observation space is Text"):
        adapter("rlcli_test/Says-v0")
    gymnasium.registry.pop("rlcli_test/Says-v0")


def test_an_option_that_the_environment_lacks_is_refused() -> None:
    with pytest.raises(RlcliError, match="unexpected keyword argument 'gravitee'"):
        adapter("Pendulum-v1", gravitee=3)
    with pytest.raises(
        RlcliError, match="cannot contain `max_episode_steps`"
    ) as caught:
        adapter("Pendulum-v1", max_episode_steps=3)
    assert "`time_limit`" in caught.value.hint


@pytest.mark.parametrize("name", ["num_envs", "id", "function", "external"])
@pytest.mark.parametrize("way", ["sync", "own"])
def test_options_never_collide_with_arguments_of_the_adapter(name, way) -> None:
    with pytest.raises(RlcliError, match=f"cannot contain|argument '{name}'"):
        gymnasium_adapter(
            "CartPole-v1", 1, 1, None, None, options={name: 4}, vectorization=way
        )


@pytest.mark.parametrize("atari", ["raw", {"stack": 2}])
def test_the_option_atari_is_refused_for_other_environments(atari) -> None:
    with pytest.raises(RlcliError, match="has no option `atari`"):
        gymnasium_adapter("CartPole-v1", 1, 1, None, None, atari=atari)


def test_a_missing_package_names_the_extra() -> None:
    def lacks(**keywords):
        raise gymnasium.error.DependencyNotInstalled("mujoco is not installed")

    gymnasium.register("rlcli_test/Lacks-v0", lacks)
    with pytest.raises(RlcliError, match="mujoco is not installed") as caught:
        adapter("rlcli_test/Lacks-v0")
    assert caught.value.hint == install_command("gymnasium")
    gymnasium.registry.pop("rlcli_test/Lacks-v0")


def test_a_missing_renderer_names_the_extra(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "pygame", None)
    env = gymnasium_adapter("CartPole-v1", 1, 1, "default", None, True)
    state, _ = env.reset(SEEDS[:1])
    with pytest.raises(RlcliError, match="pygame") as caught:
        env.render(state, 0)
    assert caught.value.hint == install_command("gymnasium")


def test_an_environment_without_rendering_draws_its_observation() -> None:
    env = gymnasium_adapter("rlcli_test/Plain-v0", 1, 1, None, None, True)
    state, _ = env.reset(SEEDS[:1])
    before = env.render(state, 0)
    state, _ = env.step(state, np.full((1, 1), 3))
    assert not np.array_equal(before, env.render(state, 0))


def test_an_environment_with_rendering_renders_itself() -> None:
    pytest.importorskip("pygame")
    env = gymnasium_adapter("CartPole-v1", 2, 1, "default", None, True)
    state, _ = env.reset(SEEDS[:1])
    hand = DirectGymnasium("CartPole-v1", int(SEEDS[0]), 1, render_mode="rgb_array")
    hand.reset()
    np.testing.assert_array_equal(env.render(state, 1), hand.env.render())


@pytest.mark.parametrize(
    "convert",
    [
        lambda image: image / 255,
        lambda image: np.moveaxis(image, -1, 0),
        lambda image: [image],
        lambda image: np.dstack([image, np.full((4, 6), 255, np.uint8)]),
    ],
)
def test_images_in_other_forms_are_the_same_pixels(convert, monkeypatch) -> None:
    image = np.zeros((4, 6, 3), np.uint8)
    image[:, 2] = (40, 90, 140)
    monkeypatch.setattr(Plain, "metadata", {"render_modes": ["rgb_array"]})
    monkeypatch.setattr(Plain, "render_mode", "rgb_array")
    monkeypatch.setattr(Plain, "__init__", lambda self, render_mode=None: None)
    monkeypatch.setattr(Plain, "render", lambda self: convert(image))
    env = gymnasium_adapter("rlcli_test/Plain-v0", 1, 1, None, None, True)
    state, _ = env.reset(SEEDS[:1])
    np.testing.assert_array_equal(env.render(state, 0), image)
    monkeypatch.setattr(Plain, "render", lambda self: None)
    with pytest.raises(RlcliError, match="Plain-v0`: `render` returned None, not an"):
        env.render(state, 0)


class Plain(gymnasium.Env):
    """No rendering, no end; actions from 3, observations from -1, float64 rewards."""

    metadata = {"render_modes": []}  # noqa: RUF012 # as Gymnasium has it
    observation_space = spaces.Discrete(5, start=-1)
    action_space = spaces.Discrete(5, start=3)

    def reset(self, *, seed=None, options=None):
        return -1, {}

    def step(self, action):
        assert action in self.action_space
        return int(action) - 4, 0.1, False, False, {}

    def render(self):
        return None


@pytest.fixture(autouse=True, scope="module")
def plain_env_id():
    gymnasium.register("rlcli_test/Plain-v0", Plain)
    yield
    gymnasium.registry.pop("rlcli_test/Plain-v0")


def test_discrete_values_start_at_zero() -> None:
    env = adapter("rlcli_test/Plain-v0")
    assert env.action == env.observation == spaces.Discrete(5)
    _, obs, timesteps = play(env, np.arange(5).reshape(5, 1, 1))
    assert obs == 0
    assert [int(each.obs[0, 0]) for each in timesteps] == [0, 1, 2, 3, 4]


def test_an_id_may_name_the_module_that_registers_it(tmp_path, monkeypatch) -> None:
    (tmp_path / "rlcli_test_module.py").write_text(
        "import gymnasium\n"
        "gymnasium.register('my_space/Mine-v2', "
        "'gymnasium.envs.classic_control:CartPoleEnv')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(RlcliError, match="my_space/Mine"):
        adapter("my_space/Mine-v2")
    assert adapter("rlcli_test_module:my_space/Mine").action == spaces.Discrete(2)
    assert adapter("my_space/Mine-v2").action == spaces.Discrete(2)
    gymnasium.registry.pop("my_space/Mine-v2")


def test_float64_boxes_become_float32_boxes_that_contain_the_observations() -> None:
    class Tenth(Plain):
        observation_space = spaces.Box(-0.1, 0.1, (2,), np.float64)

        def reset(self, *, seed=None, options=None):
            return np.array([-0.1, 0.1]), {}

    gymnasium.register("rlcli_test/Tenth-v0", Tenth)
    env = adapter("rlcli_test/Tenth-v0")
    _, obs = env.reset(SEEDS[:1])
    assert env.observation.dtype == obs.dtype == np.float32
    assert env.observation.contains(obs[0, 0])
    gymnasium.registry.pop("rlcli_test/Tenth-v0")


def test_a_recipe_may_set_only_keyword_options() -> None:
    keywords = [
        name
        for name, each in inspect.signature(gymnasium_adapter).parameters.items()
        if each.kind is inspect.Parameter.KEYWORD_ONLY
    ]
    assert {*keywords} == {"options", "vectorization", "goal_reward", "text", "atari"}


CLASS = """
import gymnasium
import numpy as np

class Walk(gymnasium.Env):
    '''A walk to the right.'''

    observation_space = gymnasium.spaces.Box(-9, 9, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, render_mode=None, goal: float = 2.0, *, noise: "Missing" = 0):
        self.goal = goal

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place = np.zeros(1, np.float32)
        return self.place, {}

    def step(self, action):
        self.place = self.place + np.float32(2 * action - 1)
        done = bool(self.place[0] >= self.goal)
        return self.place, float(done), done, False, {}

class Named(Walk):
    def __init__(self, id, name: str, num_envs=1, seed=0, *, timeout=1, each=2, size=3):
        super().__init__(goal=size)
        self.given = id, name, num_envs, seed, timeout, each, size

class Fails(Walk):
    def __init__(self):
        raise KeyError("goal")

class Collects(Walk):
    made = []

    def __init__(self, goals: list):
        goals.append(len(goals))
        self.made.append(goals)
"""


@pytest.fixture
def walks(tmp_path, fresh_imports):
    (tmp_path / "walks.py").write_text(CLASS)
    user_code.search_first(tmp_path)
    return tmp_path / "walks.py"


MAKERS = """

def make(goal: float = 3.0) -> gymnasium.Env:
    return gymnasium.wrappers.TimeLimit(Walk(goal=goal), 5)

def make_plain(goal=3.0, length=5):
    return gymnasium.wrappers.TimeLimit(Walk(goal=goal), length)

def make_unknown(goal=3.0) -> "Missing":
    return gymnasium.wrappers.TimeLimit(Walk(goal=goal), 5)
"""


@pytest.mark.parametrize("maker", ["make", "make_plain", "make_unknown"])
@pytest.mark.parametrize("rendering", [False, True])
def test_a_function_that_returns_an_environment_is_one_with_its_options(
    walks, maker, rendering
):
    walks.write_text(CLASS + MAKERS)
    part = registry.find("environment", f"walks:{maker}")
    assert not part.is_trusted and part.facts["adapter"]
    assert "goal" in registry.options(part.factory)
    env = part.factory(1, 1, None, None, rendering, goal=2.0)
    state, _ = env.reset(SEEDS[:1])
    right = np.ones((1, 1), np.int64)
    ends = []
    for action in (right, right, right, 0 * right, right, 0 * right, right):
        state, timestep = env.step(state, action)
        ends.append((bool(timestep.last[0, 0]), float(timestep.discount[0, 0])))
    # It ends at the goal after two steps, and is truncated after five.
    assert ends == [(False, 1), (True, 0), *3 * [(False, 1)], (False, 1), (True, 1)]
    assert env.external.make is not None


def test_a_function_of_environments_trains_in_processes(walks):
    walks.write_text(CLASS + MAKERS)
    part = registry.find("environment", "walks:make")
    env = part.factory(2, 1, None, None, vectorization="async")
    state, obs = env.reset(SEEDS[:1])
    assert obs.shape == (1, 2, 1)
    env.host.close(state)


def test_a_class_after_the_prefix_is_answered_with_its_import_path(walks):
    with pytest.raises(RlcliError, match="there is no") as error:
        adapter("walks:Walk")
    assert error.value.hint.startswith("`walks:Walk` needs no registration")


def test_a_class_named_by_an_import_path_is_an_environment_with_its_options(walks):
    part = registry.find("environment", "walks:Walk")
    assert not part.is_trusted and part.facts["adapter"]
    assert [*registry.options(part.factory)] == [
        *("options", "vectorization", "goal_reward", "text", "goal", "noise")
    ]
    text = rlcli.show("environment", "walks:Walk")
    assert "goal: float = 2.0" in text and "A walk to the right." in text
    env = part.factory(2, 1, None, None, goal=1.0)
    state, obs = env.reset(SEEDS[:1])
    np.testing.assert_array_equal(obs, np.zeros((1, 2, 1)))
    state, timestep = env.step(state, np.array([[1, 0]]))
    np.testing.assert_array_equal(timestep.last, [[True, False]])
    np.testing.assert_array_equal(timestep.discount, [[0, 1]])
    assert (
        env.render(state, 0).shape[2] == 3
    )  # the observation: the class draws nothing
    env.host.close(state)


def test_every_environment_has_its_own_copy_of_its_options(walks):
    data = {"environment": {"name": "walks:Collects", "goals": []}, "updater": "ppo"}
    loaded = recipe.load_recipe(data, ["environment.num_envs=3"])
    env = build_environment(loaded, 1)
    env.host.close(env.reset(SEEDS[:1])[0])
    made = sys.modules["walks"].Collects.made
    assert len(made) >= 3 and all(goals == [0] for goals in made)
    assert loaded.environment.options["goals"] == []


def test_a_recipe_names_a_class_and_its_time_limit(walks):
    data = {"environment": {"name": "walks:Walk", "goal": 5}, "updater": "ppo"}
    loaded = recipe.load_recipe(data, ["environment.time_limit=3"])
    assert loaded.environment.options["goal"] == 5
    env = build_environment(loaded, 1)
    state, _ = env.reset(SEEDS[:1])
    ends = [bool(env.step(state, np.array([[0]]))[1].last[0, 0]) for _ in range(6)]
    assert ends == [False, False, True] * 2
    env.host.close(state)


NAMED = {"id": 7, "name": "a", "num_envs": 5, "seed": 6, "timeout": 8, "each": 9}


@pytest.mark.parametrize("name", ["walks:Named", "gymnasium/rlcli_test/Named-v0"])
@pytest.mark.parametrize("vectorization", ["sync", "async"])
def test_options_may_have_the_names_of_keys_of_a_recipe(walks, name, vectorization):
    named = user_code.import_module("walks").Named
    gymnasium.register("rlcli_test/Named-v0", named)
    options = {"options": NAMED, "vectorization": vectorization, "num_envs": 2}
    data = {"environment": {"name": name} | options, "updater": "ppo"}
    env = build_environment(recipe.load_recipe(data), 1)
    assert env.num_envs == 2
    made = env.external.make()
    assert made.unwrapped.given == (7, "a", 5, 6, 8, 9, 3)
    gymnasium.registry.pop("rlcli_test/Named-v0")


def test_an_option_beside_the_name_and_under_options_is_refused(walks):
    factory = registry.find("environment", "walks:Named").factory
    options = {"id": 7, "name": "a", "size": 4}
    env = factory(1, 1, None, None, options=options)
    assert env.external.make().unwrapped.given[-1] == 4
    with pytest.raises(RlcliError, match="`size` is set twice"):
        factory(1, 1, None, None, options=options, size=5)


@pytest.mark.parametrize("module", ["gymnasium_robotics:", ""])
def test_a_missing_module_of_an_extra_is_installed_with_the_extra(module, monkeypatch):
    monkeypatch.setitem(sys.modules, "gymnasium_robotics", None)
    with pytest.raises(RlcliError, match="gymnasium_robotics") as caught:
        adapter(f"{module}PointMaze_UMaze-v3")
    assert caught.value.hint == install_command("robotics")


@pytest.mark.slow
def test_the_library_of_an_extra_needs_no_trust_and_is_the_installed_one(folder):
    """A module of its name beside the recipe, which may come from elsewhere, is not."""
    pytest.importorskip("minigrid")
    (folder / "minigrid.py").write_text("raise RuntimeError('imported')")
    data = "environment: {name: gymnasium/MiniGrid-Empty-5x5-v0}\nupdater: ppo\n"
    (folder / "mine.yaml").write_text(data)
    code = (
        "from rlcli import recipe, assembly\n"
        "loaded = recipe.load_recipe('mine.yaml', trusted=False)\n"
        "print(assembly.build(loaded).environment.observation)"
    )
    path = os.pathsep.join(each for each in sys.path if each)
    environment = os.environ | {"PYTHONPATH": path}
    command = [sys.executable, "-P", "-c", code]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "image" in done.stdout


def test_a_class_that_raises_names_its_line(walks):
    with pytest.raises(RlcliError, match=rf"KeyError: 'goal' \({walks}:31\)"):
        registry.find("environment", "walks:Fails").factory(1, 1, None, None)
