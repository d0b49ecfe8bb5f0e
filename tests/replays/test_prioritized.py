"""Prioritized replay against a dictionary of all windows and their priorities."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlcli.errors import RlcliError
from rlcli.replays import priorities
from rlcli.replays.frames import frames
from rlcli.replays.prioritized import prioritized

ALPHA, BETA, EPSILON = 0.7, 0.5, 0.25
# (window, unroll, num_envs, capacity)
SIZES = [(1, 1, 1, 7), (4, 3, 2, 36)]


def report_priority(steps):
    """A positive priority that depends only on the window, over a wide range."""
    return jnp.exp(3 * steps.reward[0])


def masses_and_largest(state):
    return priorities.leaf_weights(state.masses.tree), state.masses.largest


def masses_of(rows, span, num_envs, count, unroll, leaves):
    """The leaves as {number of the window's first step: mass}."""
    newest = count * unroll - span
    oldest = max(count * unroll - rows, 0)
    slots = rows + 2
    return {
        time * num_envs + env: leaves[time % slots * num_envs + env]
        for time in range(oldest, newest + 1)
        for env in range(num_envs)
    }


@pytest.mark.parametrize(("window", "unroll", "num_envs", "capacity"), SIZES)
def test_masses_follow_reports_and_windows_added_and_overwritten(
    window, unroll, num_envs, capacity, stream, run_replay, original
):
    rows = capacity // (unroll * num_envs) * unroll
    steps = stream(1, 6 * capacity // unroll, unroll, num_envs)
    options = {"alpha": ALPHA, "beta": BETA, "epsilon": EPSILON, "batch_size": 5}
    replay = prioritized(window, unroll, num_envs, capacity=capacity, **options)
    drawn, weight, _, added, after = run_replay(
        replay, steps, masses_and_largest, report_priority
    )
    brute, largest = {}, 1.0
    for count in range(len(steps.reward)):
        # Windows completed by the new unroll have the largest priority so far.
        leaves, _ = added[0][count], added[1]
        there = masses_of(rows, window, num_envs, count + 1, unroll, leaves)
        brute = {each: brute.get(each, largest) for each in there}
        np.testing.assert_allclose(
            [*there.values()], np.array([*brute.values()]) ** ALPHA, rtol=1e-5
        )
        # All others have mass 0: windows across the head and overwritten windows.
        assert np.sum(leaves > 0) == len(brute)
        if not brute:
            assert not np.any(weight[count])
            continue
        starts = drawn.action[count][0]
        expected = starts + np.arange(window)[:, None] * num_envs
        np.testing.assert_array_equal(drawn.action[count], expected)
        mass = np.array([there[start] for start in starts])
        ratio = (mass.min() / mass) ** BETA
        np.testing.assert_allclose(
            weight[count], np.broadcast_to(ratio, (window, 5)), rtol=1e-4
        )
        priority = np.exp(3 * original(steps, starts).reward) + EPSILON
        brute |= dict(zip(starts.tolist(), priority.tolist(), strict=True))
        largest = max(largest, priority.max())
        assert after[1][count] == pytest.approx(largest, rel=1e-5)
        there = masses_of(rows, window, num_envs, count + 1, unroll, after[0][count])
        np.testing.assert_allclose(
            [*there.values()], np.array([*brute.values()]) ** ALPHA, rtol=1e-5
        )


def test_windows_are_sampled_in_proportion_to_priority_to_the_power_of_alpha(
    stream, as_likely
):
    steps = stream(2, 9, 1, 2)
    draws = 20_000
    options = {"alpha": 0.5, "beta": 1.0, "epsilon": 0.0, "batch_size": draws}
    replay = prioritized(2, 1, 2, capacity=12, **options)

    @jax.jit
    def seen(key):
        state = replay.init(jax.tree.map(lambda leaf: leaf[0], steps))
        state, _ = jax.lax.scan(  # the ring holds the newest 6
            lambda state, now: (replay.add(state, *now), ()),
            state,
            (steps, jnp.arange(9)),
        )
        # All windows are sampled once and get their number as priority.
        first, _, index = replay.sample(state, jnp.int32(9), replay.draw(key))
        state = replay.reweigh(state, index, first.action[0].astype("f4"))
        noise = replay.draw(jax.random.fold_in(key, 1))
        again, weight, _ = replay.sample(state, jnp.int32(9), noise)
        return first.action[0], again.action[0], weight[0]

    first, again, weight = jax.tree.map(np.asarray, seen(jax.random.key(3)))
    windows = np.arange(3 * 2, 8 * 2)  # windows start at one of 5 times
    assert set(first.tolist()) == set(windows.tolist())
    probability = np.sqrt(windows) / np.sqrt(windows).sum()
    assert as_likely([np.sum(again == each) for each in windows], probability)
    # (N P)^−β with β = 1 corrects for it, relative to the largest weight of the batch.
    expected = np.sqrt(windows.min() / again)
    np.testing.assert_allclose(weight, expected, rtol=1e-4)


@pytest.mark.parametrize("every", [4, pytest.param(1, marks=pytest.mark.slow)])
def test_by_rank_the_masses_are_those_of_ranks_when_they_were_sorted_last(
    every, stream, run_replay
):
    window, unroll, num_envs, capacity = 2, 2, 2, 24
    rows, unrolls = 12, 40
    steps = stream(4, unrolls, unroll, num_envs)
    options = {"by": "rank", "alpha": ALPHA, "sort_every": every, "batch_size": 5}
    replay = prioritized(window, unroll, num_envs, capacity=capacity, **options)
    drawn, _, _, added, after = run_replay(
        replay, steps, masses_and_largest, report_priority
    )
    brute, largest = {}, 1.0
    ascending = np.zeros(0)  # priorities as sorted last
    for count in range(unrolls):
        old = brute
        there = masses_of(rows, window, num_envs, count + 1, unroll, added[0][count])
        brute = {each: brute.get(each, largest) for each in there}
        if count % every == 0:
            ascending = np.sort([*brute.values()])
            ranks = 1.0 + np.arange(len(brute))
            order = sorted(brute, key=lambda each: -there[each])
            masses = [there[each] for each in order]
            np.testing.assert_allclose(masses, ranks**-ALPHA, rtol=1e-5)
            assert np.all(np.diff([brute[each] for each in order]) <= 0)
        else:
            assert all(there[each] == 1 for each in brute if each not in old)
        if not brute:
            continue
        starts = drawn.action[count][0]
        rewards = drawn.reward[count][0]
        priority = np.exp(3 * rewards.astype("f4"))
        leaves = masses_of(rows, window, num_envs, count + 1, unroll, after[0][count])
        for start, each in zip(starts.tolist(), priority.tolist(), strict=True):
            brute[start] = each
            rank = 1 + np.sum(ascending > each * (1 + 1e-6))
            assert leaves[start] == pytest.approx(rank**-ALPHA, rel=1e-5)
        largest = max(largest, priority.max())


def test_a_non_finite_priority_is_replaced_by_the_largest_so_far(stream):
    replay = prioritized(1, 1, 1, capacity=4, batch_size=2, alpha=1.0, epsilon=0.0)
    steps = stream(5, 1, 1, 1)
    unroll = jax.tree.map(lambda leaf: leaf[0], steps)

    @jax.jit
    def largest(priority):
        state = replay.add(replay.init(unroll), unroll, jnp.int32(0))
        state = replay.reweigh(state, jnp.array([0, 0]), priority)
        return state.masses.largest, priorities.total_weight(state.masses.tree)

    result = largest(jnp.array([jnp.nan, 0.5]))
    assert [float(value) for value in result] == [1.0, 1.0]


def test_prioritized_replay_can_store_each_frame_once(stream, run_replay, original):
    steps = stream(6, 40, 1, 2)
    replay = prioritized(
        2, 1, 2, capacity=24, batch_size=4, frames={"stack": 1, "ends": 24}
    )
    drawn, weight, *_ = run_replay(replay, steps)
    for count in range(3, 40):
        assert np.all(weight[count] > 0)
        truth = original(steps, drawn.action[count])
        np.testing.assert_array_equal(drawn.next_obs[count], truth.next_obs)
    like = jax.eval_shape(replay.init, jax.tree.map(lambda x: x[0], steps))
    frames_state = jax.eval_shape(
        frames(2, 1, 2, capacity=24, stack=1, ends=24).init,
        jax.tree.map(lambda x: x[0], steps),
    )
    assert jax.tree.leaves(like.steps) == jax.tree.leaves(frames_state)


def test_a_capacity_too_small_for_a_window_is_refused():
    with pytest.raises(RlcliError, match="replay `prioritized` with a capacity of 5"):
        prioritized(3, 1, 2, capacity=5)


def test_only_priorities_by_gradient_norm_require_an_updater_option():
    kinds = ("td_error", "rank", "gradient_norm")
    required = [
        prioritized(1, 1, 1, by=kind).traits.required_priority for kind in kinds
    ]
    assert required == ["", "", "gradient_norm"]
