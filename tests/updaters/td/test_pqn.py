"""Parallelised Q-networks (PQN) against rlax and the tracer."""

import gymnasium
import jax
import numpy as np
import optax
import pytest
import rlax

import rlcli
from rlcli import registry
from rlcli.errors import RlcliError
from rlcli.networks.functions import separate_network
from rlcli.networks.torsos import table
from rlcli.policies.discrete import epsilon_greedy
from rlcli.tracers.multi_step import lambda_return
from rlcli.types import Clock, Transition
from rlcli.updaters import Parts, Spaces
from rlcli.updaters.td.pqn import pqn

STATES, ACTIONS, STEPS, BATCH = 5, 3, 8, 4
CLOCK = Clock.zero()._replace(compute_metrics=np.bool_(True))
KEY = jax.random.key(0)
Q = np.random.default_rng(0).normal(size=(STATES, ACTIONS)).astype("f4")


def updater(optimizer, **options):
    observation = gymnasium.spaces.Discrete(STATES)
    space = gymnasium.spaces.Discrete(ACTIONS, start=1)

    def networks(name, head):
        return separate_network(name, table(), head(), observation)

    def policies(values, space):
        return epsilon_greedy(values, space, epsilon=0.2)

    spaces = Spaces(observation, space)
    return pqn(Parts(spaces, networks, policies, optimizer), **options)


def state_of(ours):
    state = jax.jit(ours.init)(KEY)
    return state._replace(params=jax.tree.map(lambda leaf: Q, state.params))


def raw_unroll():
    """Raw steps of consecutive states, without ends of episodes."""
    rng = np.random.default_rng(1)
    states = rng.integers(0, STATES, (STEPS + 1, BATCH))
    shape = (STEPS, BATCH)
    return Transition(
        obs=states[:-1],
        action=1 + rng.integers(0, ACTIONS, shape),
        reward=rng.normal(size=shape).astype("f4"),
        discount=rng.choice([0.0, 1.0], shape, p=[0.2, 0.8]).astype("f4"),
        next_obs=states[1:],
        first=np.zeros(shape, bool),
        last=np.zeros(shape, bool),
        extras={},
    )


def test_errors_equal_q_lambda_of_rlax():
    rows = raw_unroll()
    ours = updater(optax.sgd(1.0), epochs=1, minibatches=1)
    state = state_of(ours)
    tracer = lambda_return(gamma=0.9, lambda_=0.7)
    weight = np.ones((STEPS, BATCH), "f4")

    @jax.jit
    def learn(state):
        traced = tracer.trace(rows, ours.estimate(state, rows, jax.random.key(0)))
        return ours.update(state, traced, weight, CLOCK, KEY)

    after, report = learn(state)
    q_lambda = jax.jit(jax.vmap(rlax.q_lambda, (1, 1, 1, 1, 1, None), 1))
    error = np.asarray(
        q_lambda(
            Q[rows.obs], rows.action - 1, rows.reward, 0.9 * rows.discount,
            Q[rows.next_obs], 0.7,
        )
    )  # fmt: skip
    np.testing.assert_allclose(report.priority, np.abs(error).mean(0), rtol=1e-4)
    assert report.metrics["td_error"] == pytest.approx(np.abs(error).mean(), rel=1e-4)
    assert report.metrics["loss"] == pytest.approx(0.5 * np.mean(error**2), rel=1e-4)
    mean_q = Q[rows.obs, rows.action - 1].mean()  # of the actions taken
    assert report.metrics["q"] == pytest.approx(mean_q, rel=1e-4)
    expected = Q.copy()
    np.add.at(expected, (rows.obs, rows.action - 1), error / error.size)
    (table_after,) = jax.tree.leaves(after.params)
    np.testing.assert_allclose(table_after, expected, rtol=1e-4, atol=1e-6)


def test_estimates_are_values_of_the_table():
    rows, ours = raw_unroll(), updater(optax.sgd(1.0))
    found = jax.jit(ours.estimate)(state_of(ours), rows, KEY)
    np.testing.assert_array_equal(found.v_tm1, Q[rows.obs].max(-1))
    np.testing.assert_array_equal(found.v_t, Q[rows.next_obs].max(-1))
    taken = Q[rows.obs, rows.action - 1]
    np.testing.assert_array_equal(found.q_tm1, taken)
    likely = 0.2 / ACTIONS + 0.8 * (taken == Q[rows.obs].max(-1))  # ε-greedy
    np.testing.assert_allclose(np.exp(found.log_prob), likely, rtol=1e-5)


def test_a_recipe_without_options_has_the_sizes_of_the_paper():
    """As for Atari: https://arxiv.org/abs/2407.04811, but fewer minibatches."""
    facts = registry.find("updater", "pqn").facts
    assert facts["unroll"] == 32
    assert facts["tracer"] == {"name": "lambda_return", "gamma": 0.99, "lambda": 0.65}
    assert updater(optax.sgd(1.0)).traits.gradient_steps == 2 * 4  # epochs, minibatches
    assert updater(optax.sgd(1.0), epochs=3, minibatches=5).traits.gradient_steps == 15


def test_targets_stay_constant_over_all_epochs():
    rows = raw_unroll()._replace(discount=np.full((STEPS, BATCH), 0.9, "f4"))
    ours = updater(optax.sgd(4.0), epochs=300, minibatches=1)
    weight = np.ones((STEPS, BATCH), "f4")
    weight[0], weight[1] = 0.0, 0.5
    state, _ = jax.jit(ours.update)(state_of(ours), rows, weight, CLOCK, KEY)
    target = rows.reward + 0.9 * Q[rows.next_obs].max(-1)
    (table_after,) = map(np.asarray, jax.tree.leaves(state.params))
    for pair in np.ndindex(STATES, ACTIONS):
        is_pair = (rows.obs == pair[0]) & (rows.action == 1 + pair[1]) & (weight > 0)
        shares = weight[is_pair]
        expected = (
            np.average(target[is_pair], weights=shares) if shares.size else Q[pair]
        )
        assert table_after[pair] == pytest.approx(expected, rel=1e-3, abs=1e-3)


@pytest.mark.slow
def test_minibatches_of_a_recurrent_network_consist_of_whole_unrolls():
    def check(**options):
        network = {"name": "linear", "memory": "gru"}
        rlcli.check(
            {
                "environment": {"name": "CartPole-v1", "num_envs": 4},
                "network": network,
                "updater": {"name": "pqn", "minibatches": 4, **options},
                "train": {"steps": 24, "unroll": 6},
            }
        )

    check()
    with pytest.raises(RlcliError, match="6 steps into sequences of 4"):
        check(sequence=4)
