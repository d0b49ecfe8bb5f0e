"""The n-step return against numbers by hand, a simple loop, and rlax."""

import jax
import numpy as np
import pytest
import rlax
from blank import zero_estimates
from tracing import trace

from rlcli.tracers.multi_step import n_step
from rlcli.types import Transition


def test_an_episode_of_five_rewards_has_the_returns_computed_by_hand():
    # R = 1 … 5, then termination; two steps of the next episode complete the rows.
    rewards = np.array([1, 2, 3, 4, 5, 100, 100], np.float32)[:, None]
    last = np.arange(7)[:, None] == 4
    states = np.arange(7)[:, None, None].astype(np.float32)
    steps = Transition(
        obs=states,
        action=np.zeros((7, 1), np.int32),
        reward=rewards,
        discount=1.0 - last,
        next_obs=states + 1,
        first=np.arange(7)[:, None] % 5 == 0,
        last=last,
        extras={},
    )
    rows = trace(n_step(n=3, gamma=0.9), steps, zero_estimates(steps))
    np.testing.assert_allclose(rows.reward[:, 0], [5.23, 7.94, 10.65, 8.5, 5], 1e-6)
    np.testing.assert_allclose(rows.discount[:, 0], [0.729, 0.729, 0, 0, 0], 1e-6)
    np.testing.assert_array_equal(rows.next_obs[:, 0, 0], [3, 4, 5, 5, 5])
    np.testing.assert_array_equal(rows.last[:, 0], [False, False, True, True, True])


def reference_row(steps, n, gamma, t, b):
    """Return, discount and last step of one row."""
    total, factor = 0.0, 1.0
    for k in range(t, t + n):
        total += factor * steps.reward[k, b]
        factor *= gamma * steps.discount[k, b]
        if steps.last[k, b]:
            break
    return total, factor, k


@pytest.mark.parametrize(("n", "gamma"), [(1, 0.9), (2, 1.0), (3, 0.9), (7, 0.5)])
def test_rows_equal_a_loop_over_random_endings(random_steps, n, gamma):
    steps, _ = random_steps(seed=n)
    rows = trace(n_step(n=n, gamma=gamma), steps, zero_estimates(steps))
    T, B = steps.reward.shape
    assert rows.reward.shape == (T - n + 1, B)
    for t, b in np.ndindex(*rows.reward.shape):
        total, factor, k = reference_row(steps, n, gamma, t, b)
        assert rows.reward[t, b] == pytest.approx(total, abs=1e-5)
        assert rows.discount[t, b] == pytest.approx(factor, abs=1e-6)
        assert rows.next_obs[t, b] == steps.next_obs[k, b]
        assert rows.last[t, b] == steps.last[k, b]
        # Extras named `next_…` move with `next_obs`; the others stay with `obs`.
        assert rows.extras["next_carry"][t, b] == steps.next_obs[k, b] + 0.5
        assert rows.extras["log_prob"][t, b] == steps.obs[t, b] + 0.25
    for name in ("obs", "action", "first"):
        np.testing.assert_array_equal(
            getattr(rows, name), getattr(steps, name)[: T - n + 1]
        )


@pytest.mark.parametrize("n", [1, 3, 7])
def test_bootstrapped_returns_equal_rlax(random_steps, n):
    steps, estimates = random_steps(seed=n)
    rows = trace(
        n_step(n=n, gamma=0.95),
        steps._replace(extras={"next_value": estimates.v_t}),
        zero_estimates(steps),
    )
    reference = jax.vmap(
        lambda *inputs: rlax.n_step_bootstrapped_returns(*inputs[:3], n, inputs[3]),
        in_axes=1,
        out_axes=1,
    )
    expected = jax.jit(reference)(
        steps.reward,
        0.95 * steps.discount,
        estimates.v_t,
        1 - steps.last.astype("f4"),  # bootstraps where an episode is truncated
    )
    actual = rows.reward + rows.discount * rows.extras["next_value"]
    np.testing.assert_allclose(actual, expected[: len(actual)], rtol=1e-4, atol=1e-5)


def test_a_truncated_episode_bootstraps_from_its_true_next_observation(random_steps):
    steps, _ = random_steps(seed=0, terminate=0.0, truncate=0.0)
    cut = np.array(steps.last)
    cut[6] = True
    rows = trace(
        n_step(n=4, gamma=0.9), steps._replace(last=cut), zero_estimates(steps)
    )
    for t, k in [(3, 4), (4, 3), (5, 2), (6, 1), (7, 4)]:  # k steps to go from t
        np.testing.assert_allclose(rows.discount[t], 0.9**k, 1e-6)
        np.testing.assert_array_equal(rows.next_obs[t], steps.next_obs[t + k - 1])


def test_observations_may_be_pytrees(random_steps):
    steps, _ = random_steps(seed=3)
    nested = steps._replace(
        obs={"x": steps.obs, "y": (steps.obs[..., 0],)},
        next_obs={"x": steps.next_obs, "y": (steps.next_obs[..., 0],)},
    )
    tracer = n_step(n=3)
    rows, plain = (
        trace(tracer, each, zero_estimates(each)) for each in (nested, steps)
    )
    np.testing.assert_array_equal(rows.next_obs["x"], plain.next_obs)
    np.testing.assert_array_equal(rows.next_obs["y"][0], plain.next_obs[..., 0])


def test_a_carry_of_one_row_stays_unchanged(random_steps):
    steps, _ = random_steps(seed=4)
    carry = np.ones((1, 4, 2), np.float32)
    rows = trace(
        n_step(n=3), steps._replace(extras={"carry": carry}), zero_estimates(steps)
    )
    np.testing.assert_array_equal(rows.extras["carry"], carry)


def test_the_window_is_n():
    assert [n_step(n=n).window for n in (1, 5)] == [1, 5]
