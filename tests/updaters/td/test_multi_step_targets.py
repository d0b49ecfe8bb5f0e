"""Targets of TD rules over several steps: λ-returns and Retrace with target tables."""

import functools

import jax
import numpy as np
import pytest
import rlax
from tiers import quick_first

from rlcli.tracers.multi_step import lambda_return
from rlcli.tracers.off_policy import retrace

STATES, ACTIONS, EPSILON = 6, 4, 0.2
STEPS, BATCH, GAMMA, MIXING = 8, 5, 0.9, 0.8
TABLES = np.random.default_rng(0).normal(size=(2, STATES, ACTIONS)).astype("f4")
Q, TARGET = TABLES
FAR = {"every": 100}  # target parameters that stay constant


def steps(ours, behavior):
    """One unroll without ends: row t + 1 begins where row t ends."""
    rng = np.random.default_rng(1)
    states = rng.integers(0, STATES, (STEPS + 1, BATCH))
    rows = ours.rows(shape=(STEPS, BATCH))
    taken = np.array(behavior)[rows.action - ours.start]
    return rows._replace(
        obs=states[:-1],
        next_obs=states[1:],
        discount=rng.choice([0.0, 1.0], rows.reward.shape, p=[0.2, 0.8]).astype("f4"),
        extras={"log_prob": np.log(taken).astype("f4")},
    )


def update(ours, tracer, raw):
    """The targets of the tracer, and the report of an update with them."""
    state, _ = ours.state(Q, TARGET)
    traced = jax.jit(tracer.trace)(raw, ours.estimate(state, raw, jax.random.key(0)))
    _, report = ours.updated(traced, Q, TARGET)
    return np.asarray(traced.reward), report


@pytest.mark.parametrize("name", quick_first(["double_q_learning", "q_learning"]))
def test_lambda_returns_bootstrap_from_the_target_table(name, tabular):
    ours = tabular(name, target=FAR, loss="mse")
    raw = steps(ours, [0.25] * ACTIONS)
    target, report = update(ours, lambda_return(gamma=GAMMA, lambda_=MIXING), raw)
    best = TARGET.max(-1)
    if name == "double_q_learning":
        best = TARGET[np.arange(STATES), Q.argmax(-1)]
    expected = jax.jit(jax.vmap(rlax.lambda_returns, (1, 1, 1, None), 1))(
        raw.reward, GAMMA * raw.discount, best[raw.next_obs], MIXING
    )
    np.testing.assert_allclose(target, expected, rtol=1e-4, atol=1e-5)
    error = np.abs(expected - Q[raw.obs, raw.action])
    np.testing.assert_allclose(report.priority, error, rtol=1e-4, atol=1e-5)


def soft(q):
    likely = np.exp(q - q.max(-1, keepdims=True))
    return likely / likely.sum(-1, keepdims=True)


def greedy(q, epsilon=0.0):
    return epsilon / ACTIONS + (1 - epsilon) * np.eye(ACTIONS)[q.argmax(-1)]


# rule -> the probabilities of the policy whose values it learns, `[STATES, ACTIONS]`
POLICIES = {
    "q_learning": greedy(TARGET),
    "double_q_learning": greedy(Q),
    "expected_sarsa": greedy(TARGET, EPSILON),
    "sarsa": greedy(TARGET, EPSILON),
}


@pytest.mark.filterwarnings("ignore::PendingDeprecationWarning:rlax")
@pytest.mark.parametrize("name", quick_first(POLICIES))
def test_retrace_with_a_target_table_equals_rlax(name, tabular):
    """rlax computes Retrace of q⁻ and π from the same tables."""
    ours = tabular(name, start=2, target=FAR)
    behavior = np.array([0.4, 0.3, 0.2, 0.1], "f4")
    raw = steps(ours, behavior)
    target, _ = update(ours, retrace(gamma=GAMMA, lambda_=MIXING), raw)
    actions = raw.action - ours.start
    rlax_errors = jax.jit(functools.partial(rlax.retrace, lambda_=MIXING))
    for b in range(BATCH):
        state, action = raw.next_obs[:, b], actions[:, b]
        # The last row has no next action: rlax bootstraps there from π as well.
        following = np.append(action[1:], 0)
        errors = rlax_errors(
            q_tm1=np.zeros((STEPS, ACTIONS), "f4"),
            q_t=TARGET[state],
            a_tm1=action,
            a_t=following,
            r_t=raw.reward[:, b],
            discount_t=GAMMA * raw.discount[:, b],
            pi_t=POLICIES[name][state].astype("f4"),
            # A behavior probability of infinity sets the last coefficient to 0.
            mu_t=np.append(behavior[action[1:]], np.inf).astype("f4"),
        )
        np.testing.assert_allclose(target[:, b], errors, rtol=1e-4, atol=1e-5)


def test_retrace_with_a_greedy_target_policy_is_q_lambda_of_watkins(tabular):
    """Where every probability of the behavior is at least π's, c is λ or 0."""
    ours = tabular("q_learning")
    behavior = np.ones(ACTIONS)  # as if each action had been certain
    raw = steps(ours, behavior)
    target, _ = update(ours, retrace(gamma=GAMMA, lambda_=MIXING), raw)
    for b in range(BATCH):
        target_return = 0.0
        for t in reversed(range(STEPS)):
            best = Q[raw.next_obs[t, b]].max()
            is_greedy = (
                t + 1 < STEPS and raw.action[t + 1, b] == Q[raw.next_obs[t, b]].argmax()
            )
            mixed = best + MIXING * is_greedy * (target_return - best)
            target_return = raw.reward[t, b] + GAMMA * raw.discount[t, b] * mixed
            np.testing.assert_allclose(target[t, b], target_return, rtol=1e-4)


@pytest.mark.parametrize(
    "name", ["soft_q_learning", "soft_clipped_double_q_learning", "munchausen"]
)
def test_the_target_policy_of_a_soft_rule_is_its_own_softmax(name, tabular):
    ours = tabular(name, target=FAR, temperature=1.0, critics=1)
    raw = steps(ours, [0.25] * ACTIONS)
    estimates = ours.estimate(ours.state(Q, TARGET)[0], raw, jax.random.key(0))
    expected = soft(TARGET)[raw.obs, raw.action]
    np.testing.assert_allclose(np.exp(estimates.log_prob), expected, rtol=1e-4)
