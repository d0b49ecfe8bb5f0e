"""MemoryChain, compared with bsuite."""

import jax
import numpy as np
import pytest
from bsuite.environments import memory_chain as original
from scipy import stats
from tiers import quick_first

from rlcli.environments.native.bsuite.chains import MemoryChainState, memory_chain

CHAINS = [
    {},
    {"memory_length": 1},
    {"memory_length": 100},
    {"memory_length": 2, "num_bits": 40},
]


def state_of(env):
    return MemoryChainState(
        np.int32(env._timestep), env._context.astype(bool), np.int32(env._query)
    )


@pytest.mark.parametrize("chain", quick_first(CHAINS, quick=2))
def test_a_step_matches_bsuite_in_play_and_at_any_time(pair_class, fits, chain):
    reference = original.MemoryChain(**{"memory_length": 5, **chain}, seed=1)
    rng, pair = np.random.default_rng(0), pair_class(memory_chain(**chain), state_of)
    fits(pair.core, reference)
    length = reference._memory_length
    pair.play(reference, 500 // length, rng)
    for _ in range(500):
        reference.reset()
        reference._timestep = rng.choice([0, length - 1, length, rng.integers(length)])
        pair.act(reference, rng.integers(2))
    *_, (_, reward, last, gained) = pair.check()
    assert np.sum(reward > 0) > 50
    assert np.sum(reward < 0) > 50
    np.testing.assert_array_equal(last, reward != 0)
    np.testing.assert_array_equal(gained["perfect"], reward > 0)


def test_the_bits_and_the_query_are_uniform(pair_class):
    state, obs = pair_class(memory_chain(num_bits=35), state_of).resets(0, 4000)
    ones = state.context.sum(axis=0)
    assert min(stats.binomtest(int(each), 4000).pvalue for each in ones) > 0.001 / 35
    assert stats.chisquare(np.bincount(state.query, minlength=35)).pvalue > 0.001
    # The bits are independent.
    correlation = np.corrcoef(state.context.T) - np.eye(35)
    assert np.max(np.abs(correlation)) < 4.5 / np.sqrt(4000)
    np.testing.assert_array_equal(obs[:, 0, 2:], 2.0 * state.context - 1)


def test_initial_states_match_bsuite(pair_class):
    pair, reference = (
        pair_class(memory_chain(num_bits=3), state_of),
        original.MemoryChain(5, 3),
    )
    state, obs = pair.resets(1, 100)
    for i in range(100):
        reference._timestep, reference._context = 0, state.context[i].astype(int)
        reference._query = state.query[i]
        np.testing.assert_array_equal(obs[i], reference._get_observation())


def test_a_policy_with_memory_returns_one():
    core = memory_chain(memory_length=10)
    reset, step = jax.jit(core.reset), jax.jit(core.step)
    for seed in range(4):
        state, obs = reset(jax.random.key(seed))
        remembered, total, last = int(np.asarray(obs)[0, 2] > 0), 0.0, False
        while not last:
            state, timestep = step(state, remembered, ())
            total, last = total + float(timestep.reward), bool(timestep.last)
        assert total == 1
        assert int(state.time) == 11
