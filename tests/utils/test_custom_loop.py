"""Custom loops: helper functions for user-written training loops."""

from functools import partial

import gymnasium
import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import rlcli
from rlcli.errors import RlcliError
from rlcli.loop.agents import online_agent
from rlcli.policies.discrete import epsilon_greedy
from rlcli.policies.sampled import random
from rlcli.tracers.multi_step import n_step
from rlcli.updaters.policy_gradient.ppo import ppo
from rlcli.updaters.td.q_learning import q_learning

STATES, ACTIONS, RATE, GAMMA = 5, 3, 0.1, 0.9


class Somewhere(gymnasium.Env):
    """An environment with spaces only."""

    def __init__(self, observation, action):
        self.observation_space, self.action_space = observation, action


def table(obs):
    return hk.Linear(ACTIONS, with_bias=False)(jax.nn.one_hot(obs, STATES))


def discrete(start=0):
    return Somewhere(
        gymnasium.spaces.Discrete(STATES),
        gymnasium.spaces.Discrete(ACTIONS, start=start),
    )


@pytest.mark.parametrize("start", [0, 7])
def test_q_of_state_and_action_is_an_entry_of_q_of_the_state(start):
    q = rlcli.q_function(table, discrete(start))
    params = q.init(jax.random.key(0))
    weights = np.asarray(params["q"]["linear"]["w"])
    np.testing.assert_array_equal(q(params, 2), weights[2])
    assert q(params, 2, start + 1) == weights[2, 1]


def test_q_takes_batches_of_any_shape():
    q = rlcli.q_function(table, discrete())
    params = q.init(jax.random.key(0))
    states, actions = np.array([[0, 1], [2, 4]]), np.array([[0, 2], [1, 1]])
    weights = np.asarray(params["q"]["linear"]["w"])
    np.testing.assert_array_equal(q(params, states), weights[states])
    np.testing.assert_array_equal(q(params, states, actions), weights[states, actions])


def test_a_forward_pass_of_the_wrong_shape_is_an_error_with_both_shapes():
    q = rlcli.q_function(lambda obs: hk.Linear(2)(jax.nn.one_hot(obs, 5)), discrete())
    with pytest.raises(RlcliError, match=r"shape \(2, 2\), expected \(2, 3\)"):
        q.init(jax.random.key(0))


def test_box_actions_are_not_supported():
    box = gymnasium.spaces.Box(-1.0, 1.0, (2,))
    with pytest.raises(TypeError, match="Discrete actions, got Box"):
        rlcli.q_function(table, Somewhere(box, box))


def test_an_updater_of_other_functions_is_an_error_that_names_them():
    q = rlcli.q_function(table, discrete())
    with pytest.raises(ValueError, match="learns `q`, not `policy`"):
        ppo(q.parts(epsilon_greedy, optax.sgd(0.1)))


def agent_of(n, epsilon=0.0):
    q = rlcli.q_function(table, discrete())
    policy = partial(epsilon_greedy, epsilon=epsilon)
    updater = q_learning(q.parts(policy, optax.sgd(RATE)), loss="mse")
    return online_agent(updater, n_step(n=n, gamma=GAMMA))


def walk(length):
    """Random steps: (s, a, (s_next, r, terminated, truncated), first)."""
    random = np.random.default_rng(0)
    steps, s, first = [], 0, True
    for _ in range(length):
        a, after = int(random.integers(ACTIONS)), int(random.integers(STATES))
        end = random.random()
        terminated, truncated = end < 0.15, 0.15 <= end < 0.3
        steps.append((s, a, (after, random.normal(), terminated, truncated), first))
        first = terminated or truncated
        s = int(random.integers(STATES)) if first else after
    return steps


def brute_force(steps, weights, n):
    """Tabular n-step Q-learning, one update as soon as a step's window is complete."""
    values = weights.astype(np.float64)
    for begin in range(len(steps) - n + 1):
        s, a, _, _ = steps[begin]
        total, discount = 0.0, 1.0
        for _, _, answer, _ in steps[begin : begin + n]:
            after, r, terminated, truncated = answer
            total += discount * r
            discount *= GAMMA * (not terminated)
            if terminated or truncated:
                break
        target = total + discount * values[after].max()
        values[s, a] += 2 * RATE * (target - values[s, a])  # of a square
    return values


@pytest.mark.parametrize("n", [1, 3])
def test_a_custom_loop_equals_a_brute_force_table(n):
    agent, steps = agent_of(n), walk(60)
    state = agent.init(jax.random.key(0), rlcli.transition(*steps[0][:3]))
    begin = np.asarray(agent.acting(state)["q"]["linear"]["w"])
    learn = jax.jit(lambda *given: agent.learn(*given, jax.random.key(0)))
    for time, (s, a, answer, first) in enumerate(steps):
        step = rlcli.transition(s, a, answer, first=first)
        state, _ = learn(state, step, rlcli.clock(time))
    actual = agent.acting(state)["q"]["linear"]["w"]
    np.testing.assert_allclose(actual, brute_force(steps, begin, n), atol=1e-5)


@pytest.mark.slow
def test_act_is_greedy_unless_it_explores():
    agent = agent_of(1, epsilon=1.0)
    state = agent.init(jax.random.key(0), rlcli.transition(0, 0, (0, 0, False, False)))
    weights = agent.acting(state)["q"]["linear"]["w"]
    keys = jax.random.split(jax.random.key(1), 300)
    best = [int(rlcli.act(agent, state, 3, k, explore=False)) for k in keys[:3]]
    assert best == [int(np.argmax(weights[3]))] * 3
    any_of = jax.vmap(lambda key: rlcli.act(agent, state, 3, key))(keys)
    assert np.bincount(any_of).min() > 60  # a hundred each, if all are as likely


@pytest.mark.parametrize(
    ("terminated", "truncated", "discount", "last"),
    [
        (False, False, 1.0, False),
        (True, False, 0.0, True),
        (False, True, 1.0, True),
        (True, True, 0.0, True),
    ],
)
def test_the_discount_is_zero_only_for_terminated_steps(
    terminated, truncated, discount, last
):
    step = rlcli.transition(0, 1, (2, 3, terminated, truncated, {}), first=True)
    assert (step.discount[0, 0], step.last[0, 0]) == (discount, last)
    assert (step.obs[0, 0], step.action[0, 0], step.next_obs[0, 0]) == (0, 1, 2)
    assert (step.reward[0, 0], step.first[0, 0]) == (3.0, True)


@pytest.mark.parametrize(
    "reward", [3, 3.0, np.array([3.0]), np.array(3), np.float16(3)]
)
def test_a_reward_may_be_any_number_or_an_array_of_one(reward):
    step = rlcli.transition(0, 1, (2, reward, False, False, {}))
    np.testing.assert_array_equal(
        step.reward, np.full((1, 1), 3, np.float32), strict=True
    )


def test_a_transition_has_leading_axes_for_time_and_environments():
    image = np.zeros((4, 4, 3), np.uint8)
    step = rlcli.transition(
        image, np.zeros(2), (image, 1, False, False), log_prob=np.float32(-1)
    )
    assert step.obs.shape == step.next_obs.shape == (1, 1, 4, 4, 3)
    assert (step.action.shape, step.extras["log_prob"].shape) == ((1, 1, 2), (1, 1))
    flags = (step.reward, step.discount, step.first, step.last)
    assert {each.shape for each in flags} == {(1, 1)}
    assert [each.dtype.name for each in flags] == ["float32"] * 2 + ["bool"] * 2


def test_the_clock_counts_steps_as_iterations_and_updates():
    time = jax.jit(rlcli.clock)(7)
    assert [int(time.iteration), int(time.steps), int(time.updates)] == [7, 7, 7]
    assert jnp.issubdtype(time.iteration.dtype, jnp.integer)
    assert bool(time.compute_metrics)


def test_an_action_with_members_is_that_of_one_environment():
    spaces = gymnasium.spaces
    space = spaces.Tuple(
        (spaces.Discrete(3), spaces.Dict({"x": spaces.Box(0, 1, (2,))}))
    )
    seen = spaces.Box(-1, 1, (4,))
    policy = random(space, seen)
    agent = agent_of(1)._replace(acting=lambda state: state, policy=policy)
    choice, members = rlcli.act(agent, (), np.zeros(4, np.float32), jax.random.key(0))
    assert choice.shape == () and members["x"].shape == (2,)
