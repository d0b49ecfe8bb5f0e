"""CrossQ against NumPy: one batch of current and next observations."""

import jax
import numpy as np
import pytest

from rlcli import recipe
from rlcli.assembly import build
from rlcli.errors import RlcliError
from rlcli.networks.torsos import mlp
from rlcli.updaters.off_policy.crossq import crossq

CRITICS, UNITS, EPSILON = 2, 4, 1e-3


@pytest.fixture(scope="module")
def ours(soft_tables):
    torso = mlp(layers=[UNITS], batch_norm=True)
    return soft_tables(crossq, CRITICS, torso=torso, delay=2)


@pytest.fixture(scope="module")
def start(ours):
    """A state with random parameters and statistics."""
    state = ours.init(jax.random.key(0))
    rng = np.random.default_rng(2)
    return state._replace(
        params=jax.tree.map(
            lambda leaf: (
                leaf
                if leaf.dtype == np.int32
                else rng.uniform(0.2, 1.0, leaf.shape).astype("f4")
            ),
            state.params,
        )
    )


def forward(params, statistics, x):
    """The outputs of an MLP with batch normalization, and the inputs of each layer.

    Without statistics, those of the batch.
    """
    inputs = []

    def normalize(x, name):
        inputs.append(x)
        if statistics:
            mean, variance = (statistics[name][key] for key in ("mean", "variance"))
        else:
            mean, variance = x.mean(axis=0), x.var(axis=0)
        scaled = (x - mean) / np.sqrt(variance + EPSILON)
        return scaled * params[name]["scale"] + params[name]["offset"]

    x = normalize(x, "batch_norm")
    x = np.maximum(x @ params["linear"]["w"] + params["linear"]["b"], 0)
    x = normalize(x, "batch_norm_1")
    return x @ params["linear_1"]["w"] + params["linear_1"]["b"], inputs


def one_hot(obs):
    return np.eye(5)[np.asarray(obs).ravel()]


def member(tree, critic):
    return jax.tree.map(lambda leaf: np.asarray(leaf)[critic], tree)


@pytest.mark.slow
def test_errors_equal_those_of_one_forward_pass(ours, start):
    """Both halves of the batch share their statistics, and the policy's are running."""
    rows, (_, report) = ours.rows, ours.update(start)
    policy, statistics = (
        jax.tree.map(np.asarray, start.params[name])
        for name in ("policy", "policy.statistics")
    )
    logits, _ = forward(policy, statistics, one_hot(rows.next_obs))
    likely = np.exp(logits) / np.exp(logits).sum(axis=-1, keepdims=True)
    both = np.concatenate([one_hot(rows.obs), one_hot(rows.next_obs)])
    q, next_q = [], []
    for critic in range(CRITICS):
        values, _ = forward(member(start.params["critic"], critic), None, both)
        q.append(values[: rows.obs.size][range(rows.obs.size), rows.action.ravel()])
        next_q.append(values[rows.obs.size :])
    # The minimum is that of the two means of each action.
    soft = np.minimum(*next_q) - ours.tau * np.log(likely)
    value = (likely * soft).sum(axis=-1)
    target = rows.reward.ravel() + rows.discount.ravel() * value
    errors = np.abs(target - np.array(q)).mean(axis=0).reshape(rows.obs.shape)
    np.testing.assert_allclose(report.priority, errors, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(
        report.metrics["loss"],
        2 * np.mean(np.square(target - np.array(q)).mean(axis=1)),
        rtol=1e-4,
    )


def test_each_step_moves_the_statistics_of_the_functions_that_it_updates(ours, start):
    rows = ours.rows
    both = np.concatenate([one_hot(rows.obs), one_hot(rows.next_obs)])
    expected = []
    for critic in range(CRITICS):
        _, inputs = forward(member(start.params["critic"], critic), None, both)
        expected.append(inputs)
    first, _ = ours.update(start, updates=0)
    for number, name in enumerate(("batch_norm", "batch_norm_1")):
        found, before = (
            each.params["critic.statistics"][name] for each in (first, start)
        )
        means = np.stack([inputs[number].mean(axis=0) for inputs in expected])
        np.testing.assert_allclose(
            found["mean"], 0.99 * before["mean"] + 0.01 * means, rtol=1e-5
        )
        np.testing.assert_array_equal(found["count"], [1, 1])
    counts = []
    state = start
    for updates in range(3):
        state, _ = ours.update(state, updates=updates)
        statistics = state.params["policy.statistics"]["batch_norm"]
        counts.append(int(statistics["count"]))
    assert counts == [0, 1, 1]  # the policy is updated in every second update


def test_a_failed_step_keeps_the_statistics(ours, start):
    rows = ours.rows._replace(reward=ours.rows.reward * np.inf)
    state, _ = ours.update(start, rows=rows)
    assert int(state.failed) == 0
    jax.tree.map(np.testing.assert_array_equal, state.params, start.params)


def test_the_policy_acts_by_its_running_statistics_only(ours, start):
    acting = ours.updater.acting(start)
    assert set(acting) == {"policy", "policy.statistics"}
    obs, first = np.arange(5), np.zeros(5, bool)
    policy = ours.updater.policy

    @jax.jit
    def decide(key):
        noise = policy.draw(key, 5)
        return policy.exploit(acting, obs, policy.initial(5), first, noise)[0]

    decision = decide(jax.random.key(0))
    statistics = jax.tree.map(np.asarray, start.params["policy.statistics"])
    logits, _ = forward(start.params["policy"], statistics, one_hot(obs))
    np.testing.assert_array_equal(decision.action, logits.argmax(axis=-1))


def test_there_are_no_target_parameters(start):
    assert start.target == ()


BATCH_NORM = {"name": "mlp", "batch_norm": True}


@pytest.mark.parametrize(
    ("updater", "network", "message"),
    [
        ("sac", BATCH_NORM, "`sac` does not learn running statistics"),
        (
            "crossq",
            {"shared": BATCH_NORM, "policy": {}, "critic": {}},
            "`batch_norm` requires a network without `memory`",
        ),
    ],
)
def test_batch_normalization_is_refused_where_it_would_not_learn(
    updater, network, message
):
    data = {"environment": "Pendulum-v1", "train": {"steps": 2_000}}
    with pytest.raises(RlcliError, match=message):
        build(recipe.load_recipe({**data, "updater": updater, "network": network}))
