"""V-trace and Retrace against their sums in NumPy and rlax."""

import jax
import numpy as np
import pytest
import rlax
from tracing import trace

from rlcli.tracers.multi_step import lambda_return
from rlcli.tracers.off_policy import retrace, v_trace

GAMMA = 0.9


def consistent_estimates(steps, estimates):
    """Estimates where `next_obs` has the same value as the next step's `obs`."""
    ends = np.array(steps.last)
    ends[-1] = True
    later = np.concatenate([estimates.v_tm1[1:], estimates.v_t[-1:]])
    v_t = np.where(ends, estimates.v_t, later)
    # Far enough from the behavior policy that clipping occurs on both sides.
    rng = np.random.default_rng(0)
    behavior = steps.extras["log_prob"]
    current = behavior + rng.normal(scale=0.7, size=ends.shape).astype("f4")
    return estimates._replace(v_t=v_t, log_prob=current), np.exp(current - behavior)


def ends_at(steps, t, b):
    """The last step of the episode of step t, or the last step."""
    while not steps.last[t, b] and t + 1 < len(steps.last):
        t += 1
    return t


def reference_v_trace(steps, estimates, ratio, t, b, lambda_, clip_rho, clip_c):
    """The sum of the paper: v + Σ γᵏ⁻ᵗ (Π c) ρ δ, to the end of the episode."""
    value, factor = estimates.v_tm1[t, b], 1.0
    for k in range(t, ends_at(steps, t, b) + 1):
        discount = GAMMA * steps.discount[k, b]
        error = (
            steps.reward[k, b] + discount * estimates.v_t[k, b] - estimates.v_tm1[k, b]
        )
        value += factor * min(clip_rho, ratio[k, b]) * error
        factor *= discount * lambda_ * min(clip_c, ratio[k, b])
    return value


@pytest.mark.parametrize(
    ("lambda_", "clip_rho", "clip_c"), [(1.0, 1.0, 1.0), (0.8, 1.5, 0.7)]
)
def test_v_trace_equals_the_sum_of_the_paper(random_steps, lambda_, clip_rho, clip_c):
    steps, estimates = random_steps(seed=1)
    estimates, ratio = consistent_estimates(steps, estimates)
    options = {"lambda_": lambda_, "clip_rho": clip_rho, "clip_c": clip_c}
    rows = trace(v_trace(gamma=GAMMA, **options), steps, estimates)
    values = np.zeros_like(steps.reward)
    for t, b in np.ndindex(*values.shape):
        values[t, b] = reference_v_trace(steps, estimates, ratio, t, b, **options)
    np.testing.assert_allclose(rows.reward, values, rtol=1e-4, atol=1e-5)
    assert not np.any(rows.discount)  # nothing is left to bootstrap from
    for t, b in np.ndindex(*values.shape):
        later = estimates.v_t[t, b]
        if ends_at(steps, t, b) > t:
            later = lambda_ * values[t + 1, b] + (1 - lambda_) * later
        target = steps.reward[t, b] + GAMMA * steps.discount[t, b] * later
        expected = min(clip_rho, ratio[t, b]) * (target - estimates.v_tm1[t, b])
        actual = rows.extras["advantage"][t, b]
        assert actual == pytest.approx(expected, rel=1e-4, abs=1e-5)
    for name in ("obs", "action", "next_obs", "first", "last"):
        np.testing.assert_array_equal(getattr(rows, name), getattr(steps, name))


def test_without_truncation_v_trace_equals_rlax(random_steps):
    steps, estimates = random_steps(seed=2, truncate=0.0)
    estimates, ratio = consistent_estimates(steps, estimates)
    # rlax has one value per time: after the end it is multiplied by a discount of 0.
    v_t = np.concatenate([estimates.v_tm1[1:], estimates.v_t[-1:]])
    rows = trace(v_trace(gamma=GAMMA, lambda_=0.9), steps, estimates)
    reference = jax.vmap(
        lambda *inputs: rlax.vtrace_td_error_and_advantage(*inputs, lambda_=0.9),
        in_axes=1,
        out_axes=1,
    )
    expected = jax.jit(reference)(
        estimates.v_tm1, v_t, steps.reward, GAMMA * steps.discount, ratio
    )
    errors = rows.reward - estimates.v_tm1
    np.testing.assert_allclose(errors, expected.errors, rtol=1e-4, atol=1e-5)
    actual = rows.extras["advantage"]
    np.testing.assert_allclose(actual, expected.pg_advantage, rtol=1e-4, atol=1e-5)


def test_the_value_target_of_v_trace_equals_rlax_where_lambda_is_zero_at_the_end(
    random_steps,
):
    steps, estimates = random_steps(seed=2)
    estimates, ratio = consistent_estimates(steps, estimates)
    rows = trace(v_trace(gamma=GAMMA, lambda_=0.9), steps, estimates)
    lambda_t = np.where(steps.last, 0, 0.9).astype("f4")
    errors = jax.jit(jax.vmap(rlax.vtrace, in_axes=1, out_axes=1))(
        estimates.v_tm1,
        estimates.v_t,
        steps.reward,
        GAMMA * steps.discount,
        ratio,
        lambda_t,
    )
    actual = rows.reward - estimates.v_tm1
    np.testing.assert_allclose(actual, errors, rtol=1e-4, atol=1e-5)


def test_on_policy_v_trace_is_the_lambda_return(random_steps):
    steps, estimates = random_steps(seed=3)
    estimates, _ = consistent_estimates(steps, estimates)
    estimates = estimates._replace(log_prob=steps.extras["log_prob"])
    rows = trace(v_trace(gamma=GAMMA, lambda_=0.7), steps, estimates)
    expected = trace(lambda_return(gamma=GAMMA, lambda_=0.7), steps, estimates)
    np.testing.assert_allclose(rows.reward, expected.reward, rtol=1e-4, atol=1e-5)


def reference_retrace(steps, estimates, ratio, t, b, lambda_):
    """The sum of the paper: q + Σ γᵏ⁻ᵗ (Π c) δ, without c of the first step."""
    value, factor = estimates.q_tm1[t, b], 1.0
    for k in range(t, ends_at(steps, t, b) + 1):
        factor *= lambda_ * min(1.0, ratio[k, b]) if k > t else 1.0
        discount = GAMMA * steps.discount[k, b]
        error = (
            steps.reward[k, b] + discount * estimates.v_t[k, b] - estimates.q_tm1[k, b]
        )
        value += factor * error
        factor *= discount
    return value


@pytest.mark.parametrize("lambda_", [1.0, 0.6])
def test_retrace_equals_the_sum_of_the_paper(random_steps, lambda_):
    steps, estimates = random_steps(seed=4)
    estimates, ratio = consistent_estimates(steps, estimates)
    rows = trace(retrace(gamma=GAMMA, lambda_=lambda_), steps, estimates)
    for t, b in np.ndindex(*steps.reward.shape):
        expected = reference_retrace(steps, estimates, ratio, t, b, lambda_)
        assert rows.reward[t, b] == pytest.approx(expected, rel=1e-4, abs=1e-5)
    assert not np.any(rows.discount)


def test_retrace_equals_rlax_where_c_is_zero_after_the_end_of_an_episode(random_steps):
    steps, estimates = random_steps(seed=5)
    estimates, ratio = consistent_estimates(steps, estimates)
    rows = trace(retrace(gamma=GAMMA, lambda_=0.9), steps, estimates)
    weights = 0.9 * np.minimum(1.0, ratio)[1:] * ~steps.last[:-1]
    reference = jax.vmap(
        rlax.general_off_policy_returns_from_q_and_v, in_axes=1, out_axes=1
    )
    expected = jax.jit(reference)(
        estimates.q_tm1[1:],
        estimates.v_t,
        steps.reward,
        GAMMA * steps.discount,
        weights.astype("f4"),
    )
    np.testing.assert_allclose(rows.reward, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("tracer", [v_trace(gamma=GAMMA), retrace(gamma=GAMMA)])
def test_a_truncated_step_bootstraps_and_ignores_the_next_episode(random_steps, tracer):
    steps, estimates = random_steps(seed=6, terminate=0.0, truncate=0.0)
    cut = np.array(steps.last)
    cut[9] = True
    steps = steps._replace(last=cut)
    estimates = estimates._replace(log_prob=steps.extras["log_prob"])
    rows = trace(tracer, steps, estimates)
    at_the_cut = steps.reward[9] + GAMMA * estimates.v_t[9]
    np.testing.assert_allclose(rows.reward[9], at_the_cut, rtol=1e-4)
    other = np.array(steps.reward)
    other[10:] += 1000.0
    again = trace(tracer, steps._replace(reward=other), estimates)
    np.testing.assert_array_equal(again.reward[:10], rows.reward[:10])


@pytest.mark.parametrize("tracer", [v_trace(), retrace()])
def test_they_require_the_log_probability_of_the_behavior_policy(tracer):
    assert tracer.requires == ("log_prob",)
    assert tracer.window == 1
