"""Burn-in: leading rows of weight 0 only refresh the carry."""

import functools

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from rlcli import recipe
from rlcli.assembly import build
from rlcli.networks import memory
from rlcli.networks.functions import separate_network
from rlcli.networks.torsos import linear
from rlcli.policies.sampled import sampled
from rlcli.training.experiment.program import Program
from rlcli.types import Clock, Transition
from rlcli.updaters import Parts, Spaces
from rlcli.updaters.burn_in import refresh_carry
from rlcli.updaters.policy_gradient.v_trace import v_trace

OBSERVATION = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
ACTIONS, SIZE, STEPS, BATCH, FRONT = 3, 4, 7, 5, 3
CLOCK = Clock.zero()._replace(compute_metrics=np.bool_(True))


def steps(carry):
    """Rows as a tracer returns them, with targets and advantages."""
    rng = np.random.default_rng(0)
    shape = STEPS, BATCH
    extras = {
        "advantage": rng.normal(size=shape).astype("f4"),
        "log_prob": np.full(shape, -1.0, "f4"),
        "carry": carry,
        "next_carry": carry,
    }
    return Transition(
        obs=rng.normal(size=(*shape, 2)).astype("f4"),
        action=rng.integers(0, ACTIONS, shape),
        reward=rng.normal(size=shape).astype("f4"),
        discount=np.zeros(shape, "f4"),
        next_obs=np.zeros((*shape, 2), "f4"),
        first=rng.random(shape) < 0.2,
        last=np.zeros(shape, bool),
        extras=extras,
    )


def counting(carry):
    """The carry after each step of a network that counts steps."""
    return carry + 1 + np.arange(STEPS)[:, None]


def test_learning_rows_come_first_and_begin_with_the_refreshed_carry():
    front = np.array([0, 1, 3, 6, 0])  # of each column
    weight = (np.arange(STEPS)[:, None] >= front).astype("f4")
    weight[:, -1] = 0  # all weights are 0, so the order does not matter
    begin = np.array([[10.0, 20.0, 30.0, 40.0, 50.0]])
    rows = steps(begin)

    @jax.jit
    def restored(rows, weight):
        refreshed, order = refresh_carry(rows, weight, counting)
        same = order.backward(refreshed.obs), order.forward(rows.action)
        return refreshed, *same

    refreshed, obs, action = jax.device_get(restored(rows, weight))
    for b, late in enumerate(front):
        times = np.roll(np.arange(STEPS), -late)
        np.testing.assert_array_equal(refreshed.obs[:, b], rows.obs[times, b])
        carry = refreshed.extras["carry"][:, b]
        np.testing.assert_array_equal(carry, begin[0, b] + times)
    np.testing.assert_array_equal(obs, rows.obs)
    np.testing.assert_array_equal(action, refreshed.action)


def test_steps_with_a_carry_per_row_stay_unchanged():
    rows = steps(np.zeros((STEPS, BATCH)))
    weight = np.zeros((STEPS, BATCH), "f4")
    assert refresh_carry(rows, weight, lambda carry: 1 / 0)[0] is rows


@pytest.mark.slow
def test_learning_from_sequences_equals_learning_from_their_learning_rows():
    def networks(name, head):
        core = memory.gru(size=SIZE)
        return separate_network(name, linear(), head(), OBSERVATION, core=core)

    spaces = Spaces(OBSERVATION, gymnasium.spaces.Discrete(ACTIONS))

    def policies(distribution, space):
        return sampled(distribution)

    ours = v_trace(Parts(spaces, networks, policies, optax.sgd(1.0)))
    state = ours.init(jax.random.key(0))
    rng = np.random.default_rng(1)
    begin = {
        name: rng.normal(size=(1, BATCH, SIZE)).astype("f4")
        for name in ("policy", "value")
    }
    raw = steps(begin)

    @jax.jit
    def update_both(state):
        next_carry = ours.estimate(state, raw, jax.random.key(0)).carry
        batch = raw._replace(extras={**raw.extras, "next_carry": next_carry})
        later = jax.tree.map(
            lambda leaf: leaf[FRONT:],
            batch._replace(extras={**batch.extras, "carry": next_carry}),
        )
        # The carry before a step is the carry after the previous one.
        carries_before = jax.tree.map(lambda leaf: leaf[FRONT - 1 : -1], next_carry)
        later.extras["carry"] = carries_before
        update = functools.partial(ours.update, state)
        weight = (jnp.arange(STEPS) >= FRONT)[:, None] * jnp.ones((1, BATCH))
        key = jax.random.key(2)
        return (
            update(batch, weight, CLOCK, key),
            update(later, weight[FRONT:], CLOCK, key),
        )

    (actual, report), (expected, expected_report) = update_both(state)
    for one, other in zip(
        jax.tree.leaves(actual.params), jax.tree.leaves(expected.params), strict=True
    ):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(report.priority, expected_report.priority, rtol=1e-4)
    for name, expected_metric in expected_report.metrics.items():
        np.testing.assert_allclose(
            report.metrics[name], expected_metric, rtol=1e-3, atol=1e-6
        )


@pytest.mark.slow
@pytest.mark.parametrize("updater", ["v_trace", "pqn"])
def test_recurrent_on_policy_updaters_learn_from_replayed_sequences(updater):
    data = {
        "environment": {"name": "bsuite/MemoryChain", "num_envs": 2},
        "network": {"name": "linear", "memory": "gru"},
        "updater": updater,
        "replay": {"name": "sequences", "length": 20, "burn_in": 4},
    }
    loaded = recipe.load_recipe(data)
    assert Program(loaded, build(loaded)).check()
