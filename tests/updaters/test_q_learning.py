"""Temporal differences of action values, beside rlax and numbers by hand."""

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import rlax

from rlcli import registry
from rlcli.errors import RlcliError
from rlcli.networks.functions import own
from rlcli.networks.torsos import table
from rlcli.policies.discrete import epsilon_greedy
from rlcli.progress import midnight
from rlcli.types import Transition
from rlcli.updaters import Spaces
from rlcli.updaters.q_learning import double_q_learning, q_learning

STATES, ACTIONS = 6, 4
CLOCK = midnight()._replace(watched=np.bool_(True))
KEY = jax.random.key(0)


def updater(factory, start=0, learning_rate=1.0, **options):
    """The updater of a table of action values that starts as zeros."""
    shown = gymnasium.spaces.Discrete(STATES)
    space = gymnasium.spaces.Discrete(ACTIONS, start=start)

    def networks(name, head):
        assert name == "q"
        return own(name, table(), head(), shown)

    def policies(values, space):
        return epsilon_greedy(values, space, epsilon=0.2)

    sgd = optax.sgd(learning_rate)
    return factory(Spaces(shown, space), networks, policies, sgd, **options)


def tabled(q):
    return {"q": {"linear": {"w": jnp.asarray(q, jnp.float32)}}}


def batch(seed=0, shape=(3, 5), start=0):
    """Rows `[T, B]` as a tracer leaves them."""
    rng = np.random.default_rng(seed)
    return Transition(
        obs=rng.integers(0, STATES, shape),
        action=start + rng.integers(0, ACTIONS, shape),
        reward=rng.normal(size=shape).astype("f4"),
        discount=rng.choice([0.0, 0.9, 0.81], shape).astype("f4"),
        next_obs=rng.integers(0, STATES, shape),
        first=np.zeros(shape, bool),
        last=np.zeros(shape, bool),
        extras={},
    )


def updated(ours, rows, q, q_target, weight=None):
    state = ours.init(KEY)._replace(params=tabled(q), target=tabled(q_target))
    weight = np.ones(rows.reward.shape, "f4") if weight is None else weight
    return ours.update(state, rows, weight, CLOCK, KEY)


@pytest.mark.parametrize(
    ("factory", "target", "expected"),
    [
        (q_learning, {"every": 100}, 7),  # the best that the target sees
        (double_q_learning, {"every": 100}, 4),  # of what online thinks is best
        (q_learning, None, 10),  # without a target it follows itself
        (double_q_learning, None, 10),
    ],
)
def test_a_row_bootstraps_from_the_number_worked_out_by_hand(factory, target, expected):
    q = np.zeros((STATES, ACTIONS))
    q_target = np.zeros((STATES, ACTIONS))
    q[1], q_target[1] = [1, 2, 3, 10], [7, 0, 0, 4]
    one = np.ones((1, 1), np.float32)
    rows = batch(shape=(1, 1))._replace(
        obs=np.array([[0]]), next_obs=np.array([[1]]), reward=0 * one, discount=one
    )
    _, report = updated(updater(factory, target=target), rows, q, q_target)
    assert report.metrics["td_error"] == expected
    np.testing.assert_array_equal(report.priority, [expected])


def errors_of_rlax(factory, rows, q, q_target, start):
    """TD errors `[T, B]`, one row at a time."""
    found = np.zeros(rows.reward.shape, np.float32)
    for at in np.ndindex(found.shape):
        action = rows.action[at] - start
        a, r, d = jnp.array(action), rows.reward[at], rows.discount[at]
        here, there = q[rows.obs[at]], q_target[rows.next_obs[at]]
        if factory is q_learning:
            found[at] = rlax.q_learning(here, a, r, d, there)
        else:
            selector = q[rows.next_obs[at]]
            found[at] = rlax.double_q_learning(here, a, r, d, there, selector)
    return found


LOSSES = {
    "mse": lambda error: error**2,
    "huber": lambda error: np.where(
        np.abs(error) <= 1, 0.5 * error**2, np.abs(error) - 0.5
    ),
    "logcosh": lambda error: np.log(np.cosh(error)),
}


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize(
    ("factory", "start"), [(q_learning, 0), (double_q_learning, 0), (q_learning, 2)]
)
def test_errors_and_loss_are_those_of_rlax(factory, start, loss):
    rng = np.random.default_rng(1)
    q, q_target = rng.normal(size=(2, STATES, ACTIONS)).astype("f4") * 2
    rows = batch(start=start)
    ours = updater(factory, start, target={"every": 100}, loss=loss)
    weight = rng.random(rows.reward.shape).astype("f4")
    state, report = updated(ours, rows, q, q_target, weight)
    td = errors_of_rlax(factory, rows, q, q_target, start)
    np.testing.assert_allclose(report.priority, np.abs(td).mean(0), rtol=1e-4)
    metrics = report.metrics
    assert metrics["td_error"] == pytest.approx(np.abs(td).mean(), rel=1e-4)
    assert metrics["q"] == pytest.approx(q[rows.obs].mean(), rel=1e-4)
    expected = (weight * LOSSES[loss](td)).mean()
    assert metrics["loss"] == pytest.approx(expected, rel=1e-4)

    def total(params):
        """The same loss with its targets held fast."""
        here = params["q"]["linear"]["w"][rows.obs]
        index = (rows.action - start)[..., None]
        chosen = np.take_along_axis(q[rows.obs], index, -1)[..., 0]
        error = td + chosen - jnp.take_along_axis(here, index, -1)[..., 0]
        elementwise = {
            "mse": jnp.square,
            "huber": optax.huber_loss,
            "logcosh": optax.log_cosh,
        }[loss]
        return jnp.mean(weight * elementwise(error))

    gradient = jax.grad(total)(tabled(q))["q"]["linear"]["w"]
    moved = q - state.params["q"]["linear"]["w"]
    np.testing.assert_allclose(moved, gradient, atol=1e-5)


def test_estimates_are_what_the_parameters_say():
    rng = np.random.default_rng(2)
    q = rng.normal(size=(STATES, ACTIONS)).astype("f4")
    ours, rows = updater(q_learning, start=2), batch(start=2)
    state = ours.init(KEY)._replace(params=tabled(q))
    found = ours.estimate(state, rows)
    np.testing.assert_allclose(found.v_tm1, q[rows.obs].max(-1))
    np.testing.assert_allclose(found.v_t, q[rows.next_obs].max(-1))
    np.testing.assert_allclose(found.q_tm1, q[rows.obs, rows.action - 2])
    greedy = q[rows.obs].argmax(-1) == rows.action - 2
    expected = np.where(greedy, 0.8 + 0.2 / ACTIONS, 0.2 / ACTIONS)
    np.testing.assert_allclose(np.exp(found.log_prob), expected, rtol=1e-5)


def test_acting_needs_the_parameters_alone():
    ours = updater(double_q_learning)
    state = ours.init(KEY)
    assert ours.acting(state) is state.params
    assert ours.failed(state) == -1


def test_the_target_of_double_q_learning_follows_by_default_and_q_learning_has_none():
    for factory, there in [(double_q_learning, True), (q_learning, False)]:
        state = updater(factory).init(KEY)
        assert bool(jax.tree.leaves(state.target)) == there
        default = registry.options(factory)["target"].default
        assert (default is not None) == there


@pytest.mark.parametrize("name", ["q_learning", "double_q_learning"])
def test_a_box_of_actions_is_refused_by_name(name):
    factory = registry.find("updater", name).factory
    box = gymnasium.spaces.Box(-1, 1, (2,))
    with pytest.raises(
        RlcliError, match=f"updater `{name}` needs a Discrete"
    ) as caught:
        factory(Spaces(gymnasium.spaces.Discrete(2), box), None, None, None)
    assert "Box" in caught.value.message
    assert "`ppo` acts in a Box" in caught.value.hint
