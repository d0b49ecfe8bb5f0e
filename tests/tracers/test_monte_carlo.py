"""The Monte Carlo return against numbers by hand, a loop, and rlax."""

import jax
import numpy as np
import pytest
import rlax
from blank import zero_estimates
from tracing import trace

from rlcli.tracers.multi_step import monte_carlo, n_step
from rlcli.types import Transition


def test_three_rewards_of_one_have_the_returns_computed_by_hand():
    last = np.arange(5)[:, None] == 2  # then two steps of padding
    states = np.arange(5)[:, None, None].astype(np.float32)
    steps = Transition(
        obs=states,
        action=np.zeros((5, 1), np.int32),
        reward=np.array([1, 1, 1, 100, 100], np.float32)[:, None],
        discount=1.0 - last.astype(np.float32),
        next_obs=states + 1,
        first=np.arange(5)[:, None] % 3 == 0,
        last=last,
        extras={},
    )
    rows = trace(monte_carlo(gamma=0.9), steps, zero_estimates(steps))
    np.testing.assert_allclose(rows.reward[:3, 0], [2.71, 1.9, 1], 1e-6)
    np.testing.assert_array_equal(rows.discount[:3, 0], [0, 0, 0])
    np.testing.assert_array_equal(rows.next_obs[:3, 0, 0], [3, 3, 3])
    np.testing.assert_array_equal(rows.last[:3, 0], [True, True, True])
    cut = steps._replace(discount=np.ones((5, 1), np.float32))
    rows = trace(monte_carlo(gamma=0.9), cut, zero_estimates(cut))
    np.testing.assert_allclose(rows.discount[:3, 0], [0.729, 0.81, 0.9], 1e-6)


def reference_row(steps, gamma, t, b):
    """Return, discount, and the step at the end, of one row."""
    total, factor = 0.0, 1.0
    for k in range(t, len(steps.reward)):
        total += factor * steps.reward[k, b]
        factor *= gamma * steps.discount[k, b]
        if steps.last[k, b]:
            break
    return total, factor, k


@pytest.mark.parametrize("gamma", [0.9, 1.0])
def test_rows_equal_a_loop_over_random_endings(random_steps, gamma):
    steps, _ = random_steps(seed=1)
    rows = trace(monte_carlo(gamma=gamma), steps, zero_estimates(steps))
    for t, b in np.ndindex(*steps.reward.shape):
        total, factor, k = reference_row(steps, gamma, t, b)
        assert rows.reward[t, b] == pytest.approx(total, abs=1e-5)
        assert rows.discount[t, b] == pytest.approx(factor, abs=1e-6)
        assert rows.next_obs[t, b] == steps.next_obs[k, b]
        assert rows.last[t, b] == steps.last[k, b]
        # Extras named `next_…` move with `next_obs`; the others stay with `obs`.
        assert rows.extras["next_carry"][t, b] == steps.next_obs[k, b] + 0.5
    np.testing.assert_array_equal(rows.extras["log_prob"], steps.extras["log_prob"])
    for name in ("obs", "action", "first"):
        np.testing.assert_array_equal(getattr(rows, name), getattr(steps, name))


def test_last_observations_may_have_any_number_of_axes(random_steps):
    steps, _ = random_steps(seed=1)
    by_rank = {"number": steps.next_obs[..., 0], "vector": steps.next_obs}
    by_rank["image"] = np.broadcast_to(steps.next_obs[..., None], (25, 4, 2, 3))
    steps = steps._replace(next_obs=by_rank)
    rows = trace(monte_carlo(gamma=0.9), steps, zero_estimates(steps))
    _, _, k = reference_row(steps, 0.9, t=0, b=0)
    for name, obs in by_rank.items():
        assert rows.next_obs[name].shape == obs.shape
        np.testing.assert_array_equal(rows.next_obs[name][0, 0], obs[k, 0])


def test_bootstrapped_returns_equal_rlax(random_steps):
    steps, estimates = random_steps(seed=2)
    rows = trace(
        monte_carlo(gamma=0.95),
        steps._replace(extras={"next_value": estimates.v_t}),
        zero_estimates(steps),
    )
    expected = jax.jit(jax.vmap(rlax.lambda_returns, in_axes=1, out_axes=1))(
        steps.reward,
        0.95 * steps.discount,
        estimates.v_t,
        1 - steps.last.astype("f4"),  # bootstraps where an episode is truncated
    )
    actual = rows.reward + rows.discount * rows.extras["next_value"]
    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-5)


def test_it_equals_the_n_step_return_over_all_steps(random_steps):
    steps, _ = random_steps(seed=3)
    rows = trace(monte_carlo(gamma=0.9), steps, zero_estimates(steps))
    whole = trace(n_step(n=len(steps.reward), gamma=0.9), steps, zero_estimates(steps))
    for name in ("reward", "discount", "next_obs", "last"):
        actual, expected = getattr(rows, name)[:1], getattr(whole, name)
        np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-6)


def test_its_window_is_the_whole_episode():
    assert monte_carlo().window is None
