"""BitFlip, compared with NumPy."""

import jax
import numpy as np

from rlcli import registry
from rlcli.environments.native.bit_flip import BitFlipState, bit_flip

BATCH, BITS = 2000, 5


def test_a_step_flips_one_bit_and_ends_at_the_goal():
    rng = np.random.default_rng(0)
    bits, goal = rng.random((2, BATCH, BITS)) < 0.5
    near = rng.random(BATCH) < 0.5  # one flip from the goal
    flipped = rng.integers(0, BITS, BATCH)
    goal = np.where(near[:, None], bits ^ (np.arange(BITS) == flipped[:, None]), goal)
    actions = np.where(rng.random(BATCH) < 0.5, flipped, rng.integers(0, BITS, BATCH))
    core = bit_flip(bits=BITS)
    step = jax.jit(jax.vmap(core.step, (0, 0, None)))
    state, timestep = step(BitFlipState(bits, goal), actions, ())
    expected = bits.copy()
    expected[np.arange(BATCH), actions] ^= True
    is_reached = (expected == goal).all(axis=1)
    assert 0.2 < is_reached.mean() < 0.8
    np.testing.assert_array_equal(state.bits, expected)
    np.testing.assert_array_equal(timestep.obs["observation"], expected)
    np.testing.assert_array_equal(timestep.obs["achieved_goal"], expected)
    np.testing.assert_array_equal(timestep.obs["desired_goal"], goal)
    np.testing.assert_array_equal(timestep.reward, np.where(is_reached, 0, -1))
    np.testing.assert_array_equal(timestep.last, is_reached)
    np.testing.assert_array_equal(timestep.discount, 1.0 - is_reached)


def test_bits_and_goals_are_uniform_and_independent():
    reset = jax.jit(jax.vmap(bit_flip(bits=2).reset))
    state, _ = reset(jax.random.split(jax.random.key(0), 16_000))
    number = np.concatenate(state, axis=1) @ [8, 4, 2, 1]
    counts = np.bincount(number, minlength=16)
    assert np.all(np.abs(counts - 1000) < 150)


def test_the_default_time_limit_is_the_number_of_bits():
    part = registry.find("environment", "BitFlip-v0")
    assert part.facts["time_limit"] == part.factory().action.n
