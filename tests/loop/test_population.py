"""Exploit and explore, compared with loops in NumPy."""

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiers import quick_first

from rlcli.assembly import build
from rlcli.loop import make_loop
from rlcli.loop.population import (
    Ranges,
    draw_noise,
    exploit,
    explore,
    select_parents,
)
from rlcli.loop.progress import Progress
from rlcli.recipe import load_recipe

SCORES = st.lists(
    st.sampled_from([-np.inf, -1.0, 0.0, 1.0, 2.5, 9.0]), min_size=9, max_size=9
)


def expected_parents(scores, is_alive, noise):
    """Sorts the members, and lets the worst of them copy."""
    alive = [index for index, each in enumerate(is_alive) if each]
    ranked = sorted(alive, key=lambda index: (-scores[index], index))
    count = min(max(1, int(0.2 * len(alive) + 1e-9)), len(alive) // 2)
    parents = [*range(len(scores))]
    for index in ranked[len(ranked) - count :]:
        best = ranked[int(noise[index] * count)]
        if scores[best] > scores[index]:
            parents[index] = best
    return parents


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(SCORES, st.integers(0, 2**16), st.integers(0, 2**9 - 1))
def test_the_worst_members_copy_the_best(scores, seed, bits):
    members = len(scores)
    is_alive = np.array([bool(bits >> index & 1) for index in range(members)])
    noise = np.random.default_rng(seed).random(members, np.float32)
    parents = jax.jit(select_parents)(np.array(scores), is_alive, noise)
    assert parents.tolist() == expected_parents(scores, is_alive, noise)


def test_a_fifth_of_the_members_copies():
    scores = np.arange(20, dtype=np.float32)
    noise = np.linspace(0, 0.999, 20, dtype=np.float32)
    parents = jax.jit(select_parents)(scores, np.ones(20, bool), noise).tolist()
    assert {*parents[:4]} <= {16, 17, 18, 19}
    assert parents[4:] == [*range(4, 20)]


LAKE = {
    "environment": {"name": "FrozenLakeNonSlippery-v0", "num_envs": 2},
    "network": "table",
    "replay": {"name": "uniform", "capacity": 10, "batch_size": 2},
    "updater": "q_learning",
    "train": {"steps": 100, "devices": 1},
}


def progress_of(rows: int) -> Progress:
    """A progress whose numbers are all different."""
    shapes = make_loop(build(load_recipe(LAKE), tuple(range(rows)))).shapes()
    progress = jax.tree.map(
        lambda leaf: np.arange(leaf.size).reshape(leaf.shape).astype(leaf.dtype),
        shapes,
    )
    numbers = np.arange(rows * 2, dtype=np.float32).reshape(rows, 2)
    return progress._replace(iteration=np.int32(7), numbers=numbers)


@pytest.mark.parametrize("padding", quick_first([2, 0]))
def test_a_copy_has_the_whole_state_and_the_numbers_of_its_parent(padding):
    before = progress_of(4 * 3 + padding)
    parents = np.array([2, 1, 2, 1])
    after = jax.jit(exploit, static_argnames="seeds")(before, parents, seeds=3)
    after = jax.device_get(after)
    expected = [*range(6, 9), *range(3, 6), *range(6, 9), *range(3, 6)]
    expected += [5] * padding
    for name in ("environment", "pending", "policy", "unroll", "agent", "statistics"):
        leaves = zip(
            *map(jax.tree.leaves, (getattr(before, name), getattr(after, name))),
            strict=True,
        )
        for old, new in leaves:
            np.testing.assert_array_equal(new, old[expected])
    np.testing.assert_array_equal(after.numbers, before.numbers[expected])
    for name in ("iteration", "position", "seed"):
        np.testing.assert_array_equal(getattr(after, name), getattr(before, name))


draw_round = jax.jit(draw_noise, static_argnums=(1, 2))


def expected_numbers(values, has_copied, noise, ranges):
    """One number after the other."""
    result = values.astype(np.float64).copy()
    for n, k in np.ndindex(values.shape):
        low, high, is_log = (float(each[k]) for each in ranges)
        if not has_copied[n]:
            continue
        if noise.resample[n, k] < 0.25:
            share = float(noise.value[n, k])
            value = (
                low * (high / low) ** share if is_log else low + share * (high - low)
            )
        else:
            increases = noise.direction[n, k] >= 0.5
            value = float(values[n, k])
            if is_log:
                value *= 1.2 if increases else 0.8
            else:
                value += 0.2 * (high - low) * (1 if increases else -1)
        result[n, k] = min(max(value, low), high)
    return result


def test_the_numbers_of_copies_change_and_stay_in_their_ranges():
    ranges = Ranges(
        np.array([1e-5, 0.0, -1.0], np.float32),
        np.array([1e-1, 0.5, 1.0], np.float32),
        np.array([True, False, False]),
    )
    random = np.random.default_rng(0)
    share = random.random((400, 3), np.float32)
    values = ranges.low + share * (ranges.high - ranges.low)
    values = values.astype(np.float32)
    has_copied = random.random(400) < 0.7
    noise = jax.device_get(draw_round(jax.random.key(3), 400, 3))
    changed = jax.device_get(jax.jit(explore)(values, has_copied, noise, ranges))
    expected = expected_numbers(values, has_copied, noise, ranges)
    np.testing.assert_allclose(changed, expected, rtol=1e-5, atol=1e-7)
    np.testing.assert_array_equal(changed[~has_copied], values[~has_copied])
    assert np.all(changed >= ranges.low) and np.all(changed <= ranges.high)


def test_the_noise_of_a_round_depends_on_its_key_only():
    first, same, other = (draw_round(jax.random.key(n), 5, 2) for n in (0, 0, 1))
    assert [each.shape for each in first] == [(5,), (5, 2), (5, 2), (5, 2)]
    for one, two, three in zip(first, same, other, strict=True):
        np.testing.assert_array_equal(one, two)
        assert not np.array_equal(one, three)
