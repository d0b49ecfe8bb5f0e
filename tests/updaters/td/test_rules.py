"""TD rules against numbers by hand, loops over rows, and rlax."""

import functools
import itertools
from types import SimpleNamespace

import gymnasium
import jax
import numpy as np
import pytest
import rlax
from tiers import quick_first

from rlcli.networks.predictions import IDENTITY, Quantiles
from rlcli.types import Decision, Transition
from rlcli.updaters.critics import Critic
from rlcli.updaters.td.rule_context import TDParts, make_context

STATES, ACTIONS, EPSILON = 6, 4, 0.2
SHAPE = (1, 30)
FAR = {"every": 100}  # target parameters that stay constant
Q, TARGET = [1, 2, 3, 10], [7, 0, 0, 4]
RULES = {
    "q_learning": {},
    "double_q_learning": {},
    "clipped_double_q_learning": {},
    "expected_sarsa": {},
    "soft_q_learning": {"temperature": 0.8},
    "soft_clipped_double_q_learning": {"temperature": 0.8},
    "munchausen": {"temperature": 0.8, "alpha": 0.4},
}
# rule -> the target at s′ computed by hand from Q and TARGET.
BY_HAND = {
    "q_learning": 7,  # the maximum of TARGET
    "double_q_learning": 4,  # TARGET at the argmax of Q
    "expected_sarsa": 6.15,  # 0.8 · 7 + 0.2 · (7 + 4) / 4
    "soft_q_learning": 7.018844,  # 0.8 · log(exp(7 / 0.8) + exp(4 / 0.8) + 2)
    "munchausen": 7.018844 - 0.4,  # 0.8 · log ¼ is below −1
}


@functools.cache
def build_rule(tabular, name):
    """A rule that several tests update with rows of one shape, by one program."""
    return tabular(name, start=2, target=FAR, loss="mse", **RULES[name])


def equal_rows(tabular):
    """From state 0 to state 1, with reward 0 and discount 1."""
    rows, zeros = tabular.rows(shape=SHAPE), np.zeros(SHAPE, int)
    return rows._replace(
        obs=zeros,
        next_obs=zeros + 1,
        reward=np.zeros(SHAPE, "f4"),
        discount=np.ones(SHAPE, "f4"),
    )


@pytest.mark.parametrize(("name", "expected"), BY_HAND.items())
def test_a_row_bootstraps_from_the_number_computed_by_reference(
    name, expected, tabular
):
    ours = build_rule(tabular, name)
    tables = np.zeros((2, STATES, ACTIONS))
    tables[0, 1], tables[1, 1] = Q, TARGET
    _, report = ours.updated(equal_rows(ours), *tables)
    np.testing.assert_allclose(report.metrics["td_error"], expected, rtol=1e-6)
    np.testing.assert_allclose(report.priority, np.full(SHAPE[1], expected), rtol=1e-6)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("clipped_double_q_learning", -1),  # the minimum at action 2
        # 0.8 · log(exp(5 / 0.8) + 1 + exp(−1 / 0.8) + exp(4 / 0.8))
        ("soft_clipped_double_q_learning", 5.203086),
    ],
)
def test_the_minimum_of_two_critics_is_used(name, expected, tabular):
    ours = build_rule(tabular, name)
    tables = np.zeros((2, 2, STATES, ACTIONS))  # online or target, critic
    # The minima are [1, 2, 3, 1] online, and [5, 0, −1, 4] of the target.
    tables[0, 0, 1], tables[1, 0, 1] = Q, TARGET
    tables[0, 1, 1], tables[1, 1, 1] = [9, 9, 9, 1], [5, 5, -1, 5]
    _, report = ours.updated(equal_rows(ours), *tables)
    np.testing.assert_allclose(report.metrics["td_error"], abs(expected), rtol=1e-5)


@pytest.mark.slow
def test_without_a_target_a_rule_bootstraps_from_online_parameters(tabular):
    tables = np.zeros((STATES, ACTIONS))
    tables[1] = Q
    for name in ("q_learning", "double_q_learning"):
        ours = tabular(name, target=None)
        _, report = ours.updated(equal_rows(ours), tables, tables)
        assert report.metrics["td_error"] == 10


def greedy(values, epsilon=EPSILON):
    """ε-greedy probabilities."""
    best = values == values.max()
    return epsilon / ACTIONS + (1 - epsilon) * best / best.sum()


def soft(values, temperature):
    """The soft maximum and the log-probabilities of its policy."""
    top = values.max()
    total = top + temperature * np.log(np.exp((values - top) / temperature).sum())
    return total, (values - total) / temperature


def reference_backup(name, q, target, row, temperature, alpha):
    """The bootstrap value of a row and its extra reward, by the equations."""
    there = target[row.next_obs]
    if "double_q" in name and "soft" not in name:
        return there[q[row.next_obs].argmax()], 0
    if name == "q_learning":
        return there.max(), 0
    if name == "expected_sarsa":
        return greedy(there) @ there, 0
    value, _ = soft(there, temperature)
    if name != "munchausen":
        return value, 0
    _, log_prob = soft(target[row.obs], temperature)
    return value, alpha * max(temperature * log_prob[row.action], -1.0)


@pytest.mark.parametrize("name", RULES)
def test_errors_loss_gradient_and_estimates_equal_a_loop(name, tabular):
    options = RULES[name]
    copies = 2 if "clipped" in name else 1
    rng = np.random.default_rng(1)
    tables = rng.normal(size=(2, copies, STATES, ACTIONS)).astype("f4") * 2
    ours = build_rule(tabular, name)
    rows = ours.rows(shape=SHAPE)
    weight = rng.random((1, 30)).astype("f4")
    q, target = tables.min(axis=1)
    given = tables if copies > 1 else tables[:, 0]
    new, report = ours.updated(rows, *given, weight)
    new = np.asarray(new).reshape(copies, STATES, ACTIONS)
    targets, gradient = np.zeros(30), np.zeros((copies, STATES, ACTIONS))
    reference = functools.partial(
        reference_backup, name, temperature=options.get("temperature"), alpha=0.4
    )
    errors = np.zeros((copies, 30))
    for b in range(30):
        row = jax.tree.map(lambda leaf, b=b: leaf[0, b], rows._replace(extras=()))
        row = row._replace(action=row.action - 2)
        value, bonus = reference(q, target, row)
        targets[b] = row.reward + bonus + row.discount * value
        for copy in range(copies):
            error = targets[b] - tables[0, copy, row.obs, row.action]
            errors[copy, b] = error
            gradient[copy, row.obs, row.action] -= 2 * weight[0, b] * error / 30
    np.testing.assert_allclose(
        report.priority, np.abs(errors).mean(0), rtol=1e-4, atol=1e-5
    )
    loss = (weight * (errors**2).sum(0)).mean()
    np.testing.assert_allclose(report.metrics["loss"], loss, rtol=1e-4)
    np.testing.assert_allclose(tables[0] - new, gradient, atol=1e-4)
    check_estimates(ours, rows, given, q, target, reference)


def reference_policy(name, q, target, state, temperature):
    """π(·|s) of the policy whose values the rule learns."""
    if "double_q" in name and "soft" not in name:
        return greedy(q[state], 0)
    if name == "q_learning":
        return greedy(target[state], 0)
    if name == "expected_sarsa":
        return greedy(target[state])
    return np.exp(soft(target[state], temperature)[1])


def check_estimates(ours, rows, tables, q, target, reference):
    """Checks values by the target tables, and the probabilities of their policy."""
    estimates = jax.device_get(
        ours.estimate(ours.state(*tables)[0], rows, jax.random.key(0))
    )
    for b in range(30):
        row = jax.tree.map(lambda leaf, b=b: leaf[0, b], rows._replace(extras=()))
        row = row._replace(action=row.action - 2)
        before = row._replace(next_obs=row.obs)
        v_t, v_tm1 = (reference(q, target, each)[0] for each in (row, before))
        np.testing.assert_allclose(estimates.v_t[0, b], v_t, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(estimates.v_tm1[0, b], v_tm1, rtol=1e-4, atol=1e-5)
        taken = target[row.obs, row.action]
        np.testing.assert_allclose(estimates.q_tm1[0, b], taken)
        name, temperature = reference.args[0], reference.keywords["temperature"]
        likely = reference_policy(name, q, target, row.obs, temperature)[row.action]
        np.testing.assert_allclose(np.exp(estimates.log_prob[0, b]), likely, rtol=1e-4)


def test_sarsa_bootstraps_from_actions_sampled_from_the_policy(tabular):
    ours = tabular("sarsa", start=2, target=FAR, loss="mse")
    rng = np.random.default_rng(2)
    tables = rng.normal(size=(2, STATES, ACTIONS)).astype("f4")
    rows = ours.rows(shape=(1, 6_000))
    _, report = ours.updated(rows, *tables)
    taken = tables[0][rows.obs, rows.action - 2]
    # The priority is |y − q|: the error has either sign.
    sides = np.stack([taken + report.priority, taken - report.priority])[:, 0]
    bootstrap_values = (sides - rows.reward[0]) / np.where(
        rows.discount[0], rows.discount[0], 1
    )
    going = rows.discount[0] > 0
    each = np.abs(bootstrap_values[..., None] - tables[1][rows.next_obs[0]]).min(0)
    assert each[going].min(-1).max() < 1e-4  # always some q⁻(s′, a′)
    action = each.argmin(-1)
    for state in range(STATES):  # sampled by the online values of s′
        here = going & (rows.next_obs[0] == state)
        share = np.bincount(action[here], minlength=ACTIONS) / here.sum()
        np.testing.assert_allclose(share, greedy(tables[0][state]), atol=0.06)


def test_estimates_of_sarsa_are_expectations(tabular):
    rng = np.random.default_rng(3)
    table = rng.normal(size=(STATES, ACTIONS)).astype("f4")
    ours = tabular("sarsa")
    rows = ours.rows()
    estimates = ours.estimate(ours.state(table, table)[0], rows, jax.random.key(0))
    for at in np.ndindex(rows.reward.shape):
        here, there = table[rows.obs[at]], table[rows.next_obs[at]]
        np.testing.assert_allclose(estimates.v_tm1[at], greedy(here) @ here, rtol=1e-5)
        np.testing.assert_allclose(estimates.v_t[at], greedy(there) @ there, rtol=1e-5)


def test_simple_td_learns_state_values(tabular):
    ours = tabular("simple_td", target=FAR, loss="mse")
    rng = np.random.default_rng(4)
    tables = rng.normal(size=(2, STATES, 1)).astype("f4")
    rows = ours.rows(shape=(1, 30))
    _, report = ours.updated(rows, *tables)
    v, target = tables[..., 0]
    error = rows.reward + rows.discount * target[rows.next_obs] - v[rows.obs]
    np.testing.assert_allclose(report.priority, np.abs(error)[0], rtol=1e-4, atol=1e-6)
    estimates = ours.estimate(ours.state(*tables)[0], rows, jax.random.key(0))
    assert "q" not in report.metrics
    np.testing.assert_allclose(report.metrics["v"], v[rows.obs].mean(), rtol=1e-4)
    np.testing.assert_allclose(estimates.v_t, target[rows.next_obs])
    np.testing.assert_allclose(estimates.q_tm1, target[rows.obs])
    np.testing.assert_allclose(np.exp(estimates.log_prob), 1 / ACTIONS, rtol=1e-6)


QUANTILES = {"name": "quantile", "quantiles": 3}
ATOMS = {"name": "categorical", "atoms": 5, "low": -4.0, "high": 4.0}
TAU = np.array([1 / 6, 1 / 2, 5 / 6], "f4")


def rlax_loss(name, here, there, selector, action, reward, discount):
    """The rlax loss of one row, `[A, K]` each."""
    if name == "categorical":
        atoms = np.linspace(-4, 4, 5, dtype="f4")
        choose = jax.nn.softmax(selector) @ atoms
        return rlax.categorical_double_q_learning(
            atoms, here, action, reward, discount, atoms, there, choose
        )
    return rlax.quantile_q_learning(
        here.T, TAU, action, reward, discount, selector.T, there.T, huber_param=1.0
    )


@pytest.mark.parametrize(
    ("rule", "head"),
    quick_first(
        [
            ("double_q_learning", QUANTILES),
            ("q_learning", ATOMS),
            ("q_learning", QUANTILES),
            ("double_q_learning", ATOMS),
        ],
        quick=2,
    ),
    ids=lambda each: each if isinstance(each, str) else each["name"],
)
@pytest.mark.filterwarnings("ignore::PendingDeprecationWarning:rlax")
def test_distributional_losses_equal_rlax_times_the_weight(rule, head, tabular):
    ours = tabular(rule, head, target=FAR)
    rng = np.random.default_rng(5)
    size = 3 if head is QUANTILES else 5
    tables = rng.normal(size=(2, STATES, ACTIONS, size)).astype("f4")
    rows = ours.rows()
    weight = rng.random(rows.reward.shape).astype("f4")
    _, report = ours.updated(rows, *tables.reshape(2, STATES, -1), weight)
    q, target = tables
    here, there = q[rows.obs], target[rows.next_obs]
    selector = there if rule == "q_learning" else q[rows.next_obs]
    each = jax.jit(jax.vmap(jax.vmap(functools.partial(rlax_loss, head["name"]))))
    losses = each(here, there, selector, rows.action, rows.reward, rows.discount)
    expected = (weight * losses).mean()
    np.testing.assert_allclose(report.metrics["loss"], expected, rtol=1e-4)


@pytest.mark.filterwarnings("ignore::PendingDeprecationWarning:rlax")
def test_a_batch_of_one_row_has_the_loss_of_this_row(tabular):
    ours = tabular("q_learning", ATOMS, target=FAR)
    tables = np.random.default_rng(9).normal(size=(2, STATES, ACTIONS * 5))
    rows = ours.rows(shape=(2, 3))
    _, report = ours.updated(rows, *tables)
    losses = []
    for t, b in np.ndindex(2, 3):
        row = jax.tree.map(lambda x, t=t, b=b: x[t : t + 1, b : b + 1], rows)
        losses.append(ours.updated(row, *tables)[1].metrics["loss"])
    np.testing.assert_allclose(np.mean(losses), report.metrics["loss"], rtol=1e-5)


def test_expected_sarsa_with_quantiles_equals_rlax(tabular):
    ours = tabular("expected_sarsa", QUANTILES, target=FAR)
    tables = np.random.default_rng(6).normal(size=(2, STATES, ACTIONS, 3)).astype("f4")
    rows = ours.rows()
    _, report = ours.updated(rows, *tables.reshape(2, STATES, -1))

    @jax.jit
    @jax.vmap
    @jax.vmap
    def rlax_losses(here, there, likely, action, reward, discount):
        return rlax.quantile_expected_sarsa(
            here.T, TAU, action, reward, discount, there.T, likely, huber_param=1.0
        )

    likely = np.stack([greedy(q) for q in tables[1].mean(-1)]).astype("f4")
    here, there = tables[0][rows.obs], tables[1][rows.next_obs]
    likely = likely[rows.next_obs]
    losses = rlax_losses(here, there, likely, rows.action, rows.reward, rows.discount)
    np.testing.assert_allclose(report.metrics["loss"], np.mean(losses), rtol=1e-4)


def test_the_loss_of_a_categorical_head_as_priority_is_a_kl_divergence(tabular):
    ours = tabular("double_q_learning", ATOMS, target=FAR, priority="loss")
    assert ours.whole.traits.priority == "loss"
    tables = np.random.default_rng(8).normal(size=(2, STATES, ACTIONS, 5)).astype("f4")
    rows = ours.rows(shape=(1, 30))
    _, report = ours.updated(rows, *tables.reshape(2, STATES, -1))
    q, there = np.exp(tables) / np.exp(tables).sum(-1, keepdims=True)
    atoms = np.linspace(-4, 4, 5, dtype="f4")
    project = jax.jit(rlax.categorical_l2_project)
    for b in range(30):
        row = jax.tree.map(lambda leaf, b=b: leaf[0, b], rows._replace(extras=()))
        best = (q[row.next_obs] @ atoms).argmax()
        moved = row.reward + row.discount * atoms
        goal = np.asarray(project(moved, there[row.next_obs, best], atoms))
        likely = q[row.obs, row.action]
        divergence = sum(
            g * np.log(g / p) for g, p in zip(goal, likely, strict=True) if g
        )
        np.testing.assert_allclose(report.priority[b], divergence, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("steps", [1, 3])
def test_gradient_norms_are_those_of_one_column_at_a_time(steps, tabular):
    ours = tabular("q_learning", target=FAR, loss="mse", priority="gradient_norm")
    tables = np.random.default_rng(9).normal(size=(2, STATES, ACTIONS)).astype("f4")
    rows, weight = ours.rows(shape=(steps, 20)), np.ones((steps, 20), "f4")
    weight[0, :5] = 0 if steps > 1 else 1
    _, report = ours.updated(rows, *tables, weight)
    goal = rows.reward + rows.discount * tables[1][rows.next_obs].max(-1)
    for b in range(20):
        gradient = np.zeros((STATES, ACTIONS))
        for t in range(steps):
            pair = rows.obs[t, b], rows.action[t, b]
            gradient[pair] -= 2 * (weight[t, b] > 0) * (goal[t, b] - tables[0][pair])
        norm = np.linalg.norm(gradient)
        np.testing.assert_allclose(report.priority[b], norm, rtol=1e-4)


def test_the_values_that_select_a_target_action_are_predicted_for_acting():
    calls = []

    def predict_all_actions(role, params, key, obs, first, carry):
        calls.append((role, params, jax.random.key_data(key)))
        count = {"act": 3, "bootstrap": 2}[role]
        values = np.full((1, *first.shape, ACTIONS, count), params, "f4")
        return Quantiles(values, values)

    rows = Transition(*(np.zeros((2, 3), "f4") for _ in range(7)), extras={})
    critic = Critic(lambda key: {}, lambda *_: None, predict_all_actions, lambda *_: ())
    parts = TDParts(None, critic, None, None, IDENTITY, None)

    @jax.jit
    def target_next_q():
        context = make_context(parts, 1.0, 2.0, rows, jax.random.key(0))
        return context.target_next_q(), [key for *_, key in calls]

    values, keys = target_next_q()
    np.testing.assert_allclose(values, np.full((2, 3, ACTIONS), 2.0))
    assert [call[:2] for call in calls] == [("bootstrap", 2.0), ("act", 2.0)]
    np.testing.assert_array_equal(*keys)  # the same noise of the layers


def test_each_field_of_the_context_that_samples_has_a_key_of_its_own():
    keys = {}
    field = None

    def predict(role, params, key, *inputs):
        keys.setdefault(field, []).append(jax.random.key_data(key))
        values = np.zeros((1, 2, 3, ACTIONS, 2), "f4")
        return Quantiles(values, values)

    def predict_action(*inputs):
        prediction = predict(*inputs)
        return jax.tree.map(lambda leaf: leaf[..., 0, :], prediction)

    def draw(key, number):
        keys.setdefault("the policy", []).append(jax.random.key_data(key))
        return np.zeros(number, int)

    def explore(acting, obs, state, first, noise):
        return Decision(noise, {}), state

    policy = SimpleNamespace(initial=lambda n: ((), ()), draw=draw, explore=explore)
    rows = Transition(*(np.zeros((2, 3), "f4") for _ in range(7)), extras={})
    critic = Critic(lambda key: {}, predict_action, predict, lambda *_: ())
    parts = TDParts(None, critic, policy, None, IDENTITY, None)

    @jax.jit
    def used_keys():
        nonlocal field
        context = make_context(parts, 1.0, 2.0, rows, jax.random.key(0))
        for field in ("next_q", "online_next_q", "current_q", "sampled_next_q"):
            getattr(context, field)()
        return [*itertools.chain(*keys.values())]

    used = used_keys()
    assert len(used) == len(np.unique(used, axis=0)) == 5


def test_a_policy_is_asked_for_the_probability_of_each_action_in_a_whole_batch():
    def log_prob(q, action):
        assert action.shape == q.shape[:-1]
        likely = jax.nn.log_softmax(q)
        return (likely * jax.nn.one_hot(action - 3, ACTIONS)).sum(-1)

    policy = SimpleNamespace(log_prob=log_prob)
    space = gymnasium.spaces.Discrete(ACTIONS, start=3)
    rows = Transition(*(np.zeros((2, 3), "f4") for _ in range(7)), extras={})
    parts = TDParts(None, None, policy, space, IDENTITY, None)

    @jax.jit
    def probabilities(q):
        context = make_context(parts, 1.0, 2.0, rows, jax.random.key(0))
        return context.action_probabilities(q)

    q = np.random.default_rng(0).normal(size=(2, 3, ACTIONS)).astype("f4")
    expected = np.exp(q) / np.exp(q).sum(-1, keepdims=True)
    np.testing.assert_allclose(probabilities(q), expected, rtol=1e-5)


def test_transformed_values_are_inverted_before_bootstrapping(tabular):
    rng = np.random.default_rng(7)
    tables = rng.normal(size=(2, STATES, ACTIONS)).astype("f4") * 2
    ours = tabular("q_learning", target=FAR, transform="log", loss="mse")
    rows = ours.rows(shape=(1, 30))
    _, report = ours.updated(rows, *tables)

    def back(z):
        return np.sign(z) * np.expm1(np.abs(z))

    y = rows.reward + rows.discount * back(tables[1][rows.next_obs]).max(-1)
    taken = tables[0][rows.obs, rows.action]
    error = np.sign(y) * np.log1p(np.abs(y)) - taken
    np.testing.assert_allclose(report.priority, np.abs(error)[0], rtol=1e-3, atol=1e-5)
    np.testing.assert_allclose(report.metrics["q"], back(taken).mean(), rtol=1e-4)
