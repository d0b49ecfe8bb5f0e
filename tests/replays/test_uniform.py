"""Uniform replay against a deque of unrolls."""

import collections
import functools
import itertools
import math

import jax
import numpy as np
import pytest

from rlcli import recipe
from rlcli.assembly import build
from rlcli.errors import RlcliError
from rlcli.replays.uniform import sample_distinct_indices, uniform
from rlcli.types import Transition

DRAWS = 20_000
# (window, unroll, num_envs, capacity)
SIZES = [
    (1, 1, 1, 7),  # an unroll of one row has a spare slot
    (3, 1, 1, 7),
    (4, 1, 1, 4),  # a single window
    (1, 1, 4, 20),
    (3, 1, 4, 22),  # 2 steps left over
    (3, 2, 1, 10),
    (2, 5, 1, 15),
    (5, 4, 3, 36),
    (8, 4, 2, 16),
]
QUICK_SIZES = {(1, 1, 1, 7), (4, 1, 1, 4), (3, 1, 4, 22), (2, 5, 1, 15), (5, 4, 3, 36)}
EVERY_SIZE = pytest.mark.parametrize(
    ("window", "unroll", "num_envs", "capacity"),
    [
        pytest.param(*size, marks=() if size in QUICK_SIZES else pytest.mark.slow)
        for size in SIZES
    ],
)


def unroll_of(count, unroll, num_envs):
    """The `count`-th unroll; each step contains its time and environment, from 1."""
    time = (
        count * unroll
        + np.arange(unroll, dtype=np.int32)[:, None]
        + np.ones(num_envs, np.int32)
    )
    env = np.broadcast_to(np.arange(1, num_envs + 1, dtype=np.int32), time.shape)
    number = time.astype(np.float32)
    return Transition(
        obs=np.stack([time, env], -1).astype(np.float32),
        action=time * 10 + env,
        reward=number,
        discount=number,
        next_obs={"time": number, "env": env},
        first=time % 3 == 0,
        last=time % 3 == 2,
        extras={"log_prob": -number},
    )


def windows_in(ring, window):
    """All available windows: (start time, environment)."""
    steps = list(itertools.chain(*ring))
    starts = steps[: max(len(steps) - window + 1, 0)]
    return {tuple(window) for step in starts for window in step.astype(int)}


@functools.cache
def compile_replay(window, unroll, num_envs, capacity):
    """A replay with jitted functions, compiled once for all tests."""
    replay = uniform(window, unroll, num_envs, capacity=capacity, batch_size=DRAWS)
    return replay._replace(
        init=jax.jit(replay.init),
        add=jax.jit(replay.add),
        draw=jax.jit(replay.draw),
        sample=jax.jit(replay.sample),
    )


def fill_ring(replay, unroll, num_envs, adds):
    """The ring after `adds` unrolls."""
    ring = replay.init(unroll_of(0, unroll, num_envs))
    for count in range(adds):
        ring = replay.add(ring, unroll_of(count, unroll, num_envs), np.int32(count))
    return ring


@EVERY_SIZE
def test_windows_are_consecutive_of_one_environment_and_among_the_newest(
    window, unroll, num_envs, capacity
):
    replay = compile_replay(window, unroll, num_envs, capacity)
    ring = replay.init(unroll_of(0, unroll, num_envs))
    brute = collections.deque(maxlen=capacity // (unroll * num_envs))
    for count in range(3 * brute.maxlen):  # several times around the ring
        steps = unroll_of(count, unroll, num_envs)
        ring = replay.add(ring, steps, np.int32(count))
        brute.append(steps.obs)
        allowed = windows_in(brute, window)
        if not allowed:
            continue  # no window is complete yet
        noise = replay.draw(jax.random.key(count))
        sampled = replay.sample(ring, np.int32(count + 1), noise)
        batch, weight, _ = jax.device_get(sampled)
        assert batch.obs.shape == (window, DRAWS, 2)
        assert np.all(weight == 1.0)
        assert weight.shape == (window, DRAWS)
        time, env = np.moveaxis(batch.obs, -1, 0).astype(int)
        np.testing.assert_array_equal(np.diff(time, axis=0), 1)
        np.testing.assert_array_equal(env, np.broadcast_to(env[0], env.shape))
        assert set(zip(time[0].tolist(), env[0].tolist(), strict=True)) <= allowed


def test_all_fields_of_a_step_stay_together():
    replay = compile_replay(2, 4, 3, 24)
    ring = fill_ring(replay, 4, 3, adds=5)
    noise = replay.draw(jax.random.key(0))
    batch, _, _ = jax.device_get(replay.sample(ring, np.int32(5), noise))
    time, env = np.moveaxis(batch.obs, -1, 0).astype(int)
    np.testing.assert_array_equal(batch.action, time * 10 + env)
    np.testing.assert_array_equal(batch.reward, time)
    np.testing.assert_array_equal(batch.discount, time)
    np.testing.assert_array_equal(batch.next_obs["time"], time)
    np.testing.assert_array_equal(batch.next_obs["env"], env)
    np.testing.assert_array_equal(batch.first, time % 3 == 0)
    np.testing.assert_array_equal(batch.last, time % 3 == 2)
    np.testing.assert_array_equal(batch.extras["log_prob"], -time)
    assert batch.first.dtype == bool


@pytest.mark.parametrize(("window", "unroll", "num_envs", "capacity"), SIZES)
@pytest.mark.parametrize("adds", ["half", "many"])
def test_all_starts_are_equally_likely(
    window, unroll, num_envs, capacity, adds, as_likely
):
    replay = compile_replay(window, unroll, num_envs, capacity)
    unrolls = capacity // (unroll * num_envs)
    least = math.ceil(window / unroll)
    count = max(unrolls // 2, least) if adds == "half" else 3 * unrolls + 1
    ring = fill_ring(replay, unroll, num_envs, count)
    newest = range(max(count - unrolls, 0), count)
    allowed = windows_in([unroll_of(c, unroll, num_envs).obs for c in newest], window)
    noise = replay.draw(jax.random.key(1))
    batch, _, _ = replay.sample(ring, np.int32(count), noise)
    starts = np.asarray(batch.obs)[0].astype(int)
    seen = collections.Counter(map(tuple, starts.tolist()))
    assert set(seen) == allowed
    assert as_likely([*seen.values()], np.full(len(allowed), 1 / len(allowed)))


def test_a_ring_holds_no_more_than_its_capacity():
    for window, unroll, num_envs, capacity in SIZES:
        replay = uniform(window, unroll, num_envs, capacity=capacity)
        like = jax.eval_shape(replay.init, unroll_of(0, unroll, num_envs))
        spare = 2 if unroll * num_envs == 1 else 0  # a row is written twice
        rows = capacity // (unroll * num_envs) * unroll * num_envs + spare
        assert {len(leaf) for leaf in jax.tree.leaves(like)} == {rows}
        assert replay.traits.capacity == capacity


@pytest.mark.parametrize(
    ("window", "unroll", "num_envs", "capacity", "least"),
    [(3, 1, 1, 2, 3), (3, 1, 4, 11, 12), (5, 4, 2, 15, 16), (1, 8, 2, 15, 16)],
)
def test_a_capacity_too_small_for_a_window_is_refused(
    window, unroll, num_envs, capacity, least
):
    with pytest.raises(RlcliError, match="capacity") as caught:
        uniform(window, unroll, num_envs, capacity=capacity)
    assert f"at least {least:,}" in caught.value.hint
    uniform(window, unroll, num_envs, capacity=least)  # the hint works


@pytest.mark.parametrize(
    ("n", "unroll", "num_envs", "start", "first"),
    # The first iteration with an update: at `start`, or with the first window.
    [
        (1, 1, 1, 0, 1),
        (3, 1, 1, 0, 3),
        (3, 1, 4, 4, 3),
        (3, 2, 1, 0, 2),
        (3, 1, 1, 9, 10),
    ],
)
def test_updates_start_with_the_first_window(n, unroll, num_envs, start, first):
    data = {
        "environment": {"name": "probe-two-steps", "num_envs": num_envs},
        "network": "table",
        "tracer": {"name": "n_step", "n": n},
        "replay": {"name": "uniform", "capacity": 64},
        "updater": "q_learning",
        "train": {"steps": 1_000, "unroll": unroll, "start": start},
    }
    agent = build(recipe.load_recipe(data)).agent
    assert [agent.count_updates(first - 1), agent.count_updates(first)] == [0, 1]


def test_rings_of_several_seeds_can_be_vmapped_with_one_count():
    replay = uniform(2, 1, 2, capacity=8, batch_size=5)
    steps = [unroll_of(count, 1, 2) for count in range(6)]
    twice = [
        jax.tree.map(lambda leaf: np.stack([leaf, leaf + leaf]), step) for step in steps
    ]
    ring = jax.jit(jax.vmap(replay.init))(twice[0])
    add = jax.jit(jax.vmap(replay.add, in_axes=(0, 0, None)))
    for count, unrolls in enumerate(twice):
        ring = add(ring, unrolls, np.int32(count))
    noise = jax.jit(jax.vmap(replay.draw))(jax.random.split(jax.random.key(0), 2))
    sample = jax.jit(jax.vmap(replay.sample, in_axes=(0, None, 0)))
    batch, _, _ = jax.device_get(sample(ring, np.int32(6), noise))
    assert set(np.unique(batch.reward[0])) <= {3, 4, 5, 6}
    assert set(np.unique(batch.reward[1])) <= {6, 8, 10, 12}
    assert not np.array_equal(2 * batch.reward[0], batch.reward[1])


def test_priorities_change_nothing():
    replay = compile_replay(1, 1, 2, 8)
    ring = fill_ring(replay, 1, 2, adds=4)
    reweigh = jax.jit(replay.reweigh)
    again = reweigh(ring, np.arange(DRAWS), np.full(DRAWS, 100, np.float32))
    for old, new in zip(jax.tree.leaves(ring), jax.tree.leaves(again), strict=True):
        np.testing.assert_array_equal(old, new)


def floyd(bits, number):
    """Floyd's algorithm, one draw after another."""
    indices = []
    for order, draw in enumerate(bits.tolist()):
        largest = number - len(bits) + order
        if largest < 0:
            continue
        index = draw % (largest + 1)
        indices.append(largest if index in indices else index)
    return indices


def test_distinct_draws_equal_floyds_algorithm():
    rng = np.random.default_rng(0)
    number = rng.integers(1, 40, 400)
    number[:20] = 1_000
    bits = rng.integers(0, 2**32, (400, 16), dtype=np.uint32)
    sample = jax.jit(jax.vmap(sample_distinct_indices))
    index, is_valid = jax.device_get(sample(bits, number))
    for row in range(400):
        indices = index[row][is_valid[row]].tolist()
        assert indices == floyd(bits[row], int(number[row]))
        assert len(set(indices)) == len(indices) == min(number[row], 16)


def test_every_set_of_distinct_draws_is_equally_likely(as_likely):
    bits = jax.random.bits(jax.random.key(2), (DRAWS, 3))
    index, _ = jax.jit(jax.vmap(sample_distinct_indices, in_axes=(0, None)))(
        bits, np.int32(6)
    )
    seen = collections.Counter(frozenset(row) for row in np.asarray(index).tolist())
    sets = [*map(frozenset, itertools.combinations(range(6), 3))]
    assert set(seen) == set(sets)
    assert as_likely([*seen.values()], np.full(len(sets), 1 / len(sets)))


def test_without_replacement_windows_are_distinct_and_missing_ones_have_weight_zero(
    stream, run_replay
):
    steps = stream(1, 30, 2, 3)
    replay = uniform(3, 2, 3, capacity=60, batch_size=40, replacement=False)
    batch, weight, *_ = run_replay(replay, steps)
    for count in range(1, 30):
        windows = (min((count + 1) * 2, 20) - 2) * 3
        counts = weight[count] > 0
        assert np.all(counts == counts[0])
        starts = batch.action[count][0][counts[0]]
        assert len(set(starts.tolist())) == len(starts) == min(windows, 40)


@EVERY_SIZE
def test_the_contents_are_the_newest_steps_of_a_deque(
    window, unroll, num_envs, capacity
):
    replay = compile_replay(window, unroll, num_envs, capacity)
    rows = capacity // (num_envs * unroll) * unroll
    state = replay.init(unroll_of(0, unroll, num_envs))
    steps = collections.deque(maxlen=rows)
    for count in range(3 * rows // unroll + 1):
        new = unroll_of(count, unroll, num_envs)
        state = replay.add(state, new, np.int32(count))
        steps.extend(new.reward)
    stored, found = replay.contents(state, count + 1, 10_000)
    assert stored == len(steps) * num_envs
    np.testing.assert_array_equal(found.reward, np.concatenate(steps))
    few, sample = replay.contents(state, count + 1, 2)
    assert few == stored and len(sample.reward) == min(2, stored)
    assert sample.reward[0] == steps[0][0]
