"""Goals of host environments, compared with NumPy and with the environment itself."""

from __future__ import annotations

import re

import gymnasium
import jax
import numpy as np
import pytest
from tiers import quick_first

from rlcli.assembly import build
from rlcli.environments.adapters.goals import host_goal_reward
from rlcli.environments.adapters.host_errors import ExternalEnvironment
from rlcli.errors import RlcliError
from rlcli.recipe import load_recipe
from rlcli.registry import plugins, user_code
from rlcli.training.experiment.first_steps import check_first_steps

EXTERNAL = ExternalEnvironment("environment `reach`", "gymnasium")
CLASS = """
import gymnasium
import numpy as np
from gymnasium import spaces

place = spaces.Box(-9, 9, (2,), np.float64)


class Base(gymnasium.Env):
    observation_space = spaces.Dict(
        {"observation": place, "achieved_goal": place, "desired_goal": place}
    )
    action_space = spaces.Box(-1, 1, (2,), np.float32)

    def observe(self):
        return {
            "observation": self.place,
            "achieved_goal": self.place,
            "desired_goal": self.goal,
        }

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place, self.goal = self.np_random.uniform(-1, 1, (2, 2))
        return self.observe(), {}

    def step(self, action):
        self.place = self.place + 0.2 * action
        near = np.linalg.norm(self.place - self.goal) < 0.3
        return self.observe(), float(near) - 1, False, False, {}


class Reach(Base):
    def compute_reward(self, achieved_goal, desired_goal, info):
        distance = np.linalg.norm(achieved_goal - desired_goal, axis=-1)
        return np.where(distance < 0.3, 0.0, -1.0)

    def compute_terminated(self, achieved_goal, desired_goal, info):
        return bool(np.linalg.norm(achieved_goal - desired_goal) < 0.2)

    def step(self, action):
        obs, reward, _, _, info = super().step(action)
        ended = self.compute_terminated(self.place, self.goal, {})
        return obs, reward, ended, False, info


def reward(achieved, desired):
    import jax.numpy as jnp

    near = jnp.linalg.norm(achieved - desired) < 0.3
    return near.astype(jnp.float32) - 1, jnp.float32(1)
"""


@pytest.fixture
def reach(tmp_path, fresh_imports):
    (tmp_path / "reach.py").write_text(CLASS)
    user_code.search_first(tmp_path)
    return user_code.import_module("reach")


def recipe_of(**environment):
    return load_recipe(
        {
            "environment": {"time_limit": 9, "num_envs": 2} | environment,
            "replay": "hindsight",
            "updater": "sac",
        },
        trusted=True,
    )


def test_rewards_of_batches_of_goals_are_those_of_each_pair(reach) -> None:
    env = reach.Reach()
    goal_reward = host_goal_reward(EXTERNAL, env)
    assert goal_reward is not None
    achieved, desired = np.random.default_rng(1).uniform(-0.4, 0.4, (2, 4, 5, 2))
    rewards = jax.jit(jax.vmap(jax.vmap(goal_reward), in_axes=(0, 0)))
    reward, discount = rewards(np.float32(achieved), np.float32(desired))
    distance = np.sqrt(((achieved - desired) ** 2).sum(-1))
    np.testing.assert_array_equal(reward, np.where(distance < 0.3, 0, -1))
    np.testing.assert_array_equal(discount, np.where(distance < 0.2, 0, 1))
    assert 0 < (distance < 0.2).sum() < 20


def test_an_environment_without_goals_or_their_reward_has_none(reach) -> None:
    assert host_goal_reward(EXTERNAL, gymnasium.make("CartPole-v1")) is None


@pytest.mark.parametrize("vectorization", quick_first(["sync", "async"]))
def test_the_steps_of_a_goal_environment_have_the_rewards_of_its_goals(
    reach, vectorization
) -> None:
    recipe = recipe_of(name="reach:Reach", vectorization=vectorization)
    check_first_steps(recipe, build(recipe, [0]))


def test_a_function_of_jax_replaces_the_reward_of_an_environment(reach) -> None:
    recipe = recipe_of(name="reach:Base", goal_reward="reach:reward")
    assert recipe.import_paths == ["reach:Base", "reach:reward"]
    setup = build(recipe, [0])
    check_first_steps(recipe, setup)
    goals = np.zeros((3, 2), np.float32)
    assert "callback" not in str(
        jax.make_jaxpr(jax.vmap(setup.environment.goal_reward))(goals, goals)
    )


def test_an_environment_with_neither_is_refused_with_what_it_lacks(reach) -> None:
    with pytest.raises(RlcliError, match="neither `goal_reward` nor `compute_reward`"):
        build(recipe_of(name="reach:Base"), [0])
    with pytest.raises(RlcliError, match="observes no `achieved_goal` and `desired"):
        build(recipe_of(name="gymnasium/Pendulum-v1"), [0])


def test_a_recipe_that_is_not_trusted_imports_no_goal_reward() -> None:
    environment = {"name": "gymnasium/Pendulum-v1", "goal_reward": "reach:reward"}
    with pytest.raises(RlcliError, match="`reach:reward` would import code") as caught:
        load_recipe({"environment": environment, "updater": "ppo"}, trusted=False)
    assert "--trust" in caught.value.hint


def test_an_error_without_text_is_named_by_its_code_and_place() -> None:
    with pytest.raises(NotImplementedError) as caught:
        gymnasium.Env().step(0)
    expected = r"NotImplementedError: raise NotImplementedError \(core\.py:\d+\)"
    assert re.fullmatch(expected, plugins.reason(caught.value))
