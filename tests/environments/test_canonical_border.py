"""The border between agents and environments."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

import rlcli
from rlcli.assembly import build
from rlcli.environments.canonical_border import canonical_environment
from rlcli.recipe import load_recipe
from rlcli.types import Core, TimeStep

PLACES = spaces.Discrete(4, start=2)


def goal_core():
    """Walks to the place that the action names; the reward is the action itself."""

    def observe(place):
        goal = jnp.int32(3)
        return {"observation": place, "achieved_goal": place, "desired_goal": goal}

    def goal_reward(achieved, desired):
        return 100.0 * achieved + desired, jnp.float32(1)

    def step(state, action, noise):
        obs = observe(state + 1)
        end = jnp.bool_(False)
        reward = action["force"][0]
        timestep = TimeStep(obs, obs, reward, jnp.float32(1), end, {})
        return state + 1, timestep

    names = ("observation", "achieved_goal", "desired_goal")
    return Core(
        reset=lambda key: (jnp.int32(2), observe(jnp.int32(2))),
        step=step,
        observation=spaces.Dict(dict.fromkeys(names, PLACES)),
        action=spaces.Dict({"force": spaces.Box(0, 10, (1,))}),
        goal_reward=goal_reward,
    )


def test_a_core_gets_its_own_units_and_the_agent_canonical_ones():
    core = goal_core()
    env = canonical_environment(core, "environment `e`")
    assert (env.external.observation, env.external.action) == core[2:4]
    assert env.action["force"] == spaces.Box(-1, 1, (1,))
    state, obs = env.reset(jax.random.key(0))
    assert (state, obs["observation"], obs["desired_goal"]) == (2, 0, 1)
    for action, force in {-1: 0, 0: 5, 0.5: 7.5, 3: 10}.items():
        after, timestep = env.step(state, {"force": jnp.float32([action])}, ())
        assert timestep.reward == force
        assert (after, timestep.next_obs["achieved_goal"]) == (3, 1)
    # Goals of a replay are canonical, too: places 2 + 2 and 2 + 1.
    reward, _ = env.goal_reward(jnp.int32(2), jnp.int32(1))
    assert reward == 403


@pytest.mark.parametrize("is_simulator", [False, True])
@pytest.mark.slow
def test_recipes_meet_environments_in_canonical_units(is_simulator):
    data = {"environment": {"name": "Pendulum-v1"}, "updater": "ppo"}
    core, key = rlcli.make("Pendulum-v1"), jax.random.key(0)
    state, _ = core.reset(key)
    action, torque = jnp.float32([0.625]), jnp.float32([1.25])
    if is_simulator:
        from rlcli.assembly.make_environment import build_simulator
        from rlcli.types import START

        env = build_simulator(load_recipe(data), START.clock)
        found = env.step(state, action, ())[0]
    else:
        env = build(load_recipe(data), (0,)).environment
        batch, _ = env.reset(key)
        core_state = jax.tree.map(lambda leaf: leaf[None], state)
        batch = batch._replace(core=core_state)
        found = env.step(batch, action[None], env.draw(key))[0].core
        found = jax.tree.map(lambda leaf: leaf[0], found)
    assert env.action == spaces.Box(-1, 1, (1,))
    expected, _ = core.step(state, torque, key)
    jax.tree.map(np.testing.assert_array_equal, found, expected)


def test_the_previous_action_is_observed_in_half_widths():
    env = rlcli.make("Pendulum-v1", wrappers=["previous"])
    state, _ = env.reset(jax.random.key(0))
    _, timestep = env.step(state, jnp.float32([1.5]), jax.random.key(1))
    assert timestep.obs[3] == 0.75
