"""The λ-return against its recursion in NumPy and rlax."""

import jax
import numpy as np
import pytest
import rlax
from tracing import trace

from rlcli.tracers.multi_step import lambda_return, n_step


def reference_returns(steps, v_t, gamma, lambda_):
    """Gₜ of every step, backwards; bootstraps at ends of episodes and of the unroll."""
    returns = np.zeros_like(steps.reward)
    T, B = steps.reward.shape
    for b in range(B):
        for t in reversed(range(T)):
            ends = steps.last[t, b] or t == T - 1
            next_value = v_t[t, b]
            if not ends:
                next_value = (1 - lambda_) * v_t[t, b] + lambda_ * returns[t + 1, b]
            discount = gamma * steps.discount[t, b]
            returns[t, b] = steps.reward[t, b] + discount * next_value
    return returns


@pytest.mark.parametrize("gamma", [0.9, 1.0])
@pytest.mark.parametrize("lambda_", [0.0, 0.8, 1.0])
def test_returns_equal_the_recursion_over_random_endings(random_steps, gamma, lambda_):
    steps, estimates = random_steps(seed=1)
    tracer = lambda_return(gamma=gamma, lambda_=lambda_)
    rows = trace(tracer, steps, estimates)
    expected = reference_returns(steps, estimates.v_t, gamma, lambda_)
    np.testing.assert_allclose(rows.reward, expected, rtol=1e-5, atol=1e-5)
    assert not np.any(rows.discount)  # nothing is left to bootstrap from
    for name in ("obs", "action", "next_obs", "first", "last"):
        np.testing.assert_array_equal(getattr(rows, name), getattr(steps, name))


def test_returns_equal_rlax_where_lambda_is_zero_at_the_end_of_an_episode(random_steps):
    steps, estimates = random_steps(seed=2)
    rows = trace(lambda_return(gamma=0.95, lambda_=0.7), steps, estimates)
    lambda_t = np.where(steps.last, 0, 0.7).astype("f4")
    expected = jax.jit(jax.vmap(rlax.lambda_returns, in_axes=1, out_axes=1))(
        steps.reward, 0.95 * steps.discount, estimates.v_t, lambda_t
    )
    np.testing.assert_array_equal(rows.reward, expected)


def test_without_truncation_advantages_equal_gae_of_rlax(random_steps):
    steps, estimates = random_steps(seed=3, truncate=0.0)
    # rlax has one value per time: `next_obs` has the value of the next step's `obs`.
    v_t = np.concatenate([estimates.v_tm1[1:], estimates.v_t[-1:]])
    rows = trace(
        lambda_return(gamma=0.95, lambda_=0.7), steps, estimates._replace(v_t=v_t)
    )
    values = np.concatenate([estimates.v_tm1[:1], v_t])
    reference = jax.vmap(
        rlax.truncated_generalized_advantage_estimation,
        in_axes=(1, 1, None, 1),
        out_axes=1,
    )
    advantages = jax.jit(reference)(steps.reward, 0.95 * steps.discount, 0.7, values)
    np.testing.assert_allclose(
        rows.reward - estimates.v_tm1, advantages, rtol=1e-5, atol=1e-5
    )


def test_a_truncated_step_bootstraps_and_ignores_the_next_episode(random_steps):
    steps, estimates = random_steps(seed=4, terminate=0.0, truncate=0.0)
    cut = np.array(steps.last)
    cut[9] = True
    tracer = lambda_return(gamma=0.9, lambda_=1.0)
    rows = trace(tracer, steps._replace(last=cut), estimates)
    at_the_cut = steps.reward[9] + 0.9 * estimates.v_t[9]
    np.testing.assert_allclose(rows.reward[9], at_the_cut, rtol=1e-5)
    other = np.array(steps.reward)
    other[10:] += 1000.0
    again = trace(tracer, steps._replace(last=cut, reward=other), estimates)
    np.testing.assert_array_equal(again.reward[:10], rows.reward[:10])


def test_lambda_zero_is_one_step(random_steps):
    steps, estimates = random_steps(seed=5)
    mixed = trace(lambda_return(gamma=0.9, lambda_=0.0), steps, estimates)
    one = trace(n_step(n=1, gamma=0.9), steps, estimates)
    np.testing.assert_allclose(
        mixed.reward, one.reward + one.discount * estimates.v_t, rtol=1e-5, atol=1e-6
    )
